import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type Graph, graphs } from './arbitraries.ts'
import { byDagre } from './dagre.ts'
import { chainOf, data, draw, edge, find, lane, node, side } from './drawn.ts'
import {
  basicBlock,
  chain,
  denseBlock,
  encoderDecoder,
  encoderLayer,
  gpt2Block,
  inception,
  modelGraphs,
  parallel,
  randomLayered,
  unet,
} from './graphs.ts'
import { type Layout, layout, type Placed, type Route } from './layout.ts'
import { gradient } from './letters.ts'
import { coverings, crossings, overlaps, pieces, trespasses } from './quality.ts'

/** For tests that take a second or more where nothing else runs. */
const SLOW = { timeout: 120_000 }

describe('every graph', () => {
  holds('no two nodes overlap', (drawn) => {
    expect(overlaps(drawn).map(([a, b]) => `${a.id}, ${b.id}`)).toEqual([])
  })

  holds('no edge touches a foreign node', (drawn) => {
    expect(trespasses(drawn).map(([edge, node]) => `${named(edge)} over ${node.id}`)).toEqual([])
  })

  holds('no two edges without a common end share a piece', (drawn) => {
    expect(coverings(drawn, 1).map(([a, b]) => `${named(a)}, ${named(b)}`)).toEqual([])
  })

  holds('each node keeps its id and size, each edge its ends and kind', (drawn, { nodes, edges }) => {
    expect(drawn.nodes.map(({ id, width, height }) => ({ id, width, height }))).toEqual(
      nodes.map(({ id, width, height }) => ({ id, width, height })),
    )
    expect(drawn.edges.map(({ source, target, kind }) => ({ source, target, kind }))).toEqual(edges)
  })

  holds('edges are orthogonal, without empty pieces', (drawn) => {
    for (const [a, b] of drawn.edges.flatMap(pieces))
      expect(Number(a.x !== b.x) + Number(a.y !== b.y)).toBe(1)
  })

  holds('edges run from border to border: down, or up where they close a cycle', (drawn, graph) => {
    const placed = new Map(drawn.nodes.map((node) => [node.id, node]))
    const reachable = closure(graph)
    for (const edge of drawn.edges) {
      const [source, target] = [placed.get(edge.source), placed.get(edge.target)] as [Placed, Placed]
      const closesCycle = reachable.get(edge.target)?.has(edge.source)
      if (source === target)
        expect([side(edge, 0, source), side(edge, -1, source)]).toEqual(['right', 'right'])
      else if (source.rank < target.rank)
        expect([side(edge, 0, source), side(edge, -1, target)]).toEqual(['bottom', 'top'])
      else {
        expect(closesCycle).toBe(true)
        expect([side(edge, 0, source), side(edge, -1, target)]).toEqual(['top', 'bottom'])
      }
    }
  })

  holds('edges end with at least 8 px of straight line for the arrow head', (drawn) => {
    for (const edge of drawn.edges) {
      const last = pieces(edge).at(-1) as ReturnType<typeof pieces>[number]
      if (edge.source !== edge.target) expect(Math.abs(last[0].y - last[1].y)).toBeGreaterThanOrEqual(8)
    }
  })

  holds('all lies on the sheet', ({ nodes, edges, width, height }) => {
    const corners = nodes.flatMap((node) => [
      { x: node.x - node.width / 2, y: node.y - node.height / 2 },
      { x: node.x + node.width / 2, y: node.y + node.height / 2 },
    ])
    const points = [...corners, ...edges.flatMap((edge) => edge.points)]
    const [xs, ys] = [points.map(({ x }) => x), points.map(({ y }) => y)]
    expect(Math.min(...xs, ...ys)).toBeGreaterThanOrEqual(0)
    expect(Math.max(...xs)).toBeLessThanOrEqual(width)
    expect(Math.max(...ys)).toBeLessThanOrEqual(height)
  })

  it('is drawn the same twice', SLOW, () => {
    fc.assert(
      fc.property(graphs, ({ nodes, edges }) => {
        const again = layout(structuredClone(nodes), structuredClone(edges))

        expect(again).toEqual(layout(nodes, edges))
      }),
      { numRuns: 100 },
    )
  })
})

describe('crossings', () => {
  it('are fewer than those of dagre on the model graphs', SLOW, () => {
    let [ours, theirs] = [0, 0]
    for (const { nodes, edges } of modelGraphs()) {
      ours += crossings(layout(nodes, edges).edges)
      theirs += crossings(byDagre({ nodes, edges }))
    }

    expect(ours).toBeLessThan(theirs / 2)
  })

  it('are fewer than those of dagre on random graphs', SLOW, () => {
    for (const seed of [1, 2, 3]) {
      const graph = randomLayered(150, seed)

      expect(crossings(layout(graph.nodes, graph.edges).edges)).toBeLessThan(crossings(byDagre(graph)))
    }
  })

  it.each([basicBlock(false), encoderLayer(), gpt2Block(), unet(), inception(), encoderDecoder(), chain(48)])(
    'do not occur in $name',
    ({ nodes, edges }) => {
      expect(crossings(layout(nodes, edges).edges)).toBe(0)
    },
  )
})

describe('odd graphs', () => {
  it('without nodes give an empty sheet', () => {
    expect(layout([], [])).toEqual({ nodes: [], edges: [], width: 32, height: 32 })
  })

  it('draw a cycle against execution order from below, in its own lane', () => {
    const drawn = layout(['a', 'b', 'c'].map(node), [...chainOf('a', 'b', 'c'), gradient('c', 'a')])
    const back = edge(drawn, 'c', 'a')

    expect(['a', 'b', 'c'].map((id) => find(drawn, id).rank)).toEqual([0, 1, 2])
    expect(new Set(drawn.nodes.map(({ x }) => x)).size).toBe(1)
    expect(lane(back)).toBeGreaterThan(find(drawn, 'b').x + find(drawn, 'b').width / 2)
    expect(back.points.at(-1)?.y).toBe(find(drawn, 'a').y + find(drawn, 'a').height / 2)
  })

  it('draw equal edges on the same line', () => {
    const edges = [gradient('a', 'b'), data('a', 'b'), gradient('a', 'b')]
    const [first, ...others] = layout(['a', 'b'].map(node), edges).edges

    expect(others.map(({ points }) => points)).toEqual([first?.points, first?.points])
  })

  it.each(['__proto__', 'constructor', '', ' '])('may have the id %j', (id) => {
    const drawn = layout([node(id), node('b')], [gradient(id, 'b')])

    expect(find(drawn, id).rank).toBe(0)
    expect(find(drawn, 'b').rank).toBe(1)
  })

  it('C84: as deep as 5,000 modules do not overflow the stack', SLOW, () => {
    const { nodes, edges } = chain(5000)

    expect(layout(nodes, edges).nodes.at(-1)?.rank).toBe(5002)
    expect(layout(nodes.toReversed(), edges).nodes[0]?.rank).toBe(5002)
  })

  it.each([
    ['500 parallel branches', parallel(500)],
    ['thousands of edges between 100 layers', denseBlock(100)],
  ])('C84: with %s have every node and edge in a place of its own', SLOW, (_, graph) => {
    const { drawn } = draw(graph)

    expect(drawn.nodes.length).toBe(graph.nodes.length)
    expect(drawn.edges.length).toBe(graph.edges.length)
    expect(overlaps(drawn)).toEqual([])
    expect(trespasses(drawn)).toEqual([])
  })

  it('with an edge to nowhere are refused by name', () => {
    expect(() => layout([node('a')], [gradient('a', 'gone')])).toThrow('edge "a" -> "gone": no node "gone"')
    expect(() => layout([node('a')], [gradient('gone', 'a')])).toThrow('no node "gone"')
  })

  it('with two nodes of one id are refused by name', () => {
    expect(() => layout([node('twin'), node('twin')], [])).toThrow('two nodes have the id "twin"')
  })

  it.each([Number.NaN, -1, Number.POSITIVE_INFINITY])('with a node %d wide are refused by name', (width) => {
    expect(() => layout([{ ...node('thin'), width }], [])).toThrow('node "thin" has no size')
  })
})

function holds(claim: string, check: (drawn: Layout, graph: Graph) => void): void {
  it(claim, SLOW, () => {
    fc.assert(
      fc.property(graphs, (graph) => check(layout(graph.nodes, graph.edges), graph)),
      { numRuns: 200 },
    )
    for (const graph of modelGraphs()) check(layout(graph.nodes, graph.edges), graph)
  })
}

function named({ source, target }: Route): string {
  return `${source} -> ${target}`
}

/** For each node the nodes that it leads to. */
function closure({ nodes, edges }: Graph): Map<string, Set<string>> {
  return new Map(
    nodes.map(({ id }) => {
      const reached = new Set<string>()
      const found = [id]
      for (const from of found)
        for (const { source, target } of edges)
          if (source === from && !reached.has(target)) {
            reached.add(target)
            found.push(target)
          }
      return [id, reached]
    }),
  )
}
