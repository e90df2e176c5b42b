import { describe, expect, it } from 'vitest'
import { placeOf, placesOf, ticks, tickText } from './time.ts'

const history = {
  steps: [0, 10, 20, 50],
  wall: [1000, 1060, 1120, 4720],
  time: [0, 0, 1, 2] as (number | null)[],
}

describe('steps lie', () => {
  it('at their number', () => {
    expect(placesOf(history, 'step')).toEqual([0, 10, 20, 50])
  })

  it('at the seconds since the first record, a pause as wide as it was long', () => {
    expect(placesOf(history, 'wall')).toEqual([0, 60, 120, 3720])
  })

  it('at the time of the user, those of one epoch side by side', () => {
    expect(placesOf(history, 'time')).toEqual([0, 0.5, 1, 2])
    expect(placesOf({ ...history, time: [3, 3, 3, 3] }, 'time')).toEqual([3, 3.25, 3.5, 3.75])
  })

  it('nowhere if that time is unknown or goes back', () => {
    expect(placesOf({ ...history, time: [0, 1, null, 2] }, 'time')).toBeNull()
    expect(placesOf({ ...history, time: [0, 1, 0, 1] }, 'time')).toBeNull()
  })

  it('never before an earlier one, also if the clock was set back', () => {
    const places = placesOf({ ...history, wall: [1000, 1060, 900, 1100] }, 'wall') as number[]
    expect(places[0]).toBe(0)
    expect(places.every((place, position) => place > (places[position - 1] ?? -1))).toBe(true)
    expect(places[3]).toBe(100)
  })

  it('where the nearest step does, if it is another run’s', () => {
    expect(placeOf(history, 12, 'step')).toBe(12)
    expect(placeOf(history, 12, 'wall')).toBe(60)
    expect(placeOf({ steps: [], wall: [], time: [] }, 12, 'wall')).toBeNaN()
  })
})

describe('ticks', () => {
  it('are round whole steps', () => {
    expect(ticks({ first: -5, last: 9955 }, 300)).toEqual([0, 5000])
    expect(ticks({ first: -0.5, last: 3.5 }, 300)).toEqual([0, 1, 2, 3])
    expect(ticks({ first: 6.5, last: 7.5 }, 300)).toEqual([7])
  })

  it('are round to a clock, and to the user’s time', () => {
    expect(ticks({ first: -0.1, last: 3700 }, 210, 70, 'wall')).toEqual([0, 1800, 3600])
    expect(ticks({ first: -0.1, last: 0.5 }, 210, 70, 'wall')).toEqual([0, 0.2, 0.4])
    expect(ticks({ first: -0.1, last: 2.6 }, 210, 70, 'time')).toEqual([0, 1, 2])
    expect(ticks({ first: 0, last: 0.25 }, 350, 70, 'time')).toEqual([0, 0.05, 0.1, 0.15, 0.2, 0.25])
  })

  it('are written as what they are', () => {
    expect(tickText(12_000, 'step')).toBe('12,000')
    expect(tickText(0.25, 'time')).toBe('0.25')
    expect([0, 0.2, 30, 90, 120, 4800].map((mark) => tickText(mark, 'wall'))).toEqual([
      '0 s',
      '0.2 s',
      '30 s',
      '90 s',
      '2 min',
      '1 h 20 min',
    ])
  })

  it('are told apart, however far from zero they are', () => {
    const texts = (first: number, last: number, axis: 'time' | 'wall'): string[] =>
      ticks({ first, last }, 300, 70, axis).map((mark) => tickText(mark, axis))
    expect(texts(100.4, 102.1, 'time')).toEqual(['100.5', '101', '101.5', '102'])
    expect(texts(1_250_090, 1_250_410, 'time')).toEqual(['1.2501e6', '1.2502e6', '1.2503e6', '1.2504e6'])
    expect(texts(100.4, 102.1, 'wall')).toEqual(['100.5 s', '101 s', '101.5 s', '102 s'])
  })
})
