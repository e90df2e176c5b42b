import { describe, expect, it } from 'vitest'
import { decodeSeries, type History, type Track } from '../api/decode.ts'
import { encodeSeries, type Row, seriesHead } from '../api/fixture.ts'
import { Status } from '../schema.ts'
import { domain } from './columns.ts'
import { plotOf, probe } from './plot.ts'

const NOT_RUN: Row = { status: Status.NOT_RUN, counts: [0, 0] }

function row(low: number, high: number, counts: readonly number[], more: Partial<Row> = {}): Row {
  return { low, high, min: low, max: high, counts, ...more }
}

function plot(rows: readonly Row[], others: readonly Row[] = []): ReturnType<typeof plotOf> {
  const history = historyOf(rows, others)
  return plotOf(history, history.tracks[0] as Track, domain([history.steps]), 40, 8, 'linear')
}

/** A train track with `rows` and, if given, an eval track with `others`, at the steps 0, 10, 20, … */
function historyOf(rows: readonly Row[], others: readonly Row[]): History {
  const heads = [seriesHead(), ...(others.length > 0 ? [seriesHead({ phase: 'eval' })] : [])]
  const steps = rows.map((_, step) => step * 10)
  return decodeSeries(encodeSeries(heads, steps, others.length > 0 ? [rows, others] : [rows]))
}

it('the steps of evaluation are no gaps of training, nor the other way round', () => {
  const train = [row(0, 1, [1, 1]), NOT_RUN, row(0, 1, [1, 1])]
  const evaluation = [NOT_RUN, row(0, 1, [1, 1]), NOT_RUN]
  expect(plot(train, evaluation).steps).toEqual([0, 20])
})

describe('zero', () => {
  it('has its line where the axis holds it', () => {
    expect(plot([row(-1, 3, [1, 1])]).drawn?.zero).toBe(0.25)
    expect(plot([row(0, 3, [1, 1])]).drawn?.zero).toBe(0)
    expect(plot([row(1, 3, [1, 1])]).drawn?.zero).toBeNull()
  })
})

it('knows the exact extremes of each pixel column, those of all its steps', () => {
  const rows = [row(0, 4, [1, 1], { min: -1, max: 3 }), row(0, 4, [1, 1], { min: 1, max: 9 }), NOT_RUN]
  const history = historyOf(rows, [])
  const made = (width: number) =>
    plotOf(history, history.tracks[0] as Track, domain([history.steps]), width, 8, 'linear').drawn

  expect([...(made(3)?.lowest ?? [])]).toEqual([0, 0.25, Number.NaN])
  expect([...(made(3)?.highest ?? [])]).toEqual([0.75, 1, Number.NaN])
  expect([...(made(1)?.highest ?? [])]).toEqual([1])
})

describe('a blank plot says why', () => {
  const frozen: Row = { status: Status.FROZEN, counts: [0, 0] }

  it('with the reason of most steps', () => {
    const lost: Row = { status: Status.OVERWRITTEN, counts: [0, 0] }
    expect(plot([frozen, lost, frozen]).blank).toBe('frozen: requires_grad is False')
  })

  it('or that nothing was finite, or that nothing came yet', () => {
    expect(plot([row(0, 0, [0, 0], { nan: 5, min: Number.NaN, max: Number.NaN })]).blank).toBe(
      'no finite value',
    )
    expect(plot([]).blank).toBe('waiting for the first record')
  })

  it('and nothing where a value is there', () => {
    expect(plot([frozen, row(0, 1, [1, 1])]).blank).toBe('')
  })
})

it('counts what is not finite, and knows the steps', () => {
  expect(plot([row(0, 1, [1, 1]), row(0, 1, [1, 0], { nan: 2, posinf: 3 })]).broken).toEqual({
    nan: 2,
    posinf: 3,
    neginf: 0,
    at: [1],
  })
})

describe('probe', () => {
  const some = plot([row(0, 4, [3, 1]), { status: Status.NO_GRADIENT, counts: [0, 0] }, row(5, 5, [4, 0])])

  it('finds the bin at a height, the upper end in the last one', () => {
    expect(probe(some, 0, 1)?.bin).toEqual({ low: 0, high: 2, entries: 3, kept: 4 })
    expect(probe(some, 0, 4)?.bin).toEqual({ low: 2, high: 4, entries: 1, kept: 4 })
    expect(probe(some, 0, 4.5)?.bin).toBeNull()
  })

  it('finds it in the widest and the narrowest range there is', () => {
    const bin = (low: number, high: number, value: number): unknown =>
      probe(plot([row(low, high, [3, 1])]), 0, value)?.bin?.entries
    expect(bin(-1.5e308, 1.5e308, 1e308)).toBe(1)
    expect(bin(-1.5e308, 1.5e308, -1e308)).toBe(3)
    expect(bin(0, 5e-324, 0)).toBe(3)
  })

  it('takes a constant as one bin', () => {
    expect(probe(some, 2, 1)?.bin).toEqual({ low: 5, high: 5, entries: 4, kept: 4 })
  })

  it('gives the reason of a blank step', () => {
    expect(probe(some, 1, 1)).toMatchObject({
      step: 10,
      blank: 'no gradient reached it in this step',
      bin: null,
    })
  })
})

it('a restart lies between its first step and the one before', () => {
  const rows = [0, 1, 2, 3].map(() => row(0, 1, [1, 1]))
  const history = { ...historyOf(rows, []), restarts: [0, 20, 25] }
  const { restarts } = plotOf(
    history,
    history.tracks[0] as Track,
    { first: 0, last: 60 },
    40,
    8,
    'linear',
    undefined,
    [0, 10, 40, 60],
  )
  expect(restarts).toEqual([25 / 60, 50 / 60])
})
