import dagre from '@dagrejs/dagre'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type Graph, graphs } from './arbitraries.ts'
import {
  basicBlock,
  chain,
  denseBlock,
  encoderDecoder,
  encoderLayer,
  gpt2Block,
  inception,
  mixtureOfExperts,
  modelGraphs,
  parallel,
  randomLayered,
  residualChain,
  type SampleGraph,
  unet,
  unusedModules,
  vqvae,
} from './graphs.ts'
import { type Layout, type LayoutEdge, type LayoutNode, layout, type Placed, type Route } from './layout.ts'
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

describe('main path', () => {
  it('of a residual chain is one vertical line, and skips run outside of it', () => {
    const { drawn, at } = draw(residualChain(12))
    const middle = at('input').x
    const right = Math.max(...drawn.nodes.map((node) => node.x + node.width / 2))

    expect(new Set(drawn.nodes.map((node) => node.x))).toEqual(new Set([middle]))
    const skips = drawn.edges.filter((edge) => edge.points.length > 2)
    expect(skips).toHaveLength(24)
    for (const skip of skips) expect(lane(skip)).toBe(right + 14)
  })

  it.each([
    [
      'basic block',
      basicBlock(true),
      ['input', 'conv1', 'bn1', 'relu', 'conv2', 'bn2', 'add', 'relu#2', 'output'],
    ],
    [
      'encoder layer',
      encoderLayer(),
      ['src', 'self_attn', 'add', 'norm1', 'linear1', 'dropout2', 'add#2', 'output'],
    ],
    [
      'GPT-2 block',
      gpt2Block(),
      ['hidden_states', 'split', 'k_heads', 'matmul', 'softmax', 'add', 'ln_2', 'output'],
    ],
    [
      'encoder-decoder',
      encoderDecoder(),
      ['src', 'encoder.0', 'encoder.norm', 'decoder.0', 'decoder.5', 'output'],
    ],
    [
      'DenseNet block',
      denseBlock(12),
      ['init_features', 'denselayer1', 'denselayer7', 'denselayer12', 'output'],
    ],
    ['Inception', inception(), ['input', 'branch3x3dbl_1', 'branch3x3dbl_3', 'cat', 'output']],
  ])('of %s is straight', (_, graph, ids) => {
    const { at } = draw(graph)

    expect(ids.map((id) => at(id).x)).toEqual(ids.map(() => at(ids[0] ?? '').x))
  })

  it('follows gradients rather than data', () => {
    const { at } = draw(vqvae())
    const { nodes, edges } = vqvae()
    const allGradient = layout(
      nodes,
      edges.map((edge) => ({ ...edge, kind: 'gradient' })),
    )

    expect(at('straight_through').x).toBe(at('pre_vq_conv').x)
    expect(at('vq').x).not.toBe(at('pre_vq_conv').x)
    expect(find(allGradient, 'vq').x).toBe(find(allGradient, 'pre_vq_conv').x)
  })

  it('takes an edge that is both for a gradient', () => {
    const edges = [data('a', 'b'), gradient('a', 'b'), gradient('b', 'c'), gradient('a', 'd'), data('d', 'c')]
    const drawn = layout(['a', 'd', 'b', 'c'].map(node), edges)

    expect(['a', 'b', 'c'].map((id) => find(drawn, id).x)).toEqual(Array(3).fill(find(drawn, 'a').x))
    expect(find(drawn, 'd').x).not.toBe(find(drawn, 'a').x)
  })

  it('of Inception stands between its branches, which keep their order', () => {
    const { drawn, at } = draw(inception())
    const branches = ['branch1x1', 'branch5x5_1', 'branch3x3dbl_1', 'avg_pool2d'].map((id) => at(id).x)

    expect(branches).toEqual(branches.toSorted((a, b) => a - b))
    expect(Math.abs(at('input').x / drawn.width - 0.5)).toBeLessThan(0.15)
  })

  it('of a mixture runs through the middle expert, the others beside it in order', () => {
    const { drawn, at } = draw(mixtureOfExperts(32))
    const experts = Array.from({ length: 32 }, (_, i) => at(`experts.${i}`).x)

    expect(experts).toEqual(experts.toSorted((a, b) => a - b))
    expect(at('experts.15').x).toBe(at('output').x)
    expect(Math.abs(at('output').x / drawn.width - 0.5)).toBeLessThan(0.05)
  })
})

describe('lanes', () => {
  it('of a U-Net nest: the longer the skip, the further out, all on one side', () => {
    const { drawn } = draw(unet(6))
    const outwards = [4, 3, 2, 1, 0].map((i) => lane(edge(drawn, `enc${i}`, `cat${i}`)))
    const right = Math.max(...drawn.nodes.map((node) => node.x + node.width / 2))

    expect(outwards).toEqual([...new Set(outwards)].toSorted((a, b) => a - b))
    expect(outwards[0]).toBeGreaterThan(right)
    expect(crossings(drawn.edges)).toBe(0)
  })

  it('of a DenseNet block spread to both sides', () => {
    const { drawn, at } = draw(denseBlock(12))
    const lanes = new Set(drawn.edges.filter((edge) => edge.points.length > 2).map(lane))
    const left = [...lanes].filter((x) => x < at('output').x).length

    expect(lanes.size).toBe(12)
    expect(left).toBe(6)
  })

  it('are shared by edges to different rows', () => {
    const { drawn } = draw(encoderDecoder())
    const memory = [1, 2, 3, 4, 5].map((i) => lane(edge(drawn, 'encoder.norm', `decoder.${i}`)))

    expect(new Set(memory).size).toBe(1)
  })

  it('are not shared by edges to the same row', () => {
    const { drawn } = draw(mixtureOfExperts(8))
    const lanes = [0, 1, 2, 3, 4, 5, 6, 7].map((i) => lane(edge(drawn, 'hidden', `experts.${i}`)))

    expect(new Set(lanes).size).toBe(8)
  })

  it('are not shared by gradient and data', () => {
    const nodes = ['a', 'b', 'c', 'd'].map(node)
    const edges = [...chained('a', 'b', 'c', 'd'), gradient('a', 'c'), data('a', 'd')]
    const drawn = layout(nodes, edges)

    expect(lane(edge(drawn, 'a', 'c'))).not.toBe(lane(edge(drawn, 'a', 'd')))
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

describe('ports', () => {
  it('of lines that meet at a node lie apart', () => {
    for (const { nodes, edges } of [denseBlock(12), gpt2Block(), inception()]) {
      const ends = new Map<string, number[]>()
      for (const { target, points } of layout(nodes, edges).edges)
        ends.set(target, [...(ends.get(target) ?? []), points.at(-1)?.x ?? 0])
      for (const xs of ends.values()) {
        const apart = [...new Set(xs)].toSorted((a, b) => a - b)
        apart.forEach((x, i) => {
          if (i > 0) expect(x - (apart[i - 1] ?? 0)).toBeGreaterThanOrEqual(7)
        })
      }
    }
  })

  it('merge from each side where a node is too narrow for all', () => {
    const { nodes, edges } = parallel(41)
    const entering = layout(nodes, edges).edges.filter(({ target }) => target === 'cat')
    const heights = entering.filter(({ points }) => points.length > 2).map(({ points }) => points[1]?.y)

    expect(new Set(entering.map(({ points }) => points.at(-1)?.x)).size).toBe(3)
    expect(heights).toHaveLength(40)
    expect(new Set(heights).size).toBe(1)
  })
})

describe('parts', () => {
  it('stand side by side in execution order, lone nodes in a grid below', () => {
    const { drawn, at } = draw(vqvae())
    const main = drawn.nodes.filter(
      ({ id }) => !/discriminator|disc_head|logits|real_or_fake|ema|unused/.test(id),
    )
    const lowest = Math.max(...drawn.nodes.filter(({ id }) => !/ema|unused/.test(id)).map(({ y }) => y))

    expect(at('discriminator').x - at('discriminator').width / 2).toBeGreaterThan(
      Math.max(...main.map((node) => node.x + node.width / 2)),
    )
    expect(at('real_or_fake').y).toBe(at('x').y)
    expect(at('ema_cluster_size').y).toBeGreaterThan(lowest)
    expect(at('unused_proj').y).toBe(at('ema_cluster_size').y)
  })

  it('of 500 lone nodes form a grid, not a row', () => {
    const { drawn } = draw(unusedModules(500))

    expect(drawn.width).toBeLessThan(3000)
    expect(drawn.height).toBeLessThan(3000)
  })

  it('stand in columns where they get wider than a screen', () => {
    const nodes = Array.from({ length: 200 }, (_, i) => node(`${i}`))
    const edges = Array.from({ length: 100 }, (_, i) => gradient(`${2 * i}`, `${2 * i + 1}`))

    expect(layout(nodes, edges).width).toBeLessThan(2600)
  })

  it('of random layered graphs do not drift sideways', () => {
    const { drawn } = draw(randomLayered(600))
    const last = Math.max(...drawn.nodes.map(({ rank }) => rank))
    const rows = Array.from({ length: last + 1 }, (_, rank) =>
      drawn.nodes.filter((node) => node.rank === rank),
    )
    const means = rows.map((row) => row.reduce((sum, { x }) => sum + x, 0) / row.length / drawn.width)
    const half = means.length / 2
    const mean = (values: number[]) => values.reduce((sum, value) => sum + value, 0) / values.length

    expect(Math.abs(mean(means.slice(0, half)) - mean(means.slice(half)))).toBeLessThan(0.2)
  })
})

describe('placeholders', () => {
  const graph = {
    nodes: [
      input('x'),
      input('mask'),
      ...['a', 'b', 'c', 'd', 'e', 'f'].map(node),
      output('early'),
      output('y'),
    ],
    edges: [...chained('x', 'a', 'b', 'c', 'd', 'e', 'f', 'y'), data('mask', 'e'), gradient('a', 'early')],
  }
  const ranks = (placeholderReach: number) => {
    const drawn = layout(graph.nodes, graph.edges, { placeholderReach })
    return ['x', 'mask', 'early', 'y'].map((id) => find(drawn, id).rank)
  }

  it('far from the ends stay beside their module', () => {
    expect(ranks(3)).toEqual([0, 4, 2, 7])
  })

  it('within reach go to the ends', () => {
    expect(ranks(Number.POSITIVE_INFINITY)).toEqual([0, 0, 7, 7])
  })
})

describe('odd graphs', () => {
  it('without nodes give an empty sheet', () => {
    expect(layout([], [])).toEqual({ nodes: [], edges: [], width: 32, height: 32 })
  })

  it('draw a cycle against execution order from below, in its own lane', () => {
    const drawn = layout(['a', 'b', 'c'].map(node), [...chained('a', 'b', 'c'), gradient('c', 'a')])
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

function draw({ nodes, edges }: SampleGraph): { drawn: Layout; at: (id: string) => Placed } {
  const drawn = layout(nodes, edges)
  return { drawn, at: (id) => find(drawn, id) }
}

function find({ nodes }: Layout, id: string): Placed {
  const found = nodes.find((node) => node.id === id)
  if (!found) throw new Error(`no node ${id}`)
  return found
}

function edge({ edges }: Layout, source: string, target: string): Route {
  const found = edges.find((edge) => edge.source === source && edge.target === target)
  if (!found) throw new Error(`no edge ${source} -> ${target}`)
  return found
}

/** The x of an edge's longest vertical piece. */
function lane(route: Route): number {
  const byLength = pieces(route).toSorted(([a, b], [c, d]) => Math.abs(d.y - c.y) - Math.abs(b.y - a.y))
  return byLength[0]?.[0].x ?? Number.NaN
}

/** On which border of the node the edge's first (0) or last (-1) point lies. */
function side({ points }: Route, end: 0 | -1, { x, y, width, height }: Placed): string {
  const point = points.at(end) as Route['points'][number]
  if (Math.abs(point.x - x) < width / 2)
    return point.y === y + height / 2 ? 'bottom' : point.y === y - height / 2 ? 'top' : 'inside'
  return point.x === x + width / 2 && Math.abs(point.y - y) < height / 2 ? 'right' : 'elsewhere'
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

function byDagre({ nodes, edges }: Graph) {
  const graph = new dagre.graphlib.Graph({ multigraph: true })
  graph.setGraph({})
  for (const { id, width, height } of nodes) graph.setNode(id, { width, height })
  edges.forEach(({ source, target }, i) => {
    graph.setEdge(source, target, {}, `${i}`)
  })
  dagre.layout(graph)
  return graph
    .edges()
    .map((edge) => ({ source: edge.v, target: edge.w, points: graph.edge(edge).points ?? [] }))
}

function node(id: string): LayoutNode {
  return { id, width: 80, height: 30, kind: 'node' }
}

function input(id: string): LayoutNode {
  return { ...node(id), kind: 'input' }
}

function output(id: string): LayoutNode {
  return { ...node(id), kind: 'output' }
}

function gradient(source: string, target: string): LayoutEdge {
  return { source, target, kind: 'gradient' }
}

function data(source: string, target: string): LayoutEdge {
  return { source, target, kind: 'data' }
}

function chained(...ids: string[]): LayoutEdge[] {
  return ids.slice(1).map((target, i) => gradient(ids[i] ?? '', target))
}
