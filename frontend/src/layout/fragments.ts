/** Rows and the main path in, a first left-to-right order of each row out.
 *
 *  The idea is that of planarity tests (Auslander, Parter, 1961): take a path out of a connected graph, and what is
 *  left falls into fragments that can each go to one side. Where a model is planar, as residual networks, U-Nets
 *  and branches are, the order has no crossing, and it reads as drawn by hand: short skips nearest to the path,
 *  siblings in execution order. Where it isn't, order.ts goes on from here. */
import type { Vertex } from './model.ts'

type Side = -1 | 1

/** A connected set of vertices beside a path. */
export interface Fragment {
  /** From the top row down. */
  readonly vertices: Vertex[]
  first: number
  last: number
  /** Its node that runs first; undefined if it is one lane. */
  head: Vertex | undefined
}

/** Undefined where the graph is a thicket, for which order.ts has a quicker start that serves as well. */
export function orderAlong(
  path: readonly Vertex[],
  rows: readonly (readonly Vertex[])[],
): Vertex[][] | undefined {
  const whole = emptyFragment()
  for (const row of rows) for (const vertex of row) include(vertex, whole)
  const fragments = fragmentsWithout(path, whole)
  return fragments.some((part) => part.vertices.length > THICKET)
    ? undefined
    : arrange(whole, path, fragments, 0)
}

/** Where more vertices than this hang together beside the path... */
const THICKET = 1000
/** ...or fragments of fragments are this deep, no order makes the graph readable. */
const DEEPEST = 8

function emptyFragment(): Fragment {
  return { vertices: [], first: Number.POSITIVE_INFINITY, last: 0, head: undefined }
}

function include(vertex: Vertex, fragment: Fragment): void {
  vertex.fragment = fragment
  fragment.vertices.push(vertex)
  fragment.first = Math.min(fragment.first, vertex.rank)
  fragment.last = Math.max(fragment.last, vertex.rank)
  if (!vertex.lane && (!fragment.head || vertex.index < fragment.head.index)) fragment.head = vertex
}

/** The rows of a fragment, from its first rank on: the parts that the path leaves, to its left and right. */
function arrange(whole: Fragment, path: readonly Vertex[], parts: Fragment[], depth: number): Vertex[][] {
  const rows: Vertex[][] = Array.from({ length: whole.last - whole.first + 1 }, () => [])
  const append = (vertices: readonly Vertex[]) => {
    for (const vertex of vertices) rows[vertex.rank - whole.first]?.push(vertex)
  }
  const top = path[0]?.rank ?? 0
  const sided = takeSides(path, parts).map(({ part, side }) => {
    if (depth === DEEPEST || part.vertices.length === 1) return { side, rows: [part.vertices] }
    // Seen from the fragment, the path is on the other side.
    for (const vertex of path.slice(Math.max(0, part.first - 1 - top), Math.max(0, part.last + 2 - top)))
      vertex.bearing = -side
    const inner = heaviestPath(part)
    return { side, rows: arrange(part, inner, fragmentsWithout(inner, part), depth + 1) }
  })
  for (const { side, rows } of sided.toReversed()) if (side === -1) rows.forEach(append)
  append(path)
  for (const { side, rows } of sided) if (side === 1) rows.forEach(append)
  return rows
}

function fragmentsWithout(path: readonly Vertex[], whole: Fragment): Fragment[] {
  for (const vertex of path) vertex.fragment = undefined
  const fragments: Fragment[] = []
  for (const start of whole.vertices) {
    if (start.fragment !== whole) continue
    const fragment = emptyFragment()
    fragments.push(fragment)
    start.fragment = fragment
    const found = [start]
    for (const vertex of found) {
      const visit = (neighbour: Vertex) => {
        if (neighbour.fragment !== whole) return
        neighbour.fragment = fragment
        found.push(neighbour)
      }
      for (const segment of vertex.above) visit(segment.top)
      for (const segment of vertex.below) visit(segment.bottom)
    }
  }
  for (const vertex of whole.vertices) if (vertex.fragment) include(vertex, vertex.fragment)
  return fragments
}

/** From row to row down some part of the fragment, past as many nodes as possible. */
function heaviestPath(part: Fragment): Vertex[] {
  const next = (vertex: Vertex): Vertex | undefined => {
    let best: Vertex | undefined
    for (const { bottom } of vertex.below)
      if (bottom.fragment === part && (!best || bottom.score > best.score)) best = bottom
    return best
  }
  let start: Vertex | undefined
  for (const vertex of part.vertices.toReversed()) {
    vertex.score = (vertex.lane ? 1 : NODE_OVER_LANE) + (next(vertex)?.score ?? 0)
    if (!start || vertex.score >= start.score) start = vertex
  }
  const path: Vertex[] = []
  for (let vertex = start; vertex; vertex = next(vertex)) path.push(vertex)
  return path
}

const NODE_OVER_LANE = 1000

/** A segment of a fragment; `undefined` is an end in the fragment, a number the place of an end outside. */
interface Strand {
  readonly gap: number
  readonly top: number | undefined
  readonly bottom: number | undefined
}

/** Beyond all fragments of one path. */
const FAR = 1e9

/** Nodes change sides only for this share of crossings, and for more than one: siblings in execution order are worth
 *  more. */
const SIMILAR = 0.15

/** How much fuller, in widths of the node in question, a side must be for it to go to the other one. */
const FULLER = 1.5

/** Nearest to the path first: short before long, then by execution order. A fragment takes the side where its lines
 *  cross fewer of those already placed, and where that is equal the side that `preferred` says. */
function takeSides(path: readonly Vertex[], fragments: Fragment[]): { part: Fragment; side: Side }[] {
  const first = path[0]?.rank ?? 0
  const beside = ({ head, first: rank }: Fragment) =>
    path[Math.max(0, Math.min(path.length - 1, (head?.rank ?? rank) - first))] as Vertex
  const distance = (part: Fragment) => (part.head ? Math.abs(part.head.index - runsAt(beside(part))) : 0)
  const span = (part: Fragment) => part.last - part.first
  const placed = new PlacedStrands()
  for (const vertex of path) for (const strand of strandsOf(vertex, undefined)) placed.add(strand, 0)
  const filled = { [-1]: new Map<number, number>(), 1: new Map<number, number>() }

  return fragments
    .sort((a, b) => span(a) - span(b) || distance(a) - distance(b))
    .map((part, i) => {
      const strands = part.vertices.flatMap((vertex) => strandsOf(vertex, part))
      const crossings = (place: number) =>
        strands.reduce((sum, strand) => sum + placed.crossings(strand, place), 0)
      const [left, right] = [crossings(-(i + 1)), crossings(i + 1)]
      const similar = part.head ? Math.max(1, SIMILAR * Math.min(left, right)) : 0
      const differ = Math.abs(left - right) > similar
      const side = differ ? (left < right ? -1 : 1) : preferred(part, beside(part), filled)
      for (const strand of strands) placed.add(strand, side * (i + 1))
      for (const { rank, width } of part.vertices)
        filled[side].set(rank, (filled[side].get(rank) ?? 0) + width)
      return { part, side }
    })
}

/** A lane goes where fewer nodes stand, else right, so that nested skips stay together. Nodes go left or right as they
 *  run before or after their neighbour on the path, unless that side is already much fuller. `filled`: width of the
 *  nodes on each side by rank. */
function preferred(
  { head, first, last }: Fragment,
  neighbour: Vertex,
  filled: Record<Side, ReadonlyMap<number, number>>,
): Side {
  const load = (side: Side) => {
    let most = 0
    for (let rank = first; rank <= last; rank++) most = Math.max(most, filled[side].get(rank) ?? 0)
    return most
  }
  if (!head) return load(-1) < load(1) ? -1 : 1
  const [side, other]: [Side, Side] = head.index < runsAt(neighbour) ? [-1, 1] : [1, -1]
  return load(side) > load(other) + FULLER * head.width ? other : side
}

/** The segments of a vertex, those within its fragment only once; without `part` those of a vertex of a path, as far
 *  as they lead to paths. */
function strandsOf(own: Vertex, part: Fragment | undefined): Strand[] {
  const strands: Strand[] = []
  for (const { bottom } of own.below)
    if (bottom.fragment === undefined)
      strands.push({ gap: own.rank, top: undefined, bottom: bottom.bearing * FAR })
    else if (bottom.fragment === part) strands.push({ gap: own.rank, top: undefined, bottom: undefined })
  for (const { top } of own.above)
    if (top.fragment === undefined)
      strands.push({ gap: own.rank - 1, top: top.bearing * FAR, bottom: undefined })
  return strands
}

/** Strands by the gap between rows in which they run. */
class PlacedStrands {
  readonly #gaps = new Map<number, [number, number][]>()

  add({ gap, top, bottom }: Strand, place: number): void {
    const known = this.#gaps.get(gap)
    const ends: [number, number] = [top ?? place, bottom ?? place]
    if (known) known.push(ends)
    else this.#gaps.set(gap, [ends])
  }

  crossings({ gap, top, bottom }: Strand, place: number): number {
    let sum = 0
    for (const [a, b] of this.#gaps.get(gap) ?? [])
      if ((a - (top ?? place)) * (b - (bottom ?? place)) < 0) sum++
    return sum
  }
}

function runsAt(vertex: Vertex): number {
  return vertex.lane?.source.index ?? vertex.index
}
