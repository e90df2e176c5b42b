import { describe, expect, it } from 'vitest'
import { levelNode, port } from '../api/fixture.ts'
import { type Edge, type LevelNode, VERSION } from '../schema.ts'
import { detailsOf } from './details.ts'
import { type Scene, sceneOf } from './scene.ts'
import { foldScene } from './stacks.ts'

const measure = (text: string, size: number): number => text.length * size * 0.55

/** Input -> layer 0 -> … -> layer n-1 -> Output. */
function chain(length: number, change: (index: number) => Partial<LevelNode> = () => ({})): Scene {
  const nodes = Array.from({ length }, (_, index) =>
    levelNode({ index, id: `layers.${index}`, class_name: 'DecoderLayer', children: 3, ...change(index) }),
  )
  const ends: Edge['source'][] = [
    ['input', 0],
    ...nodes.map(({ index }): Edge['source'] => ['node', index]),
    ['output', 0],
  ]
  const edges = ends.slice(1).map((target, position): Edge => {
    return { level: 0, source: ends[position] as Edge['source'], target, kind: 'gradient', implicit: false }
  })
  const node = levelNode({ id: '.', inputs: [port('x')], outputs: [port('y')] })
  return sceneOf(
    { model: 'm', node, ancestors: [], nodes, edges, steps: 10, bins: 30, version: VERSION },
    measure,
  )
}

const titles = ({ boxes }: Scene): string[] =>
  boxes.map(({ title, subtitle }) => `${title} ${subtitle}`.trim())
const NONE = new Set<string>()

it('a run of identical siblings becomes one box between its neighbours', () => {
  const folded = foldScene(chain(48), NONE, NONE, measure)

  expect(titles(folded)).toEqual(['Input', 'layers.0 … layers.47 DecoderLayer ×48', 'Output'])
  expect(folded.wires.map(({ source, target }) => [source, target])).toEqual([
    ['input:0', folded.boxes[1]?.key],
    [folded.boxes[1]?.key, 'output:0'],
  ])
})

it('few, or different ones, stay apart', () => {
  expect(foldScene(chain(3), NONE, NONE, measure).boxes).toHaveLength(5)
  expect(
    foldScene(
      chain(8, (index) => ({ size: index })),
      NONE,
      NONE,
      measure,
    ).boxes,
  ).toHaveLength(10)
})

describe('a stack unfolds', () => {
  const key = foldScene(chain(48), NONE, NONE, measure).boxes[1]?.key ?? ''

  it('when it was opened', () => {
    expect(foldScene(chain(48), new Set([key]), NONE, measure).boxes).toHaveLength(50)
  })

  it('when one of its members must be seen', () => {
    expect(foldScene(chain(48), NONE, new Set(['node:7']), measure).boxes).toHaveLength(50)
  })
})

it('its details add up what is inside', () => {
  const [, stack] = foldScene(chain(4), NONE, NONE, measure).boxes
  expect(stack && detailsOf(stack)[0]?.rows).toEqual([
    { name: 'calls', value: '4 alike, folded together' },
    { name: 'first', value: 'layers.0' },
    { name: 'last', value: 'layers.3' },
    { name: 'parameters', value: '37.6k' },
  ])
})
