/** Placed vertices in, the x where each segment leaves and enters them out. */
import type { Segment, Vertex } from './model.ts'
import type { LayoutOptions } from './types.ts'

/** Lines that enter a node closer together than this are merged: their arrow heads would cover each other. */
const CLOSEST = 7

/** Room between a port and the node's rounded corner. */
const CORNER = 9

/** Fills `topX`, `bottomX`, `merged` of all segments. What leaves a node leaves at its centre, as one tensor does.
 *  What enters keeps its own x where that lies over the node, so that it needs no bend; the rest is spread about the
 *  centre. Reversed lines have ports of their own on the left and the right: upwards they leave at the top, and
 *  arrive from below. */
export function assignPorts(rows: readonly (readonly Vertex[])[], options: LayoutOptions): void {
  for (const row of rows)
    for (const vertex of row) {
      for (const segment of vertex.below) segment.topX = vertex.x
      if (vertex.lane) for (const segment of vertex.above) segment.bottomX = vertex.x
      else {
        arriveFromBelow(vertex, options)
        enter(vertex, options)
      }
    }
}

function arriveFromBelow(vertex: Vertex, { portGap }: LayoutOptions): void {
  const gap = Math.min(portGap, reach(vertex))
  for (const segment of vertex.below)
    if (segment.reversed) segment.topX = vertex.x + (segment.bottom.x < vertex.x ? -gap : gap)
}

/** How far from the centre a port may be. */
function reach(vertex: Vertex): number {
  return Math.max(vertex.width / 4, vertex.width / 2 - CORNER)
}

function enter(vertex: Vertex, options: LayoutOptions): void {
  const [only] = vertex.above
  if (only && vertex.above.length === 1 && only.topX === vertex.x) {
    only.bottomX = vertex.x
    return
  }
  const segments = vertex.above
    .filter((segment) => !segment.reversed)
    .sort((a, b) => a.topX - b.topX || a.top.place - b.top.place)
  const { left, right } = leaveAtTop(vertex, options)
  const centre = segments.findIndex((segment) => segment.topX === vertex.x)
  const aligned = segments[centre]
  if (!aligned) {
    spread(segments, left, right, vertex.x, options.portGap)
    return
  }
  aligned.bottomX = vertex.x
  const before = segments.slice(0, centre)
  const after = segments.slice(centre + 1)
  // Both sides alike, unless one of them is merged.
  const gaps = [(vertex.x - left) / before.length, (right - vertex.x) / after.length]
  const gap = Math.min(options.portGap, ...gaps.filter((room) => room >= CLOSEST))
  spread(before, left, Math.max(left, vertex.x - gap), vertex.x, gap)
  spread(after, Math.min(right, vertex.x + gap), right, vertex.x, gap)
}

/** Reversed lines get the outermost ports. Returns the range that is left for the others. */
function leaveAtTop(vertex: Vertex, { portGap }: LayoutOptions): { left: number; right: number } {
  const outermost = reach(vertex)
  const gap = Math.min(portGap, outermost / 2)
  const range = { left: vertex.x - outermost, right: vertex.x + outermost }
  const reversed = vertex.above.filter((segment) => segment.reversed)
  for (const segment of reversed) {
    const side = segment.topX < vertex.x ? -1 : 1
    segment.bottomX = vertex.x + side * outermost
    segment.merged = true
    if (side === -1) range.left = segment.bottomX + gap
    else range.right = segment.bottomX - gap
  }
  return range
}

/** Ports for segments, sorted by `topX`, between `low` and `high`, `gap` apart, and as near to `centre` as their
 *  number allows. */
function spread(segments: readonly Segment[], low: number, high: number, centre: number, gap: number): void {
  const count = segments.length
  const fitting = count > 1 ? Math.min(gap, (high - low) / (count - 1)) : gap
  if (fitting < CLOSEST) {
    merge(segments, low, high, centre, gap)
    return
  }
  const half = (fitting * (count - 1)) / 2
  const middle = Math.max(low + half, Math.min(high - half, centre))
  const over = ({ topX }: Segment) => topX >= low && topX <= high
  const wishes = segments.map((segment, i) => (over(segment) ? segment.topX : middle - half + i * fitting))
  // What comes from the left makes room for what comes from above.
  for (let i = count - 2; i >= 0; i--)
    if (!over(segments[i] as Segment))
      wishes[i] = Math.min(wishes[i] as number, (wishes[i + 1] as number) - fitting)
  const ports = apart(wishes, fitting, low, high)
  segments.forEach((segment, i) => {
    segment.bottomX = ports[i] as number
  })
}

/** Numbers near the ascending `wishes`, at least `gap` apart, in `[low, high]`. */
function apart(wishes: readonly number[], gap: number, low: number, high: number): number[] {
  const found: number[] = []
  for (const wish of wishes) found.push(Math.max(wish, (found.at(-1) ?? low - gap) + gap))
  let limit = high
  for (let i = found.length - 1; i >= 0; i--) {
    found[i] = Math.min(found[i] as number, limit)
    limit = (found[i] as number) - gap
  }
  return found
}

/** One port for all that come from one side. */
function merge(segments: readonly Segment[], low: number, high: number, centre: number, gap: number): void {
  const left = segments.filter((segment) => segment.topX < centre)
  const right = segments.filter((segment) => segment.topX >= centre)
  const within = (x: number) => Math.max(low, Math.min(high, x))
  for (const [group, port] of [
    [left, within(centre - gap / 2)] as const,
    [right, within(centre + gap / 2)] as const,
  ])
    for (const segment of group) {
      segment.bottomX = port
      segment.merged = group.length > 1
    }
}
