import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { decodeSeries, type Track } from '../api/decode.ts'
import { encodeSeries, type Row, seriesHead } from '../api/fixture.ts'
import { type AxisKind, extent, makeAxis } from './axis.ts'
import { FAINTEST } from './colours.ts'
import { domain, pixelColumns } from './columns.ts'
import { entriesOf, type Grid, resample } from './grid.ts'

function grid(rows: readonly Row[], width: number, height: number, kind: AxisKind = 'linear'): Grid {
  const steps = rows.map((_, step) => step)
  const track = decodeSeries(encodeSeries([seriesHead()], steps, [rows])).tracks[0] as Track
  const bins = rows[0]?.counts.length ?? 0
  const axis = makeAxis(kind, extent(track) ?? { low: 0, high: 1, knee: 1 })
  return resample(track, bins, steps, axis, pixelColumns(steps, domain([steps]), width), height)
}

function column({ width, rows, cells }: Grid, x: number): number[] {
  return Array.from({ length: rows }, (_, row) => cells[row * width + x] as number)
}

function row(low: number, high: number, counts: readonly number[]): Row {
  return { low, high, min: low, max: high, counts }
}

describe('resample', () => {
  it('draws high values at the top', () => {
    expect(column(grid([row(0, 3, [1, 2, 3])], 1, 3), 0)).toEqual([3, 2, 1])
  })

  it('brings steps with their own ranges onto one axis', () => {
    const both = grid([row(0, 4, [4, 4]), row(0, 2, [6, 2])], 2, 4)

    expect(column(both, 0)).toEqual([2, 2, 2, 2])
    expect(column(both, 1)).toEqual([0, 0, 2, 6])
  })

  it('splits a bin that straddles rows in proportion', () => {
    const [top, middle, bottom] = column(grid([row(0, 3, [6, 0])], 1, 3), 0) as [number, number, number]

    expect(top).toBe(0)
    expect(middle).toBeCloseTo(2)
    expect(bottom).toBeCloseTo(4)
  })

  it('draws a constant as one bar', () => {
    const cells = column(grid([row(5, 5, [90, 0, 0])], 1, 9), 0)
    expect(cells.filter((value) => value > 0)).toEqual([90])
  })

  it('leaves blank steps empty', () => {
    const blank: Row = { status: 2, counts: [0, 0] }
    expect(column(grid([row(0, 1, [1, 1]), blank], 2, 4), 1)).toEqual([0, 0, 0, 0])
  })

  it('takes the mean of several steps in one pixel', () => {
    expect(column(grid([row(0, 2, [2, 0]), row(0, 2, [0, 4])], 1, 2), 0)).toEqual([2, 1])
  })

  it('keeps the total of a histogram that is narrower than rounding', () => {
    const low = -1.776058906412427e-186
    const counts = [105, 33, 25, 115, 22, 50, 131]
    for (const kind of ['linear', 'symlog'] as const) {
      const spread = grid([row(low, low * (1 - 2e-16), counts)], 1, 3, kind)
      expect(column(spread, 0).reduce((sum, value) => sum + value, 0)).toBeCloseTo(481, 3)
    }
  })

  it('keeps the total of each step, whatever the ranges and the axis', () => {
    const anyRow = fc
      .tuple(
        fc.double({ min: -1e6, max: 1e6, noNaN: true }),
        fc.double({ min: 0, max: 1e6, noNaN: true }),
        fc.array(fc.nat(200), { minLength: 7, maxLength: 7 }),
      )
      .map(([low, size, counts]) => row(low, low + size, counts))
    fc.assert(
      fc.property(
        fc.array(anyRow, { minLength: 1, maxLength: 5 }),
        fc.integer({ min: 1, max: 50 }),
        fc.constantFrom<AxisKind>('linear', 'symlog'),
        (rows, height, kind) => {
          const spread = grid(rows, rows.length, height, kind)
          rows.forEach(({ counts }, step) => {
            const total = counts.reduce((sum, value) => sum + value, 0)
            const drawn = column(spread, step).reduce((sum, value) => sum + value, 0)
            expect(Math.abs(drawn - total)).toBeLessThanOrEqual(1e-3 * (1 + total))
          })
        },
      ),
    )
  })
})

describe('entriesOf', () => {
  const cells = Float32Array.of(0, 1, 4, 100, 0, 4, 0, 0)
  const small: Grid = { width: 2, rows: 4, cells }

  it('leaves no value as background and tints a single entry', () => {
    const entries = entriesOf(small, 'linear', 'all')
    expect(entries[0]).toBe(0)
    expect(entries[1]).toBeGreaterThanOrEqual(FAINTEST)
    expect(entries[3]).toBe(255)
  })

  it('by step, each step reaches the strongest colour', () => {
    const entries = entriesOf(small, 'root', 'step')
    expect(entries[2]).toBe(255)
    expect(entries[3]).toBe(255)
    expect(entries[1]).toBe(FAINTEST + Math.round(0.1 * (255 - FAINTEST)))
  })

  it('root and log lift small counts above linear', () => {
    const [linear, root, log] = (['linear', 'root', 'log'] as const).map(
      (intensity) => entriesOf(small, intensity, 'all')[2] as number,
    ) as [number, number, number]
    expect(root).toBeGreaterThan(linear)
    expect(log).toBeGreaterThan(root)
  })
})
