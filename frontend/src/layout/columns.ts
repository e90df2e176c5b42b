/** Ordered rows in, rigid columns of vertices out: what stands in one column is drawn on one vertical line. */
import type { Segment, Vertex } from './model.ts'
import type { LayoutOptions } from './types.ts'

export interface Column {
  readonly members: Vertex[]
  x: number
  /** Columns that must stay to the left and to the right, from left to right without cycles. */
  readonly before: Distance[]
  readonly after: Distance[]
  /** Columns at the other end of bent segments. */
  readonly pulls: { readonly to: Column; readonly weight: number }[]
}

/** Least distance to a neighbouring column, and the row members that cause it. */
export interface Distance {
  readonly column: Column
  gap: number
  own: Vertex
  other: Vertex
}

/** A drawing may be this much wider than its widest row if that keeps lines straight... */
const WIDER = 1.5
/** ...or this many pixels, whichever is more: in a small graph straight lines are worth the room. */
const WIDER_BY = 400
const ROUNDS = 40

/** Columns from left to right (a topological order), at their leftmost positions. */
export function columnsOf(
  rows: readonly (readonly Vertex[])[],
  main: ReadonlySet<Segment>,
  options: LayoutOptions,
): Column[] {
  align(rows, main)
  let widest = 0
  for (const row of rows) widest = Math.max(widest, rowWidth(row, options))
  const limit = Math.max(WIDER * widest, widest + WIDER_BY)
  for (let round = 0; ; round++) {
    const columns = build(rows, options)
    const { width, cuts } = packLeft(columns, main)
    if (width <= limit || cuts.length === 0 || round === ROUNDS) return columns
    for (const segment of cuts) segment.straight = false
  }
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

/** Choose the segments to draw straight: no vertex has two in one direction, and no two cross. Between these limits
 *  the more important wins: the main path, then what joins nodes, gradient before data, then what lies on the longer
 *  path. This is the alignment step of Brandes, Koepf: "Fast and simple horizontal coordinate assignment" (2001),
 *  made once by importance instead of four times by direction: here the straight lines carry the meaning. */
function align(rows: readonly (readonly Vertex[])[], main: ReadonlySet<Segment>): void {
  for (const row of rows) {
    const candidates = row.flatMap((vertex) => vertex.below).filter(mayBeStraight)
    const importance = new Map(candidates.map((segment) => [segment, importanceOf(segment, main)]))
    candidates.sort(
      (a, b) =>
        (importance.get(b) ?? 0) - (importance.get(a) ?? 0) ||
        a.top.place - b.top.place ||
        a.bottom.place - b.bottom.place,
    )
    const tops = new Set<Vertex>()
    const bottoms = new Set<Vertex>()
    const chosen: Segment[] = []
    for (const segment of candidates) {
      if (tops.has(segment.top) || bottoms.has(segment.bottom)) continue
      if (chosen.some((other) => cross(segment, other))) continue
      segment.straight = true
      tops.add(segment.top)
      bottoms.add(segment.bottom)
      chosen.push(segment)
    }
  }
}

/** The ends of a reversed line need ports of their own beside those of the forward lines. */
function mayBeStraight({ reversed, top, bottom }: Segment): boolean {
  return !reversed || (top.lane !== undefined && bottom.lane !== undefined)
}

function importanceOf(segment: Segment, main: ReadonlySet<Segment>): number {
  const { top, bottom, weight } = segment
  const nodes = !top.lane && !bottom.lane ? 2 : top.lane && bottom.lane ? 1 : 0
  const path = Math.min(top.before + weight + bottom.after, PATH - 1)
  return Number(main.has(segment)) * 100 * PATH + nodes * 10 * PATH + weight * PATH + path
}

/** More than any path weighs. */
const PATH = 1e6

function cross(a: Segment, b: Segment): boolean {
  return (a.top.place - b.top.place) * (a.bottom.place - b.bottom.place) < 0
}

function build(rows: readonly (readonly Vertex[])[], options: LayoutOptions): Column[] {
  const columnOf = new Map<Vertex, Column>()
  const columns: Column[] = []
  for (const row of rows)
    for (const vertex of row) {
      const above = vertex.above.find((segment) => segment.straight)
      let column = above && columnOf.get(above.top)
      if (!column) {
        column = { members: [], x: 0, before: [], after: [], pulls: [] }
        columns.push(column)
      }
      column.members.push(vertex)
      columnOf.set(vertex, column)
    }
  const of = (vertex: Vertex) => columnOf.get(vertex) as Column
  for (const row of rows)
    row.forEach((vertex, i) => {
      const left = row[i - 1]
      if (left) keepApart(of(left), left, of(vertex), vertex, distance(left, vertex, options))
      for (const segment of vertex.below) {
        if (segment.straight) continue
        const [top, bottom] = [of(segment.top), of(segment.bottom)]
        top.pulls.push({ to: bottom, weight: segment.weight })
        bottom.pulls.push({ to: top, weight: segment.weight })
      }
    })
  return leftToRight(columns)
}

function keepApart(a: Column, own: Vertex, b: Column, other: Vertex, gap: number): void {
  const known = a.after.find((neighbour) => neighbour.column === b)
  if (!known) {
    a.after.push({ column: b, gap, own, other })
    b.before.push({ column: a, gap, own: other, other: own })
  } else if (gap > known.gap) {
    Object.assign(known, { gap, own, other })
    const back = b.before.find((neighbour) => neighbour.column === a)
    if (back) Object.assign(back, { gap, own: other, other: own })
  }
}

/** Straight segments don't cross, so "left of in some row" has no cycle. */
function leftToRight(columns: readonly Column[]): Column[] {
  const waiting = new Map(columns.map((column) => [column, column.before.length]))
  const sorted = columns.filter((column) => column.before.length === 0)
  for (const column of sorted)
    for (const { column: next } of column.after) {
      const left = (waiting.get(next) ?? 0) - 1
      waiting.set(next, left)
      if (left === 0) sorted.push(next)
    }
  return sorted
}

/** Put each column as far left as its neighbours allow. `cuts`: on the chain of neighbours that makes the drawing as
 *  wide as it is, the least important straight segment of each column that the chain enters in one row and leaves
 *  in another. Without these segments the chain falls apart. */
function packLeft(
  columns: readonly Column[],
  main: ReadonlySet<Segment>,
): { width: number; cuts: Segment[] } {
  const cause = new Map<Column, Distance>()
  let last: Column | undefined
  for (const column of columns) {
    column.x = 0
    for (const neighbour of column.before) {
      const x = neighbour.column.x + neighbour.gap
      if (x <= column.x) continue
      column.x = x
      cause.set(column, neighbour)
    }
    if (!last || column.x > last.x) last = column
  }
  const cuts: Segment[] = []
  let left: Vertex | undefined
  for (let column = last; column; ) {
    const next = cause.get(column)
    if (next && left) {
      const segment = weakest(column, next.own.rank, left.rank, main)
      if (segment) cuts.push(segment)
    }
    left = next?.other
    column = next?.column
  }
  return { width: last?.x ?? 0, cuts }
}

function weakest(
  column: Column,
  rankA: number,
  rankB: number,
  main: ReadonlySet<Segment>,
): Segment | undefined {
  const [first, last] = [Math.min(rankA, rankB), Math.max(rankA, rankB)]
  let found: Segment | undefined
  let least = Number.POSITIVE_INFINITY
  for (const vertex of column.members) {
    const segment = vertex.rank >= first && vertex.rank < last && vertex.below.find((below) => below.straight)
    if (!segment || main.has(segment)) continue
    const importance = importanceOf(segment, main)
    if (importance >= least) continue
    least = importance
    found = segment
  }
  return found
}
