import { expect, it } from 'vitest'
import { decodeSeries } from '../api/decode.ts'
import { encodeSeries, seriesHead } from '../api/fixture.ts'
import { commonExtent, hasGradients, tensorsOf } from './tensors.ts'

const HEADS = [
  seriesHead({ group: 'param', name: 'weight' }),
  seriesHead({ group: 'output', name: 'out' }),
  seriesHead({ group: 'output', name: 'out', phase: 'eval' }),
  seriesHead({ group: 'param', name: 'weight', kind: 'grad' }),
  seriesHead({ group: 'param', name: 'bias', index: 1 }),
]
const ROWS = HEADS.map((_, series) => [
  { low: series, high: series + 1, min: series, max: series + 1, counts: [1] },
])
const HISTORY = decodeSeries(encodeSeries(HEADS, [0], ROWS))

it('pairs values with gradients, and keeps train and eval apart', () => {
  const found = tensorsOf(HISTORY).map(({ title, tensors }) => [
    title,
    tensors.map(({ name, phase, value, grad }) => [name, phase, value !== null, grad !== null]),
  ])
  expect(found).toEqual([
    [
      'Output',
      [
        ['out', 'train', true, false],
        ['out', 'eval', true, false],
      ],
    ],
    [
      'Params',
      [
        ['weight', 'train', true, true],
        ['bias', 'train', true, false],
      ],
    ],
  ])
})

it('the only output of a module, which has no name, is called output', () => {
  const history = decodeSeries(encodeSeries([seriesHead({ name: '' })], [0], [[{ counts: [1] }]]))
  expect(tensorsOf(history)[0]?.tensors[0]?.name).toBe('output')
})

it('knows whether gradients were logged at all', () => {
  expect(hasGradients(HISTORY)).toBe(true)
  expect(hasGradients({ ...HISTORY, tracks: HISTORY.tracks.slice(0, 3) })).toBe(false)
})

it('the common extent spans all tracks that have values', () => {
  expect(commonExtent(HISTORY.tracks)).toMatchObject({ low: 0, high: 5 })
  expect(commonExtent([])).toBeNull()
})
