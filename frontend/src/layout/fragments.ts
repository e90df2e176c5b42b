/** Rows and the main path in, a first left-to-right order of each row out.
 *
 *  The idea is that of planarity tests (Auslander, Parter, 1961): take a path out of a connected graph, and what is
 *  left falls into fragments that can each go to one side. Where a model is planar, as residual networks, U-Nets
 *  and branches are, the order has no crossing, and it reads as drawn by hand: short skips nearest to the path,
 *  siblings in execution order. Where it isn't, order.ts goes on from here. */
import type { Segment, Vertex } from './model.ts'

type Side = -1 | 1

/** A connected set of vertices beside a path. */
interface Fragment {
  readonly vertices: readonly Vertex[]
  readonly first: number
  readonly last: number
  /** Its node that runs first; undefined if it is one lane. */
  readonly head: Vertex | undefined
}

export function orderAlong(path: readonly Vertex[], rows: readonly (readonly Vertex[])[]): Vertex[][] {
  const everything = fragment(rows.flat())
  return arrange(everything, path, new Map(), 0)
}

/** A fragment of a fragment, and so on: beyond this depth the graph is a thicket that no order makes readable. */
const DEEPEST = 24

/** The rows of a fragment, from its first rank on. `bearings` tells on which side of the fragment the neighbours
 *  outside it lie. */
function arrange(
  whole: Fragment,
  path: readonly Vertex[],
  bearings: Map<Vertex, Side>,
  depth: number,
): Vertex[][] {
  const rows: Vertex[][] = Array.from({ length: whole.last - whole.first + 1 }, () => [])
  if (depth > DEEPEST) {
    for (const vertex of whole.vertices) rows[vertex.rank - whole.first]?.push(vertex)
    return rows
  }
  const placed = takeSides(path, fragmentsWithout(path, whole), bearings).map(({ part, side }) => {
    const top = path[0]?.rank ?? 0
    const beside = path.slice(Math.max(0, part.first - 1 - top), Math.max(0, part.last + 2 - top))
    for (const vertex of beside) bearings.set(vertex, side === 1 ? -1 : 1)
    return { part, side, rows: arrange(part, heaviestPath(part), bearings, depth + 1) }
  })
  const append = (part: Fragment, partRows: readonly (readonly Vertex[])[]) => {
    for (const [i, row] of partRows.entries()) rows[part.first - whole.first + i]?.push(...row)
  }
  for (const { part, side, rows } of placed.toReversed()) if (side === -1) append(part, rows)
  for (const vertex of path) rows[vertex.rank - whole.first]?.push(vertex)
  for (const { part, side, rows } of placed) if (side === 1) append(part, rows)
  return rows
}

function fragment(vertices: readonly Vertex[]): Fragment {
  let first = Number.POSITIVE_INFINITY
  let last = 0
  let head: Vertex | undefined
  for (const vertex of vertices) {
    first = Math.min(first, vertex.rank)
    last = Math.max(last, vertex.rank)
    if (!vertex.lane && (!head || vertex.index < head.index)) head = vertex
  }
  return { vertices, first, last, head }
}

function fragmentsWithout(path: readonly Vertex[], whole: Fragment): Fragment[] {
  const left = new Set(whole.vertices)
  for (const vertex of path) left.delete(vertex)
  const fragments: Fragment[] = []
  for (const start of left) {
    left.delete(start)
    const found = [start]
    for (const vertex of found) {
      const visit = (neighbour: Vertex) => {
        if (left.delete(neighbour)) found.push(neighbour)
      }
      for (const segment of vertex.above) visit(segment.top)
      for (const segment of vertex.below) visit(segment.bottom)
    }
    fragments.push(fragment(found))
  }
  return fragments
}

/** From the top row to the bottom row of some part of the fragment, past as many nodes as possible. */
function heaviestPath(part: Fragment): Vertex[] {
  const weight = new Map<Vertex, number>()
  const inside = new Set(part.vertices)
  const next = (vertex: Vertex): Vertex | undefined => {
    let best: Vertex | undefined
    for (const { bottom } of vertex.below)
      if (inside.has(bottom) && (!best || (weight.get(bottom) ?? 0) > (weight.get(best) ?? 0))) best = bottom
    return best
  }
  let start: Vertex | undefined
  for (const vertex of part.vertices.toSorted((a, b) => b.rank - a.rank || a.index - b.index)) {
    const below = next(vertex)
    const own = vertex.lane ? 1 : NODE_OVER_LANE
    weight.set(vertex, own + (below ? (weight.get(below) ?? 0) : 0))
    if (!start || (weight.get(vertex) ?? 0) > (weight.get(start) ?? 0)) start = vertex
  }
  const path: Vertex[] = []
  for (let vertex = start; vertex; vertex = next(vertex)) path.push(vertex)
  return path
}

const NODE_OVER_LANE = 1000

/** Nearest to the path first. A fragment takes the side where its lines cross fewer of those already placed. If that
 *  is equal, a lane takes the side with less beside it, else the right one, so that nested skips stay together; nodes
 *  go left or right as they run before or after their neighbour on the path, unless that side is already fuller. */
function takeSides(
  path: readonly Vertex[],
  fragments: readonly Fragment[],
  bearings: ReadonlyMap<Vertex, Side>,
): { part: Fragment; side: Side }[] {
  const onPath = new Set(path)
  const top = path[0]?.rank ?? 0
  const neighbour = (part: Fragment) => path[clamp((part.head?.rank ?? part.first) - top, path.length - 1)]
  const distance = ({ head, ...part }: Fragment) => {
    const beside = neighbour({ head, ...part })
    return head && beside ? Math.abs(head.index - runsAt(beside)) : 0
  }
  const crossings = new Gaps()
  for (const vertex of path)
    for (const segment of [...vertex.above, ...vertex.below]) {
      const outside = bearings.get(segment.top === vertex ? segment.bottom : segment.top)
      if (outside) crossings.add(segment, vertex, 0, outside * FAR)
    }
  const filled = { [-1]: new Map<number, number>(), 1: new Map<number, number>() }
  let places = 0

  return fragments
    .toSorted((a, b) => a.last - a.first - (b.last - b.first) || distance(a) - distance(b))
    .map((part) => {
      places += 1
      const inside = new Set(part.vertices)
      const attached: { segment: Segment; own: Vertex; other: number }[] = []
      for (const own of part.vertices)
        for (const segment of [...own.above, ...own.below]) {
          const other = segment.top === own ? segment.bottom : segment.top
          if (inside.has(other)) continue
          attached.push({ segment, own, other: onPath.has(other) ? 0 : (bearings.get(other) ?? 0) * FAR })
        }
      const cost = (side: Side) => {
        let sum = 0
        for (const { segment, own, other } of attached)
          sum += crossings.count(segment, own, side * places, other)
        return sum
      }
      const load = (side: Side) => {
        let most = 0
        for (let rank = part.first; rank <= part.last; rank++)
          most = Math.max(most, filled[side].get(rank) ?? 0)
        return most
      }
      const difference = cost(-1) - cost(1)
      const beside = neighbour(part)
      let side: Side
      if (difference !== 0) side = difference < 0 ? -1 : 1
      else if (!part.head || !beside) side = load(-1) < load(1) ? -1 : 1
      else {
        side = part.head.index < runsAt(beside) ? -1 : 1
        if (load(side) > load(side === 1 ? -1 : 1) + part.head.width / 2) side = side === 1 ? -1 : 1
      }
      for (const { segment, own, other } of attached) crossings.add(segment, own, side * places, other)
      for (const vertex of part.vertices)
        filled[side].set(vertex.rank, (filled[side].get(vertex.rank) ?? 0) + vertex.width)
      return { part, side }
    })
}

/** Further out than any fragment of one path. */
const FAR = 1e9

/** Segments between each two rows as pairs of positions, to count what a further one would cross. */
class Gaps {
  readonly #gaps = new Map<number, [number, number][]>()

  add(segment: Segment, own: Vertex, ownPlace: number, otherPlace: number): void {
    const gap = this.#gaps.get(segment.top.rank) ?? []
    gap.push(segment.top === own ? [ownPlace, otherPlace] : [otherPlace, ownPlace])
    this.#gaps.set(segment.top.rank, gap)
  }

  count(segment: Segment, own: Vertex, ownPlace: number, otherPlace: number): number {
    const [above, below] = segment.top === own ? [ownPlace, otherPlace] : [otherPlace, ownPlace]
    let sum = 0
    for (const [a, b] of this.#gaps.get(segment.top.rank) ?? []) if ((a - above) * (b - below) < 0) sum++
    return sum
  }
}

function runsAt(vertex: Vertex): number {
  return vertex.lane?.source.index ?? vertex.index
}

function clamp(position: number, last: number): number {
  return Math.max(0, Math.min(last, position))
}
