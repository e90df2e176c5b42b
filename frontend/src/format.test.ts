import { describe, expect, it } from 'vitest'
import * as format from './format.ts'

describe('number', () => {
  it.each([
    [0, '0'],
    [-0, '0'],
    [2.4512, '2.45'],
    [-0.05204, '−0.052'],
    [0.001, '0.001'],
    [0.00099, '9.9e−4'],
    [99_999, '100000'],
    [100_000, '1e5'],
    [-1.5e-38, '−1.5e−38'],
    [Number.NaN, 'NaN'],
    [Number.NEGATIVE_INFINITY, '−∞'],
  ])('%d reads %s', (value, text) => {
    expect(format.number(value)).toBe(text)
  })
})

it('the ends of a range are told apart, however narrow it is', () => {
  const ranges = [
    [-0.5, 2],
    [0.9998, 1.0004],
    [0.1, 0.1],
    [5e-324, 1e-323],
    [-1e300, 1e300],
    [-1.7e308, 1.7e308],
    [1, 1 + 2 ** -52],
  ] as const
  expect(ranges.map(([low, high]) => format.range(low, high))).toEqual([
    '−0.5 … 2',
    '0.9998 … 1.0004',
    '0.1 … 0.1',
    '4.94e−324 … 9.88e−324',
    '−1e300 … 1e300',
    '−1.7e308 … 1.7e308',
    '1 … 1',
  ])
  expect(format.range(0, 1, ' to ')).toBe('0 to 1')
})

it('of very many numbers only the first are named', () => {
  expect(format.few([1200])).toBe('1,200')
  expect(format.few([1, 2, 3, 4, 5, 6, 7])).toBe('1, 2, 3, 4, 5, 6, …')
})

it('of several ranks, names those that are missing', () => {
  expect(format.ranks({ held: 2, missing: [] })).toBe('2 of 2 ranks')
  expect(format.ranks({ held: 1, missing: [1] })).toBe('1 of 2 ranks, without rank 1')
  expect(format.ranks({ held: 56, missing: [1, 2, 3, 5, 8, 13, 21, 34] })).toBe(
    '56 of 64 ranks, without rank 1, 2, 3, 5, 8, 13, …',
  )
})

describe('count', () => {
  it.each([
    [0, '0'],
    [9_408, '9,408'],
    [36_864, '36.9k'],
    [999_960, '1M'],
    [11_173_962, '11.2M'],
    [7.1e12, '7.1T'],
  ])('%d reads %s', (value, text) => {
    expect(format.count(value)).toBe(text)
  })
})

describe('shape', () => {
  it.each([
    [[8, 64, 56, 56], '8×64×56×56'],
    [[null, 10], '?×10'],
    [[], 'scalar'],
    [null, '?'],
  ] as const)('%j reads %s', (sizes, text) => {
    expect(format.shape(sizes)).toBe(text)
  })
})

describe('percent', () => {
  it('never rounds something to nothing or to all', () => {
    expect([0, 0.0001, 0.123, 0.5, 0.994, 0.996, 0.9999, 1].map(format.percent)).toEqual([
      '0 %',
      '< 0.1 %',
      '12 %',
      '50 %',
      '99.4 %',
      '99.6 %',
      '> 99.9 %',
      '100 %',
    ])
  })
})

it('durations take their two largest units', () => {
  expect([8, 75, 3600, 12_000, 187_200].map(format.duration)).toEqual([
    '8 s',
    '1 min',
    '1 h',
    '3 h 20 min',
    '2 d 4 h',
  ])
})

it('long names keep both ends and count characters, not code units', () => {
  expect(format.shorten('encoder.layers.11.self_attn.q_proj', 15)).toBe('encoder….q_proj')
  expect(format.shorten('😀😀😀', 3)).toBe('😀😀😀')
})

it('a text is cut in its middle until it fits, a short one never', () => {
  const width = (text: string): number => text.length * 8
  expect(format.fit('encoder.layers.11.self_attn.q_proj', 200, width)).toBe('encoder.laye…_attn.q_proj')
  expect(format.fit('encoder.layers.11.self_attn.q_proj', 272, width)).toBe(
    'encoder.layers.11.self_attn.q_proj',
  )
  expect(format.fit('self_attn.q_proj', 10, width)).toBe('self_attn.q_proj')
  expect(format.fit('y'.repeat(10_000), 10, width)).toHaveLength(18)
})

it('direction marks and control characters are made visible', () => {
  expect(format.visible('a\u202eb\nc')).toBe('a\\u202eb\\u000ac')
  expect(format.visible('\u061c\u0085\u2028')).toBe('\\u061c\\u0085\\u2028')
})
