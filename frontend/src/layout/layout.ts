/** A graph of sized nodes in, positions and polylines out. Pure, synchronous, no DOM; equal input gives equal output.
 *
 *  The main path is one straight vertical line, skips run in lanes beside it. In order: cycles.ts, ranks.ts,
 *  spine.ts, lanes.ts, fragments.ts, order.ts, columns.ts, place.ts, ports.ts, tracks.ts, route.ts for each
 *  connected part, then pack.ts. */
import { closingEdges } from './cycles.ts'
import { type Line, nodeVertex, type Vertex } from './model.ts'
import { pack } from './pack.ts'
import { drawPart } from './part.ts'
import {
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

  const centres = new Map(lone.map((node) => [node, { x: node.x, y: node.y }]))
  const ways = new Map<Line, readonly Point[]>()
  parts.forEach((part, i) => {
    const corner = corners[i] as Point
    const moved = ({ x, y }: Point) => ({ x: x - part.left + corner.x, y: y + corner.y })
    for (const node of part.nodes) centres.set(node, moved(node))
    for (const line of part.lines) ways.set(line, line.points.map(moved))
  })
  return {
    nodes: nodes.map(({ id, width, height }) => {
      const vertex = vertices.get(id) as Vertex
      return { id, ...(centres.get(vertex) as Point), width, height, rank: vertex.rank }
    }),
    edges: edges.map(({ source, target, kind }) => {
      const line = lines.get(pairOf(vertices, source, target))
      const points = line ? ways.get(line) : loopAround(centres, vertices.get(source) as Vertex)
      return { source, target, kind, points: points as readonly Point[] }
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
  for (const { source, target } of edges)
    for (const id of [source, target])
      if (!vertices.has(id))
        throw new Error(
          `edge ${JSON.stringify(source)} -> ${JSON.stringify(target)}: no node ${JSON.stringify(id)}`,
        )
  return vertices
}

/** The line of each pair of different nodes that some edge joins; each is also entered in `out` and `into` of its
 *  nodes, cycles broken. */
function linesOf(edges: readonly LayoutEdge[], vertices: ReadonlyMap<string, Vertex>): Map<number, Line> {
  const kinds = new Map<number, LayoutEdge['kind']>()
  for (const { source, target, kind } of edges) {
    const pair = pairOf(vertices, source, target)
    if (source !== target && kinds.get(pair) !== 'gradient') kinds.set(pair, kind)
  }
  const nodes = [...vertices.values()]
  const pairs = [...kinds.keys()].map(
    (pair) => [Math.floor(pair / nodes.length), pair % nodes.length] as const,
  )
  const closing = closingEdges(nodes.length, pairs)
  const lines = new Map<number, Line>()
  for (const [i, [pair, kind]] of [...kinds].entries()) {
    const reversed = closing[i] === true
    const [source, target] = (pairs[i] ?? []).map((index) => nodes[index]) as [Vertex, Vertex]
    const [upper, lower] = reversed ? [target, source] : [source, target]
    const line: Line = { upper, lower, reversed, kind, segments: [], points: [] }
    upper.out.push(line)
    lower.into.push(line)
    lines.set(pair, line)
  }
  for (const { out, into } of nodes) {
    out.sort((a, b) => a.lower.index - b.lower.index)
    into.sort((a, b) => a.upper.index - b.upper.index)
  }
  return lines
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

function loopAround(centres: ReadonlyMap<Vertex, Point>, vertex: Vertex): Point[] {
  const { x, y } = centres.get(vertex) as Point
  const right = x + vertex.width / 2
  const quarter = vertex.height / 4
  return [
    { x: right, y: y + quarter },
    { x: right + LOOP, y: y + quarter },
    { x: right + LOOP, y: y - quarter },
    { x: right, y: y - quarter },
  ]
}
