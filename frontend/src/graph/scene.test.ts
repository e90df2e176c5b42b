import { describe, expect, it } from 'vitest'
import { levelNode, port } from '../api/fixture.ts'
import { type Edge, type Level, VERSION } from '../schema.ts'
import { detailsOf } from './details.ts'
import { familyOf } from './family.ts'
import { badgesOf, sceneOf } from './scene.ts'

const measure = (text: string, size: number): number => text.length * size * 0.55

function level(overrides: Partial<Level> = {}): Level {
  return {
    model: 'm',
    node: levelNode({ id: '.', index: 0, inputs: [port('x', [8, 3])], outputs: [port('out', [8, 10])] }),
    ancestors: [],
    nodes: [
      levelNode({ id: 'a', index: 1 }),
      levelNode({ id: 'b', index: 2, outputs: [port('y'), port('z')] }),
    ],
    edges: [],
    steps: 10,
    bins: 30,
    version: VERSION,
    ...overrides,
  }
}

function edge(source: Edge['source'], target: Edge['target'], kind: Edge['kind'] = 'gradient'): Edge {
  return { level: 0, source, target, kind, implicit: false }
}

describe('placeholders', () => {
  it('are numbered only when there are several', () => {
    const two = levelNode({ inputs: [port('x'), port('mask')], outputs: [port('out')] })
    const titles = sceneOf(level({ node: two }), measure).boxes.map(({ kind, title, subtitle }) =>
      kind === 'node' ? title : `${title} ${subtitle}`.trim(),
    )
    expect(titles).toEqual(['Input 0 x', 'Input 1 mask', 'a', 'b', 'Output'])
  })

  it('exist for what comes from outside only if something does', () => {
    const edges = [edge(['outside', 0], ['node', 1])]
    expect(sceneOf(level({ edges }), measure).boxes.map((box) => box.title)).toContain('Outside')
    expect(sceneOf(level(), measure).boxes.map((box) => box.title)).not.toContain('Outside')
  })

  it('are not confused with modules of that name', () => {
    const nodes = [levelNode({ index: 0, id: 'Output 0', class_name: 'Output' })]
    const scene = sceneOf(level({ nodes }), measure)
    expect(new Set(scene.boxes.map((box) => box.key)).size).toBe(scene.boxes.length)
  })
})

describe('wires', () => {
  it('carry the shape that flows, where it can be told', () => {
    const edges = [
      edge(['input', 0], ['node', 1]),
      edge(['node', 1], ['node', 2], 'data'),
      edge(['node', 2], ['output', 0]),
    ]
    expect(sceneOf(level({ edges }), measure).wires.map(({ kind, shape }) => [kind, shape])).toEqual([
      ['gradient', '8×3'],
      ['data', '8×4'],
      ['gradient', '8×10'],
    ])
  })

  it('to a node of another level are left out', () => {
    expect(sceneOf(level({ edges: [edge(['node', 1], ['node', 77])] }), measure).wires).toEqual([])
  })
})

describe('badges', () => {
  const texts = (overrides: Parameters<typeof levelNode>[0]): string[] =>
    badgesOf(levelNode(overrides), 10).map((badge) => badge.text)

  it('are absent on an ordinary module', () => {
    expect(texts({})).toEqual([])
  })

  it('tell repeated calls apart, counting from 1', () => {
    expect(texts({ call: 1, calls: 3 })).toEqual(['#2'])
  })

  it('tell what is unusual', () => {
    const parameters = [
      { name: 'weight', shape: [4], dtype: 'float32', requires_grad: true, shared: 'encoder.weight' },
    ]
    expect(texts({ parameters, flags: ['unregistered'], notes: ['fused'], ran: 3 })).toEqual([
      'shared',
      'unregistered',
      'fused',
      'ran 3 of 10',
    ])
  })
})

it('a box has room for its badges, beside the arrow of one that opens', () => {
  const widthWith = (children: number): number => {
    const nodes = [levelNode({ name: 'a', class_name: 'b', children, notes: ['attached: weights'] })]
    return sceneOf(level({ nodes }), measure).boxes.find(({ kind }) => kind === 'node')?.width ?? 0
  }
  const badge = measure('attached: weights', 10.5) + 12
  // Padding and border on both sides, see .node-main and .opens in graph.css.
  expect(widthWith(0)).toBeGreaterThanOrEqual(badge + 14 + 12 + 2)
  expect(widthWith(1)).toBeGreaterThanOrEqual(badge + 14 + 24 + 2)
})

it('of a name that is too wide both ends are shown', () => {
  const name = 'cross_attention_residual_layer_norm'
  const titles = [0, 1].map((children) => {
    const nodes = [levelNode({ name, class_name: 'B'.repeat(33), children })]
    const found = sceneOf(level({ nodes }), measure).boxes.find(({ kind }) => kind === 'node')
    const room = (found?.width ?? 0) - 28 - 18 * children
    expect(measure(found?.title ?? '', 13)).toBeLessThanOrEqual(room)
    expect(measure(found?.subtitle ?? '', 12)).toBeLessThanOrEqual(room)
    return found?.title
  })
  expect(titles).toEqual(['cross_attentio…al_layer_norm', 'cross_attenti…l_layer_norm'])
})

it('hostile names stay short text in a box of bounded size', () => {
  const nodes = [levelNode({ name: `<img src=x>${'y'.repeat(10_000)}\u202e`, class_name: 'z'.repeat(9000) })]
  const box = sceneOf(level({ nodes }), measure).boxes.find(({ kind }) => kind === 'node')
  expect(box?.title).toMatch(/^<img src=x>y+…y*\\u202e$/)
  expect(box?.width).toBeLessThanOrEqual(232)
})

it('the details are shapes, arguments, then extra_repr with its dashes', () => {
  const node = levelNode({
    inputs: [port('input', [null, 64, 56, 56])],
    outputs: [{ ...port('output', [8]), dtype: 'int64', requires_grad: false }],
    arguments: [['dim', '1']],
    extra: [
      ['', '64'],
      ['kernel_size', '(3, 3)'],
    ],
    size: 36_864,
  })
  const box = sceneOf(level({ nodes: [node] }), measure).boxes.find(({ kind }) => kind === 'node')

  expect(box && detailsOf(box)).toEqual([
    { title: 'Inputs', rows: [{ name: 'input', value: '?×64×56×56' }] },
    { title: 'Outputs', rows: [{ name: 'output', value: '8 int64 (no gradient)' }] },
    { title: 'Arguments', rows: [{ name: 'dim', value: '1' }] },
    {
      title: 'Module',
      rows: [
        { name: '', value: '64' },
        { name: 'kernel_size', value: '(3, 3)' },
        { name: 'parameters', value: '36.9k' },
      ],
    },
  ])
})

it('the only output, which has no name, gets no dash', () => {
  const nodes = [levelNode({ inputs: [], outputs: [port('', [8])] })]
  const box = sceneOf(level({ nodes }), measure).boxes.find(({ kind }) => kind === 'node')
  expect(box && detailsOf(box)[0]?.rows).toEqual([{ name: 'output', value: '8' }])
})

it.each([
  ['Conv2d', 0, 'convolution'],
  ['ConvertImage', 0, 'other'],
  ['BatchNorm2d', 0, 'norm'],
  ['GPT2Attention', 4, 'attention'],
  ['NewGELUActivation', 0, 'activation'],
  ['Sequential', 2, 'group'],
  ['NonDynamicallyQuantizableLinear', 0, 'linear'],
])('%s with %d calls inside is of the family %s', (className, children, family) => {
  expect(familyOf(className, children)).toBe(family)
})
