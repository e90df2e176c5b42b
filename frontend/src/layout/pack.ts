/** Connected parts and lone nodes in, moved to their places on the sheet. */
import type { Vertex } from './model.ts'
import type { Part } from './part.ts'
import type { LayoutOptions, Point } from './types.ts'

/** Width to height of a sheet of many parts or lone nodes. */
const ASPECT = 1.6

export interface Sheet {
  readonly width: number
  readonly height: number
  /** Upper left corners of the parts. */
  readonly corners: readonly Point[]
}

/** Parts stand side by side in execution order. Where that gets wider than a screen, they stand in columns, as high
 *  as the highest part or as the proportions of the sheet want. Lone nodes, such as unused modules, stand in a grid
 *  below (their `x`, `y` are set): in one row 500 of them would be 54,000 px wide. */
export function pack(parts: readonly Part[], lone: readonly Vertex[], options: LayoutOptions): Sheet {
  const { margin, partGap } = options
  const corners: Point[] = []
  const columnHeight = heightOfColumns(parts, options)
  let [right, bottom] = [margin, margin]
  let [x, y] = [margin, margin]
  for (const part of parts) {
    if (y > margin && y + part.height > margin + columnHeight) {
      x = right + partGap
      y = margin
    }
    corners.push({ x, y })
    right = Math.max(right, x + part.width)
    bottom = Math.max(bottom, y + part.height)
    y += part.height + partGap
  }
  const tray = fillTray(lone, parts.length > 0 ? bottom + partGap : margin, right, options)
  return {
    width: Math.max(right, tray.right) + margin,
    height: Math.max(bottom, tray.bottom) + margin,
    corners,
  }
}

/** Parts that are together at most this wide stand in one row. */
const WIDE = 2400

function heightOfColumns(parts: readonly Part[], { partGap }: LayoutOptions): number {
  const width = parts.reduce((sum, part) => sum + part.width + partGap, 0)
  if (width <= WIDE) return 0
  const area = parts.reduce((sum, part) => sum + (part.width + partGap) * (part.height + partGap), 0)
  return parts.reduce((most, part) => Math.max(most, part.height), Math.sqrt(area / ASPECT))
}

function fillTray(lone: readonly Vertex[], top: number, width: number, options: LayoutOptions) {
  const { margin, nodeGap } = options
  let [cellWidth, cellHeight] = [0, 0]
  for (const node of lone) {
    cellWidth = Math.max(cellWidth, node.left + node.right + nodeGap)
    cellHeight = Math.max(cellHeight, node.height + nodeGap)
  }
  if (lone.length === 0) return { right: margin, bottom: 0 }
  const wanted = Math.max(width - margin + nodeGap, Math.sqrt(lone.length * cellWidth * cellHeight * ASPECT))
  const columns = Math.max(1, Math.min(lone.length, Math.floor(wanted / cellWidth)))
  lone.forEach((node, i) => {
    node.x =
      margin + (i % columns) * cellWidth + (cellWidth - nodeGap - node.left - node.right) / 2 + node.left
    node.y = top + Math.floor(i / columns) * cellHeight + (cellHeight - nodeGap) / 2
  })
  return {
    right: margin + columns * cellWidth - nodeGap,
    bottom: top + Math.ceil(lone.length / columns) * cellHeight - nodeGap,
  }
}
