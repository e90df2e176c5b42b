/** Rows with ports and tracks in, heights and polylines out. */
import type { Line, Vertex } from './model.ts'
import type { LayoutOptions } from './types.ts'

/** From a row to its first horizontal line below: room for a rounded corner. */
const BELOW_ROW = 12
/** From the last horizontal line to the next row: a rounded corner, then 8 px of straight line for the arrow head. */
const ABOVE_ROW = 18

/** Sets `y` of the vertices and `points` of the lines. `tracks[i]`: number of tracks below row `i`.
 *
 *  Lines are vertical within a row and bend only between rows, where no node is. That alone keeps every line off
 *  foreign nodes. */
export function route(
  rows: readonly (readonly Vertex[])[],
  lines: readonly Line[],
  tracks: readonly number[],
  options: LayoutOptions,
): void {
  const lowerEdges: number[] = []
  let y = 0
  rows.forEach((row, rank) => {
    const height = row.reduce((most, vertex) => Math.max(most, vertex.height), 0)
    for (const vertex of row) vertex.y = y + height / 2
    lowerEdges.push(y + height)
    const bends = Math.max(0, (tracks[rank] ?? 0) - 1) * options.trackGap
    y += height + Math.max(options.rankGap, BELOW_ROW + bends + ABOVE_ROW)
  })
  for (const line of lines) {
    const points = corners(line, lowerEdges, options)
    line.points = line.reversed ? points.reverse() : points
  }
}

function corners(
  { upper, lower, segments }: Line,
  lowerEdges: readonly number[],
  options: LayoutOptions,
): Line['points'] {
  let x = segments[0]?.topX ?? upper.x
  const points = [{ x, y: upper.y + upper.height / 2 }]
  for (const { top, bends } of segments) {
    const edge = (lowerEdges[top.rank] ?? 0) + BELOW_ROW
    for (const bend of bends) points.push({ x: bend.x, y: edge + bend.y * options.trackGap })
    x = bends.at(-1)?.x ?? x
  }
  points.push({ x, y: lower.y - lower.height / 2 })
  return points
}
