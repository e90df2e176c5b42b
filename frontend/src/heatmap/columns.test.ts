import { describe, expect, it } from 'vitest'
import { type Columns, domain, nearest, pixelColumns, spans } from './columns.ts'

/** The step indices of each pixel, written out. */
function written({ first, amount }: Columns): number[][] {
  return Array.from(first, (from, x) => Array.from({ length: amount[x] as number }, (_, part) => from + part))
}

it('steps own the room halfway to their neighbours, and a gap stays a gap', () => {
  const { left, right } = spans([0, 10, 20, 50, 60])

  expect([...left]).toEqual([-5, 5, 15, 45, 55])
  expect([...right]).toEqual([5, 15, 25, 55, 65])
  expect([...spans([0, 10, 35, 95], 2).right]).toEqual([5, 22.5, 60, 107.5])
})

it('steps that grow apart regularly stay wide enough to see', () => {
  const { left, right } = spans([1, 2, 4, 8, 16])

  expect(
    [...right].map((edge, position) => edge - (left[position] as number)).every((room) => room >= 1),
  ).toBe(true)
  expect(right[3]).toBe(10)
})

it('the domain reaches half a column beyond the first and last step of all series', () => {
  expect(domain([[0, 10, 20], [5], []])).toEqual({ first: -5, last: 25 })
  expect(domain([[7]])).toEqual({ first: 6.5, last: 7.5 })
  expect(domain([])).toEqual({ first: -0.5, last: 0.5 })
})

describe('pixelColumns', () => {
  it('gives each step the same number of pixels', () => {
    const steps = [0, 10, 20]
    expect(written(pixelColumns(steps, domain([steps]), 6))).toEqual([[0], [0], [1], [1], [2], [2]])
  })

  it('leaves missing steps empty', () => {
    const steps = [0, 10, 20, 50, 60]
    const pixels = written(pixelColumns(steps, domain([steps]), 7))
    expect(pixels).toEqual([[0], [1], [2], [], [], [3], [4]])
  })

  it('takes several steps into a pixel and loses none', () => {
    for (const [amount, width] of [
      [10, 4],
      [997, 200],
      [200, 199],
      [201, 200],
      [5000, 3],
    ] as const) {
      const steps = Array.from({ length: amount }, (_, position) => position * 100)
      const seen = new Set(written(pixelColumns(steps, domain([steps]), width)).flat())
      expect(seen.size).toBe(amount)
    }
  })

  it('fills the whole width with a single step', () => {
    expect(written(pixelColumns([42], domain([[42]]), 3))).toEqual([[0], [0], [0]])
  })
})

it('nearest finds the closer neighbour', () => {
  const steps = [0, 10, 20]
  expect([-5, 4, 5, 6, 19, 99].map((step) => nearest(steps, step))).toEqual([0, 0, 0, 1, 2, 2])
  expect(nearest([], 3)).toBe(-1)
})
