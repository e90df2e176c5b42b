/** A layout in, what is wrong with it out: for tests and bench, not part of the tab. */
import type { Layout, Placed, Point, Route } from './types.ts'

/** Pairs of nodes that lie over each other. */
export function overlaps({ nodes }: Layout): [Placed, Placed][] {
  const found: [Placed, Placed][] = []
  const byTop = nodes.toSorted((a, b) => top(a) - top(b))
  byTop.forEach((a, i) => {
    for (const b of byTop.slice(i + 1)) {
      if (top(b) >= top(a) + a.height) break
      if (Math.abs(a.x - b.x) < (a.width + b.width) / 2) found.push([a, b])
    }
  })
  return found
}

/** Edges with the nodes, other than their own ends, that they touch. */
export function trespasses({ nodes, edges }: Layout): [Route, Placed][] {
  const found: [Route, Placed][] = []
  const byTop = nodes.toSorted((a, b) => top(a) - top(b))
  const tallest = Math.max(0, ...nodes.map((node) => node.height))
  for (const edge of edges)
    for (const [a, b] of pieces(edge)) {
      const [low, high] = [Math.min(a.y, b.y), Math.max(a.y, b.y)]
      for (let i = firstAtLeast(byTop, low - tallest); i < byTop.length; i++) {
        const node = byTop[i] as Placed
        if (top(node) > high) break
        if (node.id === edge.source || node.id === edge.target) continue
        const beside =
          Math.max(a.x, b.x) < node.x - node.width / 2 || Math.min(a.x, b.x) > node.x + node.width / 2
        if (!beside && top(node) + node.height >= low) found.push([edge, node])
      }
    }
  return found
}

/** Pairs of edges without a common end that run along each other, less than `distance` apart, for more than that. */
export function coverings({ edges }: Layout, distance: number): [Route, Route][] {
  const found: [Route, Route][] = []
  for (const vertical of [true, false]) {
    const lines = edges
      .flatMap((edge) => pieces(edge).map(([a, b]) => ({ edge, a, b })))
      .filter(({ a, b }) => (a.x === b.x) === vertical)
      .map(({ edge, a, b }) => {
        const [at, from, to] = vertical ? [a.x, a.y, b.y] : [a.y, a.x, b.x]
        return { edge, at, low: Math.min(from, to), high: Math.max(from, to) }
      })
      .sort((a, b) => a.at - b.at)
    lines.forEach((one, i) => {
      for (let j = i + 1; j < lines.length; j++) {
        const other = lines[j] as typeof one
        if (other.at - one.at >= distance) break
        const common = Math.min(one.high, other.high) - Math.max(one.low, other.low)
        if (common > distance && !related(one.edge, other.edge)) found.push([one.edge, other.edge])
      }
    })
  }
  return found
}

/** Points at which edges without a common end cross. A line drawn for several edges counts once. Takes any
 *  polylines, so that other layouts can be compared. */
export function crossings(edges: readonly Pick<Route, 'source' | 'target' | 'points'>[]): number {
  const all = edges.flatMap((edge) => pieces(edge).map(([a, b]) => ({ edge, a, b })))
  for (const piece of all) if (piece.a.y > piece.b.y) [piece.a, piece.b] = [piece.b, piece.a]
  all.sort((p, q) => p.a.y - q.a.y)
  const points = new Set<string>()
  all.forEach((p, i) => {
    for (let j = i + 1; j < all.length; j++) {
      const q = all[j] as (typeof all)[number]
      if (q.a.y > p.b.y) break
      if (related(p.edge, q.edge)) continue
      const point = crossing(p.a, p.b, q.a, q.b)
      if (point) points.add(`${point.x.toFixed(1)} ${point.y.toFixed(1)}`)
    }
  })
  return points.size
}

export function pieces({ points }: Pick<Route, 'points'>): [Point, Point][] {
  return points.slice(1).map((point, i) => [points[i] as Point, point])
}

/** Inner crossing point of two straight pieces. */
function crossing(a: Point, b: Point, c: Point, d: Point): Point | undefined {
  const cross = (b.x - a.x) * (d.y - c.y) - (b.y - a.y) * (d.x - c.x)
  if (cross === 0) return undefined
  const t = ((c.x - a.x) * (d.y - c.y) - (c.y - a.y) * (d.x - c.x)) / cross
  const u = ((c.x - a.x) * (b.y - a.y) - (c.y - a.y) * (b.x - a.x)) / cross
  if (t <= 0 || t >= 1 || u <= 0 || u >= 1) return undefined
  return { x: a.x + t * (b.x - a.x), y: a.y + t * (b.y - a.y) }
}

function related(a: Pick<Route, 'source' | 'target'>, b: Pick<Route, 'source' | 'target'>): boolean {
  return a.source === b.source || a.target === b.target
}

function top(node: Placed): number {
  return node.y - node.height / 2
}

function firstAtLeast(byTop: readonly Placed[], y: number): number {
  let [low, high] = [0, byTop.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if (top(byTop[middle] as Placed) < y) low = middle + 1
    else high = middle
  }
  return low
}
