/** Rows with ports and tracks in, heights and polylines out. */
import type { Line, Vertex } from './model.ts'
import type { LayoutOptions, Point } from './types.ts'

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
    line.points = straightened(line.reversed ? points.toReversed() : points)
  }
}

function corners(
  { upper, lower, segments }: Line,
  lowerEdges: readonly number[],
  options: LayoutOptions,
): Point[] {
  const points: Point[] = []
  for (const { top, bends } of segments) {
    const edge = (lowerEdges[top.rank] ?? 0) + BELOW_ROW
    for (const { x, y } of bends) points.push({ x, y: edge + y * options.trackGap })
  }
  const start = { x: segments[0]?.topX ?? upper.x, y: upper.y + upper.height / 2 }
  const end = { x: segments.at(-1)?.bottomX ?? lower.x, y: lower.y - lower.height / 2 }
  return [start, ...points, end]
}

/** Without points on the way of a straight piece. */
function straightened(points: readonly Point[]): Point[] {
  return points.filter((point, i) => {
    const [before, after] = [points[i - 1], points[i + 1]]
    if (!before || !after) return true
    return !((before.x === point.x && point.x === after.x) || (before.y === point.y && point.y === after.y))
  })
}
