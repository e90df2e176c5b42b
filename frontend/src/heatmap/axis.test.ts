import { describe, expect, it } from 'vitest'
import { decodeSeries, type Track } from '../api/decode.ts'
import { encodeSeries, type Row, seriesHead } from '../api/fixture.ts'
import { extent, makeAxis } from './axis.ts'

function track(...rows: Row[]): Track {
  const history = decodeSeries(
    encodeSeries(
      [seriesHead()],
      rows.map((_, step) => step),
      [rows],
    ),
  )
  return history.tracks[0] as Track
}

describe('extent', () => {
  it('is the union of the bins, with the exact extremes beside it', () => {
    const found = extent(
      track(
        { low: -1, high: 2, min: -50, max: 2, counts: [1] },
        { low: 0, high: 3, min: 0, max: 70, counts: [1] },
      ),
    )
    expect(found).toEqual({ low: -1, high: 3, min: -50, max: 70, knee: 0.2 })
  })

  it('leaves out rows that are blank or hold no finite value', () => {
    const blank: Row = { status: 2, low: 0, high: 0, counts: [0] }
    const onlyNaN: Row = { nan: 8, min: Number.NaN, max: Number.NaN, low: 0, high: 0, counts: [0] }
    const real: Row = { low: 5, high: 6, min: 5, max: 6, counts: [1] }

    expect(extent(track(blank, onlyNaN, real))).toMatchObject({ low: 5, high: 6 })
    expect(extent(track(blank, onlyNaN))).toBeNull()
  })
})

describe.each(['linear', 'symlog'] as const)('%s axis', (kind) => {
  it('has low at 0, high at 1, and values in order between', () => {
    const axis = makeAxis(kind, { low: -3, high: 5, knee: 0.1 })
    const places = [-3, -1, -0.01, 0, 0.01, 2, 5].map(axis.place)

    expect(places[0]).toBeCloseTo(0)
    expect(places.at(-1)).toBeCloseTo(1)
    expect(places).toEqual([...places].sort((a, b) => a - b))
  })

  it('finds a value again from its place', () => {
    const axis = makeAxis(kind, { low: -3, high: 5, knee: 0.1 })
    for (const value of [-3, -0.2, 0, 0.07, 4.9]) expect(axis.value(axis.place(value))).toBeCloseTo(value)
  })

  it.each([0, 1e6, -1e-30, 7e307])('puts a constant %d in the middle', (value) => {
    const axis = makeAxis(kind, { low: value, high: value, knee: 1 })
    expect(axis.place(value)).toBeGreaterThan(0.2)
    expect(axis.place(value)).toBeLessThan(0.8)
  })

  it('copes with a range that can’t be halved', () => {
    expect(makeAxis(kind, { low: 0, high: 5e-324, knee: 1 }).place(0)).toBeCloseTo(0.5)
  })

  it('copes with a knee of nothing', () => {
    const axis = makeAxis(kind, { low: -1e308, high: 1e308, knee: 0 })
    expect(axis.place(0)).toBeCloseTo(0.5)
    expect(axis.place(1e300)).toBeGreaterThanOrEqual(0.5)
  })

  it('copes with the largest doubles', () => {
    const axis = makeAxis(kind, { low: -1.7e308, high: 1.7e308, knee: 1e307 })
    expect(axis.place(0)).toBeCloseTo(0.5)
  })
})
