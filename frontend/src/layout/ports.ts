/** Placed vertices in, the x where each segment leaves and enters them out. */
import type { Segment, Vertex } from './model.ts'
import type { LayoutOptions } from './types.ts'

/** Lines that enter a node closer together than this are merged: their arrow heads would cover each other. */
const CLOSEST = 7

/** Room between a port and the node's rounded corner. */
const CORNER = 9

/** Fills `topX`, `bottomX`, `merged` of all segments. What leaves a node leaves at its centre, as one tensor does.
 *  What enters keeps its own x where that lies over the node, so that it needs no bend; the rest is spread about the
 *  centre. Reversed lines leave beside the others, where their arrow head enters from below. */
export function assignPorts(rows: readonly (readonly Vertex[])[], options: LayoutOptions): void {
  for (const row of rows)
    for (const vertex of row) {
      leave(vertex, options)
      if (vertex.lane) for (const segment of vertex.above) segment.bottomX = vertex.x
      else enter(vertex, options)
    }
}

function leave(vertex: Vertex, options: LayoutOptions): void {
  for (const segment of vertex.below) segment.topX = vertex.x
  if (vertex.lane || !vertex.below.some((segment) => segment.reversed)) return
  const reversed = vertex.below.filter((segment) => segment.reversed).sort(byBottom)
  const toLeft = reversed.filter((segment) => segment.bottom.x < vertex.x).reverse()
  const toRight = reversed.filter((segment) => segment.bottom.x >= vertex.x)
  for (const [side, segments] of [[-1, toLeft] as const, [1, toRight] as const]) {
    const step = Math.min(options.portGap, reach(vertex) / segments.length)
    segments.forEach((segment, i) => {
      segment.topX = vertex.x + side * step * (i + 1)
    })
  }
}

function byBottom(a: Segment, b: Segment): number {
  return a.bottom.x - b.bottom.x || a.bottom.place - b.bottom.place
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
  const sorted = vertex.above.toSorted((a, b) => a.topX - b.topX || a.top.place - b.top.place)
  const segments = sorted.filter((segment) => !segment.reversed)
  const reversed = sorted.filter((segment) => segment.reversed)
  const { left, right } = enterReversed(vertex, reversed, options)
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

/** Reversed lines, which leave upwards, get the outer ports. Returns what is left for the others. */
function enterReversed(vertex: Vertex, reversed: readonly Segment[], { portGap }: LayoutOptions) {
  const gap = Math.min(portGap, reach(vertex) / (reversed.length + 1))
  let left = vertex.x - reach(vertex)
  let right = vertex.x + reach(vertex)
  for (const segment of reversed)
    if (segment.topX < vertex.x) {
      segment.bottomX = left
      left += gap
    }
  for (const segment of reversed.toReversed())
    if (segment.topX >= vertex.x) {
      segment.bottomX = right
      right -= gap
    }
  return { left, right }
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
