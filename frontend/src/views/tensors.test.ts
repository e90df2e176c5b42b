import { expect, it } from 'vitest'
import { decodeSeries, type History } from '../api/decode.ts'
import { encodeSeries, seriesHead } from '../api/fixture.ts'
import type { SeriesHead } from '../schema.ts'
import { groupsOf } from './tensors.tsx'

function historyOf(...heads: Partial<SeriesHead>[]): History {
  const row = { counts: [1] }
  return decodeSeries(
    encodeSeries(
      heads.map((head) => seriesHead(head)),
      [0],
      heads.map(() => [row]),
      { level: 'layer1' },
    ),
  )
}

/** `group name: tags phase | tags phase`, a line for each tensor. */
function written(groups: ReturnType<typeof groupsOf>): string[] {
  return groups.flatMap(({ title, tensors }) =>
    tensors.map(({ name, rows }) => {
      const each = rows.map(({ tags, tracks }) => [...tags, tracks.phase].join(' '))
      return `${title} ${name}: ${each.join(' | ')}`
    }),
  )
}

it('runs stand beside each other, training before evaluation', () => {
  const history = historyOf({}, { phase: 'eval' })
  const of = (run: string) => ({ run, tags: [run], node: 'layer1/relu', history })
  expect(written(groupsOf([of('a'), of('b')]))).toEqual([
    'Output output: a train | b train | a eval | b eval',
  ])
})

it('calls are told apart by their names, and share their parameters', () => {
  const history = historyOf({}, { group: 'param', name: 'weight' })
  const of = (node: string) => ({ run: 'a', tags: [], node, history })
  expect(written(groupsOf([of('layer1/fc'), of('layer1/fc#1'), of('layer1/head')]))).toEqual([
    'Output output: fc train | fc #2 train | head train',
    'Params weight: fc train | head train',
  ])
})
