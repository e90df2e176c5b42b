/** Where things lie: what reads as drawn by hand. */
import { describe, expect, it } from 'vitest'
import { chainOf, data, draw, edge, find, input, lane, node, output } from './drawn.ts'
import {
  basicBlock,
  denseBlock,
  encoderDecoder,
  encoderLayer,
  gpt2Block,
  inception,
  mixtureOfExperts,
  parallel,
  randomLayered,
  residualChain,
  unet,
  unusedModules,
  vqvae,
} from './graphs.ts'
import { layout } from './layout.ts'
import { gradient } from './letters.ts'
import { crossings } from './quality.ts'

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
    const edges = [...chainOf('a', 'b', 'c', 'd'), gradient('a', 'c'), data('a', 'd')]
    const drawn = layout(nodes, edges)

    expect(lane(edge(drawn, 'a', 'c'))).not.toBe(lane(edge(drawn, 'a', 'd')))
  })
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
    edges: [...chainOf('x', 'a', 'b', 'c', 'd', 'e', 'f', 'y'), data('mask', 'e'), gradient('a', 'early')],
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
