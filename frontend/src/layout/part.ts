/** One connected part of the graph in, the same part drawn. */
import { columnsOf } from './columns.ts'
import { orderAlong } from './fragments.ts'
import { rowsOf } from './lanes.ts'
import type { Line, Segment, Vertex } from './model.ts'
import { depthFirst, reduceCrossings } from './order.ts'
import { placeColumns } from './place.ts'
import { assignPorts } from './ports.ts'
import { rank } from './ranks.ts'
import { route } from './route.ts'
import { mainPath } from './spine.ts'
import { bendSegments } from './tracks.ts'
import type { LayoutOptions, Point } from './types.ts'

export interface Part {
  readonly nodes: readonly Vertex[]
  readonly lines: readonly Line[]
  /** The upper edge is at 0. */
  readonly left: number
  readonly width: number
  readonly height: number
}

/** Sets rank and position of the nodes and the points of the lines. `nodes` are in execution order. */
export function drawPart(nodes: readonly Vertex[], options: LayoutOptions): Part {
  const lines = nodes.flatMap((node) => node.out)
  rank(nodes, options.placeholderReach)
  const path = mainPath(nodes)
  const rows = rowsOf(nodes)
  const main = new Set(path.flatMap((line) => line.segments))
  const ordered = reduceCrossings([() => orderAlong(verticesOn(main, nodes), rows), () => depthFirst(rows)])
  placeColumns(columnsOf(ordered, main, options))
  assignPorts(ordered, options)
  const tracks = ordered.map((row) => bendSegments(row.flatMap((vertex) => vertex.below)))
  route(ordered, lines, tracks, options)
  return measured(nodes, lines)
}

function verticesOn(main: ReadonlySet<Segment>, nodes: readonly Vertex[]): Vertex[] {
  const [first] = main
  return first ? [first.top, ...[...main].map((segment) => segment.bottom)] : nodes.slice(0, 1)
}

function measured(nodes: readonly Vertex[], lines: readonly Line[]): Part {
  let [left, right, bottom] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 0]
  for (const node of nodes) {
    left = Math.min(left, node.x - node.left)
    right = Math.max(right, node.x + node.right)
    bottom = Math.max(bottom, node.y + node.height / 2)
  }
  for (const { points } of lines)
    for (const { x } of points) {
      left = Math.min(left, x)
      right = Math.max(right, x)
    }
  left = Math.floor(left)
  return { nodes, lines, left, width: right - left, height: bottom }
}

/** Put the part's upper left corner somewhere. */
export function movePart({ nodes, lines, left }: Part, corner: Point): void {
  const dx = corner.x - left
  for (const node of nodes) {
    node.x += dx
    node.y += corner.y
  }
  for (const { points } of lines)
    for (const point of points) {
      point.x += dx
      point.y += corner.y
    }
}
