/** Rows with some order in, rows with few crossings out. */
import type { Vertex } from './model.ts'

/** Rounds of one start at most, and rounds in a row without gain after which it has no more to give. */
const EFFORT: Effort = { rounds: 8, exchanges: 4 }
const PATIENCE = 3

interface Effort {
  readonly rounds: number
  /** How often neighbours are tried in each round. */
  readonly exchanges: number
}

/** Above this many vertices only the most promising start is improved, and in fewer rounds: more costs more time than
 *  the few crossings it saves in a drawing that nobody sees as a whole. */
const LARGE = 2500
const LARGE_EFFORT: Effort = { rounds: 3, exchanges: 2 }

/** The first start is made for reading. Another order must save this share of its crossings to be better. */
const WORTH = 0.2

/** The best order found, set in `place`. Each start is improved by barycentre sweeps (Sugiyama 1981) and by exchange
 *  of neighbours (Gansner et al.: "A technique for drawing directed graphs", 1993). */
export function reduceCrossings(starts: readonly (() => Vertex[][] | undefined)[]): Vertex[][] {
  const orders: Order[] = []
  for (const start of starts) {
    const rows = start()
    if (rows) orders.push(counted(rows))
    if (orders.at(-1)?.count === 0) break
  }
  const [first] = orders
  if (!first) return []
  const byCount = orders.toSorted((a, b) => a.count - b.count)
  const large = first.rows.reduce((sum, row) => sum + row.length, 0) > LARGE
  let best = { rows: first.rows, count: first.count * (1 - WORTH) }
  for (const order of large ? byCount.slice(0, 1) : byCount) {
    if (best.count === 0) break
    const better = improve(order, large ? LARGE_EFFORT : EFFORT)
    if (better.count < best.count) best = better
  }
  best.rows.forEach(setPlaces)
  return best.rows
}

interface Order {
  readonly rows: Vertex[][]
  readonly count: number
}

function counted(rows: Vertex[][]): Order {
  rows.forEach(setPlaces)
  return { rows, count: crossings(rows) }
}

function improve(start: Order, { rounds, exchanges }: Effort): Order {
  const rows = start.rows.map((row) => row.slice())
  rows.forEach(setPlaces)
  let best = start
  let idle = 0
  for (let round = 1; round <= rounds && idle < PATIENCE && best.count > 0; round++) {
    sweep(rows, round % 2 === 1, round % 4 >= 2)
    exchange(rows, exchanges)
    const count = crossings(rows)
    idle = count < best.count ? 0 : idle + 1
    if (count < best.count) best = { rows: rows.map((row) => row.slice()), count }
  }
  return best
}

/** A start: depth first from the top row, lanes before nodes, so that what belongs together stands together. */
export function depthFirst(rows: readonly (readonly Vertex[])[]): Vertex[][] {
  const found: Vertex[][] = rows.map(() => [])
  const seen = new Set<Vertex>()
  for (const row of rows)
    for (const start of row) {
      if (start.above.length > 0) continue
      const stack = [start]
      for (let vertex = stack.pop(); vertex; vertex = stack.pop()) {
        if (seen.has(vertex)) continue
        seen.add(vertex)
        found[vertex.rank]?.push(vertex)
        const next = vertex.below.map((segment) => segment.bottom)
        stack.push(...next.sort((a, b) => Number(!!a.lane) - Number(!!b.lane) || b.index - a.index))
      }
    }
  return found
}

function setPlaces(row: readonly Vertex[]): void {
  row.forEach((vertex, place) => {
    vertex.place = place
  })
}

/** Sort each row by the mean place of the neighbours in the row before; vertices without any stay where they are.
 *  `flip` turns round those that tie. */
function sweep(rows: readonly Vertex[][], downwards: boolean, flip: boolean): void {
  const compare = (a: Vertex, b: Vertex) =>
    a.score - b.score || (flip ? b.place - a.place : a.place - b.place)
  const sortRow = (row: Vertex[]) => {
    for (const vertex of row) vertex.score = downwards ? meanAbove(vertex) : meanBelow(vertex)
    const movable = row.filter((vertex) => vertex.score >= 0)
    const places = movable.map((vertex) => vertex.place)
    movable.sort(compare)
    movable.forEach((vertex, i) => {
      row[places[i] as number] = vertex
    })
    setPlaces(row)
  }
  if (downwards) rows.forEach(sortRow)
  else rows.toReversed().forEach(sortRow)
}

/** -1 without neighbours. */
function meanAbove({ above }: Vertex): number {
  let sum = 0
  for (const { top } of above) sum += top.place
  return above.length > 0 ? sum / above.length : -1
}

function meanBelow({ below }: Vertex): number {
  let sum = 0
  for (const { bottom } of below) sum += bottom.place
  return below.length > 0 ? sum / below.length : -1
}

/** Exchange neighbours as long as that removes crossings. */
function exchange(rows: readonly Vertex[][], rounds: number): void {
  let improved = true
  for (let round = 0; improved && round < rounds; round++) {
    improved = false
    for (const row of rows) improved = exchangeIn(row) || improved
  }
}

function exchangeIn(row: Vertex[]): boolean {
  let improved = false
  let [left] = row
  for (let i = 1; i < row.length; i++) {
    const right = row[i] as Vertex
    if (left && inversionsAbove(left, right) + inversionsBelow(left, right) > 0) {
      row[i - 1] = right
      row[i] = left
      right.place = i - 1
      left.place = i
      improved = true
    } else left = right
  }
  return improved
}

function sign(difference: number): number {
  return difference > 0 ? 1 : difference < 0 ? -1 : 0
}

/** Crossings in the gap above two neighbours, less those after an exchange. */
function inversionsAbove({ above: left }: Vertex, { above: right }: Vertex): number {
  let sum = 0
  for (const a of left) for (const b of right) sum += sign(a.top.place - b.top.place)
  return sum
}

function inversionsBelow({ below: left }: Vertex, { below: right }: Vertex): number {
  let sum = 0
  for (const a of left) for (const b of right) sum += sign(a.bottom.place - b.bottom.place)
  return sum
}

/** Barth, Mutzel, Juenger: "Simple and efficient bilayer cross counting" (2004): walk the segments from left to
 *  right by their upper end and count, in a Fenwick tree, the earlier ones that end further to the right. */
export function crossings(rows: readonly (readonly Vertex[])[]): number {
  let sum = 0
  rows.forEach((row, rank) => {
    const below = rows[rank + 1]?.length ?? 0
    if (row.length > 1 && below > 1) sum += crossingsBelow(row, below)
  })
  return sum
}

function crossingsBelow(row: readonly Vertex[], size: number): number {
  const tree = new Int32Array(size + 1)
  let sum = 0
  let before = 0
  for (const { below } of row) {
    for (const { bottom } of below) {
      let notFurther = 0
      for (let i = bottom.place + 1; i > 0; i -= i & -i) notFurther += tree[i] as number
      sum += before - notFurther
    }
    // Only now, because segments of one vertex don't cross.
    for (const { bottom } of below)
      for (let i = bottom.place + 1; i <= size; i += i & -i) tree[i] = (tree[i] as number) + 1
    before += below.length
  }
  return sum
}
