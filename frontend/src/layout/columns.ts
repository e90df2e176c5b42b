/** Ordered rows in, rigid columns of vertices out: what stands in one column is drawn on one vertical line. */
import { type Segment, UNKNOWN, type Vertex } from './model.ts'
import type { LayoutOptions } from './types.ts'

export interface Column {
  readonly members: Vertex[]
  x: number
  /** Neighbours that must stay to the left and to the right; one entry for each row in which they meet. */
  readonly before: Distance[]
  readonly after: Distance[]
  /** Columns at the other ends of bent segments. */
  readonly pulls: { readonly to: Column; readonly weight: number }[]
  /** place.ts: columns that swing together form a list from their leader to its `last`; the leader's `force` and
   *  `weight` are the sums of theirs. */
  leader: Column | undefined
  follower: Column | undefined
  last: Column | undefined
  followers: number
  force: number
  weight: number
}

/** Least distance between two columns that meet in a row. */
export interface Distance {
  left: Column
  right: Column
  readonly gap: number
  readonly rank: number
}

/** A drawing may be this much wider than its widest row if that keeps lines straight... */
const WIDER = 1.5
/** ...or this many pixels, whichever is more: in a small graph straight lines are worth the room. */
const WIDER_BY = 400
/** Each makes it about a third narrower. */
const ROUNDS = 8

/** Columns from left to right (a topological order of `after`), at their leftmost positions. */
export function columnsOf(
  rows: readonly (readonly Vertex[])[],
  main: ReadonlySet<Segment>,
  options: LayoutOptions,
): Column[] {
  for (const row of rows) align(row, main)
  let widest = 0
  for (const row of rows) widest = Math.max(widest, rowWidth(row, options))
  const limit = Math.max(WIDER * widest, widest + WIDER_BY)
  const columns = build(rows, options)
  let sorted = leftToRight(columns)
  for (let round = 0; round < ROUNDS; round++) {
    const cuts = bottlenecks(sorted, limit, main)
    if (cuts.size === 0) break
    for (const segment of cuts) columns.push(split(segment))
    sorted = leftToRight(columns)
  }
  addPulls(rows)
  return sorted
}

function columnOf(vertex: Vertex): Column {
  return vertex.column as Column
}

/** Least distance between the centres of two neighbours of a row; whole pixels, so that rounding keeps it. */
function distance(left: Vertex, right: Vertex, options: LayoutOptions): number {
  const gap = left.lane || right.lane ? options.laneGap : options.nodeGap
  return Math.ceil(left.right + gap + right.left)
}

function rowWidth(row: readonly Vertex[], options: LayoutOptions): number {
  let width = 0
  row.forEach((vertex, i) => {
    const left = row[i - 1]
    if (left) width += distance(left, vertex, options)
  })
  return width
}

/** Choose the segments below a row to draw straight: no vertex has two in one direction, and no two cross. Between
 *  these limits the more important wins. This is the alignment step of Brandes, Koepf: "Fast and simple horizontal
 *  coordinate assignment" (2001), made once by importance instead of four times by direction: here the straight
 *  lines carry the meaning. */
function align(row: readonly Vertex[], main: ReadonlySet<Segment>): void {
  const candidates = row.flatMap((vertex) => vertex.below)
  for (const segment of candidates) segment.importance = importanceOf(segment, main)
  candidates.sort((a, b) => b.importance - a.importance)
  const joined = new Set<Vertex>()
  const chosen: Segment[] = []
  for (const segment of candidates) {
    if (joined.has(segment.top) || joined.has(segment.bottom)) continue
    if (chosen.some((other) => cross(segment, other))) continue
    segment.straight = true
    joined.add(segment.top).add(segment.bottom)
    chosen.push(segment)
  }
}

/** The main path, then gradient before data, then what lies on the heavier path, then what joins nodes. */
function importanceOf(segment: Segment, main: ReadonlySet<Segment>): number {
  const { top, bottom, weight } = segment
  const path = Math.min(top.before + weight + bottom.after, PATH - 1)
  return Number(main.has(segment)) * 10 * PATH + weight * PATH + path + (top.lane || bottom.lane ? 0 : 0.5)
}

/** More than any path weighs. */
const PATH = 1e6

function cross(a: Segment, b: Segment): boolean {
  return (a.top.place - b.top.place) * (a.bottom.place - b.bottom.place) < 0
}

function build(rows: readonly (readonly Vertex[])[], options: LayoutOptions): Column[] {
  const columns: Column[] = []
  for (const row of rows) {
    let left: Vertex | undefined
    for (const vertex of row) {
      const above = vertex.above.find((segment) => segment.straight)
      const column = above ? columnOf(above.top) : emptyColumn()
      if (!above) columns.push(column)
      column.members.push(vertex)
      vertex.column = column
      if (left) {
        const apart = {
          left: columnOf(left),
          right: column,
          gap: distance(left, vertex, options),
          rank: vertex.rank,
        }
        apart.left.after.push(apart)
        column.before.push(apart)
      }
      left = vertex
    }
  }
  return columns
}

function emptyColumn(): Column {
  return {
    members: [],
    x: UNKNOWN,
    before: [],
    after: [],
    pulls: [],
    leader: undefined,
    follower: undefined,
    last: undefined,
    followers: 0,
    force: UNKNOWN,
    weight: UNKNOWN,
  }
}

/** Bend a straight segment: what stands below it in its column becomes a new column, which is returned. */
function split(segment: Segment): Column {
  segment.straight = false
  const { rank } = segment.top
  const upper = columnOf(segment.top)
  const lower = emptyColumn()
  for (const vertex of cutOff(upper.members, rank, lower.members)) vertex.column = lower
  for (const distance of cutOff(upper.before, rank, lower.before)) distance.right = lower
  for (const distance of cutOff(upper.after, rank, lower.after)) distance.left = lower
  return lower
}

/** Move what lies below a rank from one list to another; both are in the order of ranks. */
function cutOff<T extends { readonly rank: number }>(from: T[], rank: number, to: T[]): T[] {
  const first = from.findIndex((item) => item.rank > rank)
  if (first !== -1) for (const item of from.splice(first)) to.push(item)
  return to
}

/** The columns sorted, each as far left as its neighbours allow. Straight segments don't cross, so "left of in some
 *  row" has no cycle. */
function leftToRight(columns: readonly Column[]): Column[] {
  // `weight`, not yet in use, counts the neighbours that have still to come.
  for (const column of columns) column.weight = column.before.length
  const sorted = columns.filter((column) => column.weight === 0)
  for (const column of sorted) {
    column.x = 0
    for (const { left, gap } of column.before) column.x = Math.max(column.x, left.x + gap)
    for (const { right } of column.after) if (--right.weight === 0) sorted.push(right)
  }
  return sorted
}

/** On the chains of neighbours that push columns beyond `limit`: the least important straight segment of each column
 *  that a chain enters in one row and leaves in another. Without these segments the chains fall apart. */
function bottlenecks(columns: readonly Column[], limit: number, main: ReadonlySet<Segment>): Set<Segment> {
  const cuts = new Set<Segment>()
  const seen = new Set<Column>()
  for (let column of columns.toReversed()) {
    if (column.x <= limit) continue
    let leaves: number | undefined
    while (!seen.has(column)) {
      seen.add(column)
      const { x, before }: Column = column
      const cause = before.find(({ left, gap }) => left.x + gap === x)
      if (!cause) break
      const weakest = leaves === undefined ? undefined : leastImportant(column, cause.rank, leaves, main)
      if (weakest) cuts.add(weakest)
      leaves = cause.rank
      column = cause.left
    }
  }
  return cuts
}

function leastImportant(
  column: Column,
  a: number,
  b: number,
  main: ReadonlySet<Segment>,
): Segment | undefined {
  const [first, last] = [Math.min(a, b), Math.max(a, b)]
  let found: Segment | undefined
  let least = Number.POSITIVE_INFINITY
  for (const vertex of column.members) {
    if (vertex.rank < first || vertex.rank >= last) continue
    const segment = vertex.below.find((below) => below.straight)
    if (!segment || main.has(segment)) continue
    if (segment.importance >= least) continue
    least = segment.importance
    found = segment
  }
  return found
}

function addPulls(rows: readonly (readonly Vertex[])[]): void {
  for (const row of rows)
    for (const vertex of row)
      for (const { bottom, straight, weight } of vertex.below) {
        if (straight) continue
        columnOf(vertex).pulls.push({ to: columnOf(bottom), weight })
        columnOf(bottom).pulls.push({ to: columnOf(vertex), weight })
      }
}
