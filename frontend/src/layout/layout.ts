/** A graph of sized nodes in, positions and polylines out. Pure, synchronous, no DOM; equal input gives equal output.
 *
 *  The main path is one straight vertical line, skips run in lanes beside it. In order: cycles.ts, ranks.ts,
 *  spine.ts, lanes.ts, fragments.ts, order.ts, columns.ts, place.ts, ports.ts, tracks.ts, route.ts for each
 *  connected part, then pack.ts. */
import { closingEdges } from './cycles.ts'
import { type Line, nodeVertex, type Vertex } from './model.ts'
import { pack } from './pack.ts'
import { drawPart, movePart } from './part.ts'
import {
  checkEnds,
  DEFAULTS,
  type Layout,
  type LayoutEdge,
  type LayoutNode,
  type LayoutOptions,
  type Point,
} from './types.ts'

export type { Layout, LayoutEdge, LayoutNode, LayoutOptions, Placed, Point, Route } from './types.ts'

/** How far a self loop stands out to the right of its node. */
const LOOP = 20

/** `nodes` in execution order. Each edge is drawn once; edges with equal ends lie on the same line. Throws an Error
 *  that names the id where an edge's end is not a node, or where two nodes have the same id. */
export function layout(
  nodes: readonly LayoutNode[],
  edges: readonly LayoutEdge[],
  options: Partial<LayoutOptions> = {},
): Layout {
  const chosen = { ...DEFAULTS, ...options }
  const vertices = verticesOf(nodes, edges)
  const lines = linesOf(edges, vertices)
  const groups = connectedParts([...vertices.values()])
  const lone = groups.filter((group) => group.length === 1).flat()
  const parts = groups.filter((group) => group.length > 1).map((group) => drawPart(group, chosen))
  const { width, height, corners } = pack(parts, lone, chosen)

  parts.forEach((part, i) => {
    movePart(part, corners[i] as Point)
  })
  return {
    nodes: nodes.map(({ id, width, height }) => {
      const { x, y, rank } = vertices.get(id) as Vertex
      return { id, x, y, width, height, rank }
    }),
    edges: edges.map(({ source, target, kind }) => {
      const line = lines.get(pairOf(vertices, source, target))
      return { source, target, kind, points: line ? line.points : loopAround(vertices.get(source) as Vertex) }
    }),
    width,
    height,
  }
}

function verticesOf(nodes: readonly LayoutNode[], edges: readonly LayoutEdge[]): Map<string, Vertex> {
  const loops = new Set(edges.filter(({ source, target }) => source === target).map(({ source }) => source))
  const vertices = new Map<string, Vertex>()
  for (const { id, kind, width, height } of nodes) {
    if (vertices.has(id)) throw new Error(`two nodes have the id ${JSON.stringify(id)}`)
    if (!(width >= 0 && height >= 0 && width + height < Number.POSITIVE_INFINITY))
      throw new Error(`node ${JSON.stringify(id)} has no size: ${width} x ${height}`)
    vertices.set(id, nodeVertex(vertices.size, kind, width, height, loops.has(id) ? LOOP : 0))
  }
  checkEnds(edges, vertices)
  return vertices
}

/** The line of each pair of different nodes that some edge joins; each is also entered in `out` and `into` of its
 *  nodes, cycles broken. */
function linesOf(edges: readonly LayoutEdge[], vertices: ReadonlyMap<string, Vertex>): Map<number, Line> {
  const lines = new Map<number, Line>()
  for (const { source, target, kind } of edges) {
    if (source === target) continue
    const pair = pairOf(vertices, source, target)
    const known = lines.get(pair)
    if (known && kind === 'gradient') known.kind = kind
    if (known) continue
    const [upper, lower] = [vertices.get(source) as Vertex, vertices.get(target) as Vertex]
    lines.set(pair, { upper, lower, reversed: false, kind, segments: [], points: [] })
  }
  breakCycles([...lines.values()], vertices.size)
  for (const line of lines.values()) {
    line.upper.out.push(line)
    line.lower.into.push(line)
  }
  for (const { out, into } of vertices.values()) {
    out.sort((a, b) => a.lower.index - b.lower.index)
    into.sort((a, b) => a.upper.index - b.upper.index)
  }
  return lines
}

function breakCycles(lines: readonly Line[], count: number): void {
  // Where all lines follow the order of execution, there is no cycle.
  if (lines.every(({ upper, lower }) => upper.index < lower.index)) return
  const closing = closingEdges(
    count,
    lines.map(({ upper, lower }) => [upper.index, lower.index]),
  )
  lines.forEach((line, i) => {
    if (!closing[i]) return
    line.reversed = true
    ;[line.upper, line.lower] = [line.lower, line.upper]
  })
}

/** One number for two nodes. */
function pairOf(vertices: ReadonlyMap<string, Vertex>, source: string, target: string): number {
  return (vertices.get(source)?.index ?? 0) * vertices.size + (vertices.get(target)?.index ?? 0)
}

/** In the order of their first nodes; the nodes of each in execution order. */
function connectedParts(vertices: readonly Vertex[]): Vertex[][] {
  const seen = new Set<Vertex>()
  const parts: Vertex[][] = []
  for (const start of vertices) {
    if (seen.has(start)) continue
    seen.add(start)
    const part = [start]
    const visit = (vertex: Vertex) => {
      if (seen.has(vertex)) return
      seen.add(vertex)
      part.push(vertex)
    }
    for (const { out, into } of part) {
      for (const line of out) visit(line.lower)
      for (const line of into) visit(line.upper)
    }
    parts.push(part.sort((a, b) => a.index - b.index))
  }
  return parts
}

function loopAround({ x, y, width, height }: Vertex): Point[] {
  const right = x + width / 2
  return [
    { x: right, y: y + height / 4 },
    { x: right + LOOP, y: y + height / 4 },
    { x: right + LOOP, y: y - height / 4 },
    { x: right, y: y - height / 4 },
  ]
}
