import { describe, expect, it } from 'vitest'
import { type Pen, roundedPath, trace } from './path.ts'

const corner = [
  { x: 0, y: 0 },
  { x: 0, y: 20 },
  { x: 30, y: 20 },
]

describe('roundedPath', () => {
  it('is a straight line between two points', () => {
    expect(roundedPath(corner.slice(0, 2), 8)).toBe('M0 0L0 20')
  })

  it('turns round a corner on a curve that begins and ends at the radius', () => {
    expect(roundedPath(corner, 8)).toBe('M0 0L0 12Q0 20 8 20L30 20')
  })

  it('makes the radius smaller where a piece is too short for two corners', () => {
    const step = [...corner.slice(0, 2), { x: 6, y: 20 }, { x: 6, y: 40 }]

    expect(roundedPath(step, 8)).toBe('M0 0L0 17Q0 20 3 20L3 20Q6 20 6 23L6 40')
  })

  it('keeps hundredths', () => {
    expect(
      roundedPath(
        [
          { x: 1 / 3, y: -0.5 },
          { x: 2, y: 1e-9 },
        ],
        8,
      ),
    ).toBe('M0.33 -0.5L2 0')
  })

  it('of nothing is empty', () => {
    expect(roundedPath([], 8)).toBe('')
  })
})

describe('trace', () => {
  it('gives a canvas the same commands', () => {
    const commands: unknown[] = []
    const pen: Pen = {
      moveTo: (...at) => commands.push(['moveTo', ...at]),
      lineTo: (...at) => commands.push(['lineTo', ...at]),
      quadraticCurveTo: (...at) => commands.push(['quadraticCurveTo', ...at]),
    }

    trace(corner, 8, pen)

    expect(commands).toEqual([
      ['moveTo', 0, 0],
      ['lineTo', 0, 12],
      ['quadraticCurveTo', 0, 20, 8, 20],
      ['lineTo', 30, 20],
    ])
  })
})
