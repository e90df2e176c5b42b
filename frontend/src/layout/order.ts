/** Rows with some order in, rows with few crossings out. */
import type { Segment, Vertex } from './model.ts'

/** Rounds of one start after which it has no more to give, and rounds in a row without gain before that. */
const ROUNDS = 16
const PATIENCE = 4

/** Above this many vertices only the first start is tried, and for fewer rounds: the rest costs more time than the
 *  few crossings it saves in a drawing that nobody sees as a whole. */
const LARGE = 3000
const ROUNDS_IF_LARGE = 8

/** The best order found, set in `place`. Each start is improved by barycentre sweeps (Sugiyama 1981) and by exchange
 *  of neighbours (Gansner et al.: "A technique for drawing directed graphs", 1993). Of equally good orders the
 *  earliest wins, so a first start without crossings stays as it is. */
export function reduceCrossings(starts: readonly (() => Vertex[][])[]): Vertex[][] {
  let best: Vertex[][] = []
  let fewest = Number.POSITIVE_INFINITY
  for (const start of starts) {
    const rows = start()
    const large = rows.reduce((sum, row) => sum + row.length, 0) > LARGE
    if (large && best.length > 0) break
    rows.forEach(setPlaces)
    let least = Number.POSITIVE_INFINITY
    let idle = 0
    for (let round = 0; round <= (large ? ROUNDS_IF_LARGE : ROUNDS) && idle < PATIENCE; round++) {
      if (round > 0) {
        sweep(rows, round % 2 === 1, round % 4 >= 2)
        exchange(rows)
      }
      const count = crossings(rows)
      idle = count < least ? 0 : idle + 1
      least = Math.min(least, count)
      if (count < fewest) {
        fewest = count
        best = rows.map((row) => row.slice())
      }
      if (fewest === 0) break
    }
    if (fewest === 0) break
  }
  best.forEach(setPlaces)
  return best
}

/** A start: depth first from the top (or bottom) row, so that what belongs together stands together. */
export function depthFirst(
  rows: readonly (readonly Vertex[])[],
  downwards: boolean,
  lanesFirst: boolean,
): Vertex[][] {
  const found: Vertex[][] = rows.map(() => [])
  const seen = new Set<Vertex>()
  const next = (vertex: Vertex) =>
    (downwards ? vertex.below.map((s) => s.bottom) : vertex.above.map((s) => s.top)).toSorted(
      (a, b) => (lanesFirst ? -1 : 1) * (Number(!!a.lane) - Number(!!b.lane)) || a.index - b.index,
    )
  const walk = (start: Vertex) => {
    const stack = [start]
    for (let vertex = stack.pop(); vertex; vertex = stack.pop()) {
      if (seen.has(vertex)) continue
      seen.add(vertex)
      found[vertex.rank]?.push(vertex)
      stack.push(...next(vertex).toReversed())
    }
  }
  for (const row of rows)
    for (const vertex of row) if ((downwards ? vertex.above : vertex.below).length === 0) walk(vertex)
  return found
}

function setPlaces(row: readonly Vertex[]): void {
  row.forEach((vertex, place) => {
    vertex.place = place
  })
}

/** Sort each row by the mean place of the neighbours in the row before. `flip` turns round those that tie. */
function sweep(rows: readonly Vertex[][], downwards: boolean, flip: boolean): void {
  for (const row of downwards ? rows : rows.toReversed()) {
    const wish = new Map<Vertex, number>()
    for (const vertex of row) {
      let sum = 0
      const segments = downwards ? vertex.above : vertex.below
      for (const { top, bottom } of segments) sum += downwards ? top.place : bottom.place
      if (segments.length > 0) wish.set(vertex, sum / segments.length)
    }
    const movable = row
      .filter((vertex) => wish.has(vertex))
      .sort(
        (a, b) => (wish.get(a) ?? 0) - (wish.get(b) ?? 0) || (flip ? b.place - a.place : a.place - b.place),
      )
    let next = 0
    row.forEach((vertex, i) => {
      if (wish.has(vertex)) row[i] = movable[next++] ?? vertex
    })
    setPlaces(row)
  }
}

/** Exchange neighbours as long as that removes crossings. */
function exchange(rows: readonly Vertex[][]): void {
  let improved = true
  for (let round = 0; improved && round < 4; round++) {
    improved = false
    for (const row of rows)
      for (let i = 1; i < row.length; i++) {
        const [left, right] = [row[i - 1], row[i]] as [Vertex, Vertex]
        const gain =
          inversions(left.above, right.above, topPlace) + inversions(left.below, right.below, bottomPlace)
        if (gain <= 0) continue
        row[i - 1] = right
        row[i] = left
        right.place = i - 1
        left.place = i
        improved = true
      }
  }
}

const topPlace = (segment: Segment) => segment.top.place
const bottomPlace = (segment: Segment) => segment.bottom.place

/** Crossings of the segments of two neighbours, less those after an exchange. */
function inversions(
  left: readonly Segment[],
  right: readonly Segment[],
  place: (s: Segment) => number,
): number {
  let sum = 0
  for (const a of left)
    for (const b of right) {
      const difference = place(a) - place(b)
      if (difference > 0) sum++
      else if (difference < 0) sum--
    }
  return sum
}

/** Barth, Mutzel, Juenger: "Simple and efficient bilayer cross counting" (2004): walk the segments from left to
 *  right by their upper end and count, in a Fenwick tree, the earlier ones that end further to the right. */
export function crossings(rows: readonly (readonly Vertex[])[]): number {
  let sum = 0
  rows.forEach((row, rank) => {
    const size = rows[rank + 1]?.length ?? 0
    const tree = new Int32Array(size + 1)
    let before = 0
    for (const vertex of row) {
      const places = vertex.below.map(bottomPlace).sort((a, b) => a - b)
      for (const place of places) {
        let notFurther = 0
        for (let i = place + 1; i > 0; i -= i & -i) notFurther += tree[i] as number
        sum += before - notFurther
      }
      for (const place of places)
        for (let i = place + 1; i <= size; i += i & -i) tree[i] = (tree[i] as number) + 1
      before += places.length
    }
  })
  return sum
}
