/** Placed vertices in, the x where each segment leaves and enters them out. */
import type { Segment, Vertex } from './model.ts'
import type { LayoutOptions } from './types.ts'

/** Lines that enter a node closer together than this are merged: their arrow heads would cover each other. */
const CLOSEST = 8

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
  return Math.max(1, vertex.width / 2 - CORNER)
}

function enter(vertex: Vertex, options: LayoutOptions): void {
  const segments = vertex.above.toSorted((a, b) => a.topX - b.topX || a.top.place - b.top.place)
  const centre = segments.findIndex((segment) => segment.topX === vertex.x && !segment.reversed)
  const room = reach(vertex)
  if (centre === -1) {
    spread(segments, vertex.x - room, vertex.x + room, vertex.x, options)
    return
  }
  const aligned = segments[centre]
  if (aligned) aligned.bottomX = vertex.x
  const gap = Math.min(options.portGap, room)
  spread(segments.slice(0, centre), vertex.x - room, vertex.x - gap, vertex.x, options)
  spread(segments.slice(centre + 1), vertex.x + gap, vertex.x + room, vertex.x, options)
}

/** Ports for segments, sorted by `topX`, between `low` and `high` and as near to `centre` as their number allows. */
function spread(
  segments: readonly Segment[],
  low: number,
  high: number,
  centre: number,
  options: LayoutOptions,
): void {
  const count = segments.length
  if (count === 0) return
  const gap = count > 1 ? Math.min(options.portGap, (high - low) / (count - 1)) : 0
  if (count > 1 && gap < CLOSEST) {
    merge(segments, low, high, centre)
    return
  }
  const middle = Math.max(low + (gap * (count - 1)) / 2, Math.min(high - (gap * (count - 1)) / 2, centre))
  const wishes = segments.map((segment, i) =>
    segment.topX >= low && segment.topX <= high ? segment.topX : middle + (i - (count - 1) / 2) * gap,
  )
  apart(wishes, gap, low, high).forEach((x, i) => {
    const segment = segments[i]
    if (segment) segment.bottomX = x
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
function merge(segments: readonly Segment[], low: number, high: number, centre: number): void {
  const left = segments.filter((segment) => segment.topX < centre)
  const right = segments.filter((segment) => segment.topX >= centre)
  const ports = [
    Math.max(low, Math.min(high, centre - CLOSEST)),
    Math.min(high, Math.max(low, centre + CLOSEST)),
  ]
  ;[left, right].forEach((group, side) => {
    for (const segment of group) {
      segment.bottomX = ports[side] as number
      segment.merged = group.length > 1
    }
  })
}
