import { describe, expect, it } from 'vitest'
import { levelNode, port } from '../api/fixture.ts'
import { type Edge, type Level, type LevelNode, VERSION } from '../schema.ts'
import { detailsOf } from './details.ts'
import { pictureOf } from './picture.ts'
import { type Scene, sceneOf } from './scene.ts'
import { foldScene } from './stacks.ts'

const measure = (text: string, size: number): number => text.length * size * 0.55

type Change = (index: number) => Partial<LevelNode>

/** Input -> first node -> ... -> last node -> Output, of the module `path`. */
function chain(length: number, change: Change = () => ({}), path = ''): Level {
  const nodes = Array.from({ length }, (_, index) =>
    levelNode({
      index,
      id: `layers.${index}`,
      name: `${index}`,
      path: `layers.${index}`,
      class_name: 'DecoderLayer',
      children: 3,
      ...change(index),
    }),
  )
  const ends: Edge['source'][] = [
    ['input', 0],
    ...nodes.map(({ index }): Edge['source'] => ['node', index]),
    ['output', 0],
  ]
  const edges = ends.slice(1).map((target, position): Edge => {
    return { level: 0, source: ends[position] as Edge['source'], target, kind: 'gradient', implicit: false }
  })
  const node = levelNode({ id: '.', path, inputs: [port('x')], outputs: [port('y')] })
  return { model: 'm', node, ancestors: [], nodes, edges, steps: 10, bins: 30, version: VERSION }
}

function folded(
  level: Level,
  chosen: Readonly<Record<string, boolean>> = {},
  shown: readonly string[] = [],
): Scene {
  const choices = new Map(Object.entries(chosen))
  return foldScene(sceneOf(level, measure), level, choices, new Set(shown), measure)
}

const titles = ({ boxes }: Scene): string[] =>
  boxes.map(({ title, subtitle }) => `${title} ${subtitle}`.trim())

/** `names` one after another at the root. */
const named = (names: readonly string[], change: Change = () => ({})): Level =>
  chain(names.length, (index) => {
    const name = names[index] ?? ''
    return { name, path: name, class_name: `C${index}`, ...change(index) }
  })

it('a run of identical siblings becomes one box between its neighbours', () => {
  const { boxes, wires } = folded(chain(48))

  expect(titles({ boxes, wires, open: [] })).toEqual(['Input', '0 … 47 DecoderLayer ×48', 'Output'])
  expect(wires.map(({ source, target }) => [source, target])).toEqual([
    ['input:0', boxes[1]?.key],
    [boxes[1]?.key, 'output:0'],
  ])
})

it('several in turn become one box that says which', () => {
  const block = (index: number) => ({ class_name: ['Conv2d', 'BatchNorm2d', 'ReLU'][index % 3] ?? '' })
  expect(titles(folded(chain(30, block)))).toEqual([
    'Input',
    '0 … 29 10 × (Conv2d, BatchNorm2d, ReLU)',
    'Output',
  ])
})

it('few, or different ones, stay apart', () => {
  expect(folded(chain(3)).boxes).toHaveLength(5)
  expect(folded(chain(8, (index) => ({ size: index }))).boxes).toHaveLength(10)
})

describe('a stack unfolds', () => {
  const key = folded(chain(48)).boxes[1]?.key ?? ''

  it('when it was opened, and can be folded again', () => {
    const { boxes, open } = folded(chain(48), { [key]: true })
    expect(boxes).toHaveLength(50)
    expect(open).toMatchObject([{ id: key, title: '0 … 47' }])
    expect(open[0]?.boxes).toHaveLength(48)
  })

  it('when one of its members must be seen', () => {
    expect(folded(chain(48), {}, ['node:7']).boxes).toHaveLength(50)
    expect(folded(chain(48), { [key]: false }, ['node:7']).boxes).toHaveLength(50)
  })

  it('and so does what is folded inside it', () => {
    const level = chain(1500, (index) => ({
      name: `layers.${index}`,
      // Which never comes three times in a row.
      class_name: `C${index.toString(2).replaceAll('0', '')}`,
      container: 'ModuleList',
    }))
    expect(titles(folded(level))).toEqual(['Input', 'layers ModuleList ×1500', 'Output'])
    expect(folded(level, { 'group:layers': true }).boxes).toHaveLength(2 + 39)
    expect(folded(level, {}, ['node:1499']).boxes.map(({ key }) => key)).toContain('node:1499')
  })
})

it('its details add up what is inside, each module once', () => {
  const [, stack] = folded(chain(5, (index) => ({ path: `layers.${Math.min(3, index)}` }))).boxes
  expect(stack && detailsOf(stack)[0]?.rows).toEqual([
    { name: 'calls', value: '5, folded together' },
    { name: 'first', value: 'layers.0' },
    { name: 'last', value: 'layers.3' },
    { name: 'parameters', value: '37.6k' },
  ])
})

describe('a container that is not called itself is a group', () => {
  const list = (index: number): Partial<LevelNode> => ({
    name: `blocks.${index}`,
    path: `blocks.${index}`,
    container: 'ModuleList',
  })

  it('with its name, the class of what it holds, and how many', () => {
    expect(titles(folded(chain(12, list)))).toEqual(['Input', 'blocks DecoderLayer ×12', 'Output'])
  })

  it('or its own class where it holds different things', () => {
    const heads = named(['heads.box', 'heads.class', 'fc'], () => ({ container: 'ModuleDict' }))
    expect(folded(heads).boxes).toHaveLength(5)
    expect(titles(folded(heads, { 'group:heads': false }))).toEqual([
      'Input',
      'heads ModuleDict ×2',
      'fc C2',
      'Output',
    ])
  })

  it('also where it is a plain list, or a module that only holds others', () => {
    const plain = named(['tail[0]', 'tail[1]', 'parts.one', 'parts.two'])
    expect(titles(folded(plain, { 'group:tail': false, 'group:parts': false }))).toEqual([
      'Input',
      'tail list ×2',
      'parts group ×2',
      'Output',
    ])
  })

  it('but not where it is called as well, or lies elsewhere', () => {
    expect(folded(named(['attn', 'attn.q', 'attn.k'])).open).toEqual([])
    const elsewhere = chain(2, (index) => ({ name: `shared.${index}`, path: `shared.${index}` }), 'encoder')
    expect(folded(elsewhere).open).toEqual([])
  })

  it('has a frame around what is drawn of it, unless others stand between', () => {
    const heads = named(['stem', 'heads.box', 'heads.class'])
    const [frame] = pictureOf(folded(heads), true).frames
    const own = pictureOf(folded(heads), true).boxes.filter(({ title }) => title.startsWith('heads'))
    expect(frame).toMatchObject({ whole: true, depth: 0, fold: { title: 'heads' } })
    for (const { x, y, width, height } of own) {
      expect(x - width / 2).toBeGreaterThan(frame?.left ?? Infinity)
      expect(y + height / 2).toBeLessThan((frame?.top ?? 0) + (frame?.height ?? 0))
    }

    const apart = named(['heads.box', 'fc', 'heads.class'])
    const loose = { ...apart, edges: [] }
    expect(pictureOf(folded(loose), true).frames).toMatchObject([{ whole: false }])
  })
})
