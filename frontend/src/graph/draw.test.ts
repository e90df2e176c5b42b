import { describe, expect, it } from 'vitest'
import { clipped } from './draw.ts'

describe('of a frame only what is near the view is drawn', () => {
  const world = { left: -50, top: 1000, right: 350, bottom: 1600 }

  it('all of it where that is within', () => {
    expect(clipped({ left: 0, top: 1100, width: 300, height: 400 }, world)).toEqual({
      left: 0,
      top: 1100,
      right: 300,
      bottom: 1500,
    })
  })

  it('with its sides cut outside of the view, by whole dashes', () => {
    const { left, top, right, bottom } = clipped({ left: 3, top: 11, width: 300, height: 800_000 }, world)

    expect([left, right]).toEqual([3, 303])
    expect((top - 11) % 7).toBe(0)
    expect((800_011 - bottom) % 7).toBe(0)
    expect(world.top - top).toBeGreaterThanOrEqual(0)
    expect(world.top - top).toBeLessThan(7)
    expect(bottom - world.bottom).toBeGreaterThanOrEqual(0)
    expect(bottom - world.bottom).toBeLessThan(7)
  })

  it('nothing where it lies elsewhere', () => {
    const { top, bottom } = clipped({ left: 0, top: 5000, width: 300, height: 400 }, world)

    expect(bottom).toBeLessThan(top)
  })
})
