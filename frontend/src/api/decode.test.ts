import { expect, it } from 'vitest'
import { VERSION } from '../schema.ts'
import { decodeSeries } from './decode.ts'
import { encodeSeries, seriesHead } from './fixture.ts'

const HEADS = [seriesHead(), seriesHead({ kind: 'grad', name: 'größe' })]
const ROWS = [
  [
    { min: -1.5, max: 2, sampled: 100, counts: [1, 2, 3] },
    { min: -9, max: 9, nan: 4, counts: [4, 5, 6] },
  ],
  [
    { status: 2, counts: [0, 0, 0] },
    { mean: 0.25, counts: [7, 8, 9] },
  ],
]

it('gives every series its own rows and counts', () => {
  const history = decodeSeries(encodeSeries(HEADS, [0, 100], ROWS))

  expect(history.steps).toEqual([0, 100])
  expect(history.tracks.map((track) => track.head)).toEqual(HEADS)
  expect(history.tracks.map((track) => [...track.counts])).toEqual([
    [1, 2, 3, 4, 5, 6],
    [0, 0, 0, 7, 8, 9],
  ])
  expect([...(history.tracks[0]?.rows.min ?? [])]).toEqual([-1.5, -9])
  expect([...(history.tracks[0]?.rows.nan ?? [])]).toEqual([0, 4])
  expect([...(history.tracks[1]?.rows.status ?? [])]).toEqual([2, 0])
  expect([...(history.tracks[1]?.rows.mean ?? [])]).toEqual([0, 0.25])
})

it('refuses a newer version with advice', () => {
  const body = encodeSeries(HEADS, [0, 100], ROWS, { version: VERSION + 1 })

  expect(() => decodeSeries(body)).toThrow(/format version 2; this tab knows up to 1.*Update/)
})

it('refuses an answer that was cut short, wherever it was cut', () => {
  const body = encodeSeries(HEADS, [0, 100], ROWS)

  for (const length of [0, 3, 4, 50, body.byteLength - 1]) {
    expect(() => decodeSeries(body.slice(0, length))).toThrow(/^the answer/)
  }
})

it('names a block that is missing', () => {
  const blocks = [{ name: 'status', dtype: 'u1', shape: [2, 2], offset: 0 }]

  expect(() => decodeSeries(encodeSeries(HEADS, [0, 100], ROWS, { blocks }))).toThrow('no block size')
})

it('takes a series without any step', () => {
  const history = decodeSeries(encodeSeries([seriesHead()], [], [[]], { bins: 30 }))

  expect(history.tracks[0]?.counts.length).toBe(0)
})
