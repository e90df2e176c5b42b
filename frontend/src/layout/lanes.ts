/** Ranked nodes in, rows of vertices out: lines that pass rows get lane points there. */
import { type Lane, type Line, laneVertex, type Segment, UNKNOWN, type Vertex, WEIGHT } from './model.ts'

/** Fills `above`, `below` of all vertices and `segments` of all lines; returns the rows, nodes before lane points.
 *
 *  Lines of one source share a lane only where their targets lie in different rows: sharing between targets of the
 *  same row (the experts of a mixture) would pull one line through all the others. Gradient and data lines never
 *  share one, because they are drawn differently. */
export function rowsOf(nodes: readonly Vertex[]): Vertex[][] {
  const rows: Vertex[][] = []
  const add = (vertex: Vertex) => {
    while (rows.length <= vertex.rank) rows.push([])
    rows[vertex.rank]?.push(vertex)
  }
  for (const node of nodes) add(node)

  let index = 0
  for (const node of nodes) index = Math.max(index, node.index)
  for (const node of nodes) {
    const lanes: Lane[] = []
    for (const line of node.out.toSorted(byTarget)) {
      const length = line.lower.rank - node.rank - 1
      const lane = length > 0 ? laneFor(line, lanes) : undefined
      let last = node
      for (const point of lane?.points.slice(0, length) ?? []) {
        point.after = Math.max(point.after, line.lower.after)
        line.segments.push(...point.above)
        last = point
      }
      while (lane && lane.points.length < length) {
        const point = laneVertex(++index, last.rank + 1, lane)
        point.before = node.before
        point.after = line.lower.after
        line.segments.push(join(last, point, line))
        lane.points.push(point)
        add(point)
        last = point
      }
      line.segments.push(join(last, line.lower, line))
    }
  }
  return rows
}

function byTarget(a: Line, b: Line): number {
  return a.lower.rank - b.lower.rank || a.lower.index - b.lower.index
}

/** The first lane of this source that the line may share, or a new one. Lines come by the rank of their target, so
 *  a lane's last target has the highest rank. */
function laneFor(line: Line, lanes: Lane[]): Lane {
  const shared = lanes.find(
    (lane) => !lane.reversed && !line.reversed && lane.kind === line.kind && lane.lowest < line.lower.rank,
  )
  if (shared) {
    shared.lowest = line.lower.rank
    return shared
  }
  const lane: Lane = {
    source: line.upper,
    reversed: line.reversed,
    kind: line.kind,
    lowest: line.lower.rank,
    points: [],
  }
  lanes.push(lane)
  return lane
}

const NO_BENDS: Segment['bends'] = []

function join(top: Vertex, bottom: Vertex, line: Line): Segment {
  const segment: Segment = {
    top,
    bottom,
    weight: WEIGHT[line.kind],
    reversed: line.reversed,
    importance: UNKNOWN,
    straight: false,
    topX: UNKNOWN,
    bottomX: UNKNOWN,
    merged: false,
    bends: NO_BENDS,
  }
  top.below.push(segment)
  bottom.above.push(segment)
  return segment
}
