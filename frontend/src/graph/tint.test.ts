import { describe, expect, it } from 'vitest'
import { HEALTH, type Health, VERSION } from '../schema.ts'
import { COLOURS } from '../theme.ts'
import { STATS, tintOf } from './tint.ts'

function health(overrides: Partial<Health>): Health {
  return {
    stat: 'gradient',
    step: 10,
    nodes: [1, 2, 3],
    own: [0.1, 1, null],
    worst: [0.1, 10, null],
    low: 0.1,
    high: 10,
    version: VERSION,
    ...overrides,
  }
}

it('every statistic of the contract has words', () => {
  expect(STATS.map(({ stat }) => stat)).toEqual([...HEALTH])
})

it('a node takes the worst of what is below it; an unknown value stays unknown', () => {
  const tint = tintOf(health({}))
  expect([1, 2, 3, 99].map(tint.value)).toEqual([0.1, 10, undefined, undefined])
})

describe('the colour', () => {
  it('grows evenly by factors on a logarithmic scale', () => {
    const tint = tintOf(health({}))
    const [low, middle, high] = [0.1, 1, 10].map((value) =>
      Number(tint.fill(value, 'light').match(/\d+/)?.[0]),
    )
    expect(low).toBeGreaterThan(middle as number)
    expect(middle).toBeGreaterThan(high as number)
  })

  it('is that of the nearest end for zero and for what lies outside', () => {
    const tint = tintOf(health({ low: 0, high: 10 }))
    expect(tint.fill(0, 'dark')).toBe(tint.fill(1e-30, 'dark'))
    expect(tint.fill(1e9, 'dark')).toBe(tint.fill(10, 'dark'))
  })

  it('exists where all values are equal or none is known', () => {
    expect(tintOf(health({ low: 2, high: 2 })).fill(2, 'light')).toMatch(/^rgb\(/)
    expect(tintOf(health({ low: null, high: null })).fill(2, 'light')).toMatch(/^rgb\(/)
  })

  it('of a count of none is none', () => {
    const tint = tintOf(health({ stat: 'nonfinite', low: 0, high: 8 }))
    for (const theme of ['light', 'dark'] as const) {
      expect(tint.fill(0, theme)).toBe(COLOURS[theme].surface)
      expect(tint.fill(1, theme)).toMatch(/^rgb\(/)
    }
  })

  it('of a share spans 0 to 1 whatever occurred', () => {
    expect(tintOf(health({ stat: 'zeros', low: 0.4, high: 0.5 }))).toMatchObject({ low: 0, high: 1 })
    expect(tintOf(health({ stat: 'zeros' })).text(0.25)).toBe('25 %')
  })
})
