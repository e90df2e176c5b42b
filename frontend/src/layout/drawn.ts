/** Small graphs, and what was drawn of them: for the tests of the layout. */
import type { SampleGraph } from './graphs.ts'
import { type Layout, type LayoutEdge, type LayoutNode, layout, type Placed, type Route } from './layout.ts'
import { gradient } from './letters.ts'
import { pieces } from './quality.ts'

export function draw({ nodes, edges }: SampleGraph): { drawn: Layout; at: (id: string) => Placed } {
  const drawn = layout(nodes, edges)
  return { drawn, at: (id) => find(drawn, id) }
}

export function find({ nodes }: Layout, id: string): Placed {
  const found = nodes.find((node) => node.id === id)
  if (!found) throw new Error(`no node ${id}`)
  return found
}

export function edge({ edges }: Layout, source: string, target: string): Route {
  const found = edges.find((edge) => edge.source === source && edge.target === target)
  if (!found) throw new Error(`no edge ${source} -> ${target}`)
  return found
}

/** The x of an edge's longest vertical piece. */
export function lane(route: Route): number {
  const byLength = pieces(route).toSorted(([a, b], [c, d]) => Math.abs(d.y - c.y) - Math.abs(b.y - a.y))
  return byLength[0]?.[0].x ?? Number.NaN
}

/** On which border of the node the edge's first (0) or last (-1) point lies. */
export function side({ points }: Route, end: 0 | -1, { x, y, width, height }: Placed): string {
  const point = points.at(end) as Route['points'][number]
  if (Math.abs(point.x - x) < width / 2)
    return point.y === y + height / 2 ? 'bottom' : point.y === y - height / 2 ? 'top' : 'inside'
  return point.x === x + width / 2 && Math.abs(point.y - y) < height / 2 ? 'right' : 'elsewhere'
}

export function node(id: string): LayoutNode {
  return { id, width: 80, height: 30, kind: 'node' }
}

export function input(id: string): LayoutNode {
  return { ...node(id), kind: 'input' }
}

export function output(id: string): LayoutNode {
  return { ...node(id), kind: 'output' }
}

export function data(source: string, target: string): LayoutEdge {
  return { source, target, kind: 'data' }
}

export function chainOf(...ids: string[]): LayoutEdge[] {
  return ids.slice(1).map((target, i) => gradient(ids[i] ?? '', target))
}
