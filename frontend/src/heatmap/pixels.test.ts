import { describe, expect, it } from 'vitest'
import type { Grid } from './grid.ts'
import { dash, paint } from './pixels.ts'

const TABLE = Uint32Array.from({ length: 256 }, (_, entry) => entry * 1000)

describe('paint', () => {
  const small: Grid = { width: 2, rows: 3, cells: new Float32Array(6) }
  const entries = Uint8Array.of(0, 1, 2, 3, 4, 5)

  it('repeats a row for each pixel whose middle lies in it, and fills all', () => {
    const pixels = new Uint32Array(2 * 7).fill(9)
    paint(pixels, small, entries, TABLE)
    const rows = Array.from({ length: 7 }, (_, y) => [...pixels.subarray(2 * y, 2 * y + 2)])

    expect(rows).toEqual([
      [0, 1000],
      [0, 1000],
      [2000, 3000],
      [2000, 3000],
      [2000, 3000],
      [4000, 5000],
      [4000, 5000],
    ])
  })

  it('leaves rows out where there are fewer pixels', () => {
    const pixels = new Uint32Array(2)
    paint(pixels, small, entries, TABLE)

    expect([...pixels]).toEqual([2000, 3000])
  })
})

describe('dash', () => {
  const opaque = (red: number, green: number, blue: number): number =>
    ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0

  it('lies at its share of the height, the ends within the picture', () => {
    const pixels = new Uint32Array(3 * 5)
    dash(pixels, Float32Array.of(0, 0.5, 1), 1, '#ffffff')

    expect([...pixels].flatMap((pixel, at) => (pixel === 0 ? [] : [at]))).toEqual([2, 7, 12])
  })

  it('is half transparent over nothing, and mixes with what is there', () => {
    const pixels = Uint32Array.of(0, opaque(100, 0, 40))
    dash(pixels, Float32Array.of(0, 0), 1, '#20c8fe')

    expect(pixels[0]).toBe(0x80fec820)
    expect(pixels[1]).toBe(opaque(66, 100, 147))
  })

  it('is as thick as asked for, and left out where there is no value', () => {
    const pixels = new Uint32Array(2 * 4)
    dash(pixels, Float32Array.of(0, Number.NaN), 2, '#000000')

    expect([...pixels].map((pixel) => pixel >>> 24)).toEqual([0, 0, 0, 0, 128, 0, 128, 0])
  })
})
