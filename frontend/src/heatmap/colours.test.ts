import { describe, expect, it } from 'vitest'
import { colourTable, FAINTEST, oklch, PANEL_COLOURS, panelMark } from './colours.ts'

const BACKGROUNDS = { light: [255, 255, 255], dark: [21, 25, 30] } as const

function channels(pixel: number): [number, number, number] {
  return [pixel & 255, (pixel >>> 8) & 255, (pixel >>> 16) & 255]
}

/** Relative luminance as WCAG 2.2 defines it. */
function luminance(rgb: readonly number[]): number {
  const [red, green, blue] = rgb.map((channel) => {
    const share = channel / 255
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4
  }) as [number, number, number]
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue
}

function contrast(one: readonly number[], other: readonly number[]): number {
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b) as [number, number]
  return (light + 0.05) / (dark + 0.05)
}

describe.each(['value', 'grad'] as const)('%s', (ink) => {
  describe.each(['light', 'dark'] as const)('%s', (theme) => {
    const table = colourTable(ink, theme)

    it('leaves the pixel of no value transparent and all others opaque', () => {
      expect(table[0]).toBe(0)
      expect(table.slice(1).every((pixel) => pixel >>> 24 === 255)).toBe(true)
    })

    it('moves steadily away from the background', () => {
      const lights = [...table.slice(FAINTEST)].map((pixel) => luminance(channels(pixel)))
      const away = theme === 'light' ? -1 : 1
      for (let entry = 4; entry < lights.length; entry += 4) {
        expect((lights[entry] as number) * away).toBeGreaterThan((lights[entry - 4] as number) * away)
      }
    })

    it('shows one entry against the background, and the most at more than 9:1', () => {
      expect(contrast(channels(table[FAINTEST] as number), BACKGROUNDS[theme])).toBeGreaterThan(1.12)
      expect(contrast(channels(table[255] as number), BACKGROUNDS[theme])).toBeGreaterThan(9)
    })
  })
})

it('knows white, black and a pure red of OKLCH', () => {
  expect(oklch(1, 0, 0)).toEqual([255, 255, 255])
  expect(oklch(0, 0, 0)).toEqual([0, 0, 0])
  expect(oklch(0.62796, 0.25768, 29.23)).toEqual([255, 0, 0])
})

it('white letters are readable on every panel colour', () => {
  for (const colour of PANEL_COLOURS) {
    const rgb = [1, 3, 5].map((start) => Number.parseInt(colour.slice(start, start + 2), 16))
    expect(contrast(rgb, [255, 255, 255])).toBeGreaterThan(4.5)
  }
})

it('panels have letters that never repeat', () => {
  const letters = Array.from({ length: 60 }, (_, slot) => panelMark(slot).letter)
  expect(letters.slice(0, 2)).toEqual(['A', 'B'])
  expect(new Set(letters).size).toBe(60)
})
