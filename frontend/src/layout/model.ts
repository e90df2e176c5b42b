/** The working nouns of the layout. A `Line` joins two nodes; it is cut at every row it passes, into `Segment`s
 *  between `Vertex`es of neighbouring rows. Each step fills in the fields named after it.
 *
 *  The frame is Sugiyama, Tagawa, Toda: "Methods for visual understanding of hierarchical system structures" (1981):
 *  break cycles, rank, order, place, route. */
import type { Column } from './columns.ts'
import type { Fragment } from './fragments.ts'
import type { Point } from './types.ts'

/** How much more a gradient counts than data when the main path is chosen. */
export const WEIGHT = { gradient: 4, data: 1 } as const

/** A node, or the point where a lane passes a row (`lane` is set, no size). */
export interface Vertex {
  /** Position in execution order; lane points follow the nodes. Breaks every tie, so layouts repeat exactly. */
  readonly index: number
  readonly kind: 'input' | 'output' | 'node' | 'lane'
  readonly lane: Lane | undefined
  /** Space needed to the left and right of `x`; differs from half the width where a self loop is drawn. */
  readonly left: number
  readonly right: number
  readonly width: number
  readonly height: number
  /** Lines to lower and from upper nodes, cycles already broken. Empty for lane points. */
  readonly out: Line[]
  readonly into: Line[]
  /** ranks.ts */
  rank: number
  /** spine.ts: weight of the heaviest path that ends, and that starts, here. */
  before: number
  after: number
  /** lanes.ts: segments to the rows above and below. */
  readonly above: Segment[]
  readonly below: Segment[]
  /** fragments.ts: the fragment it belongs to; if it has been taken out of it as part of a path, on which side that
   *  path is (-1 left, 1 right, 0 the path in hand). */
  fragment: Fragment | undefined
  bearing: number
  /** fragments.ts, order.ts: by what a vertex is compared with others just now. */
  score: number
  /** order.ts: position within the row. */
  place: number
  /** columns.ts */
  column: Column | undefined
  /** Centre. place.ts, route.ts */
  x: number
  y: number
}

/** One drawn connection between two nodes; equal edges share it. */
export interface Line {
  upper: Vertex
  lower: Vertex
  /** Drawn from lower to upper, because it closes a cycle. */
  reversed: boolean
  /** `gradient` if any of its edges is. */
  kind: 'gradient' | 'data'
  /** lanes.ts: from upper to lower, one segment for each row. */
  readonly segments: Segment[]
  /** route.ts: from source to target. part.ts moves them. */
  points: { x: number; y: number }[]
}

/** A vertical line past one or more rows, shared by edges of one source to targets in different rows. */
export interface Lane {
  readonly source: Vertex
  readonly reversed: boolean
  readonly kind: Line['kind']
  readonly points: Vertex[]
  /** Rank of the lowest target so far. */
  lowest: number
}

export interface Segment {
  readonly top: Vertex
  readonly bottom: Vertex
  readonly weight: number
  readonly reversed: boolean
  /** columns.ts: how much it matters that it is straight. */
  importance: number
  /** columns.ts: both ends have the same x. */
  straight: boolean
  /** ports.ts */
  topX: number
  bottomX: number
  /** ports.ts: ends in a port that other segments may use, too. */
  merged: boolean
  /** tracks.ts: corners between the two ends, with y counted in tracks. */
  bends: readonly Point[]
}

export function nodeVertex(
  index: number,
  kind: 'input' | 'output' | 'node',
  width: number,
  height: number,
  loop: number,
): Vertex {
  return vertex(index, kind, undefined, width, height, loop)
}

export function laneVertex(index: number, rank: number, lane: Lane): Vertex {
  const point = vertex(index, 'lane', lane, 0, 0, 0)
  point.rank = rank
  return point
}

/** Not 0: V8 stores a field that first holds a small integer as one, and rebuilds each object when the first fraction
 *  comes, which made large layouts a third slower. */
export const UNKNOWN = Number.NaN

/** Lane points have no lines; there are many of them. */
const NO_LINES: Line[] = []

function vertex(
  index: number,
  kind: Vertex['kind'],
  lane: Lane | undefined,
  width: number,
  height: number,
  loop: number,
): Vertex {
  return {
    index,
    kind,
    lane,
    left: width / 2,
    right: width / 2 + loop,
    width,
    height,
    out: lane ? NO_LINES : [],
    into: lane ? NO_LINES : [],
    rank: 0,
    before: 0,
    after: 0,
    above: [],
    below: [],
    fragment: undefined,
    bearing: 0,
    score: UNKNOWN,
    place: 0,
    column: undefined,
    x: UNKNOWN,
    y: UNKNOWN,
  }
}

/** Rows a line needs at least. One that runs backwards gets a lane of its own, so that it never hides behind a
 *  forward line between the same two nodes. */
export function leastSpan(line: Line): number {
  return line.reversed ? 2 : 1
}
