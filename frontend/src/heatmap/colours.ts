/** Colour tables of the heat maps and the colours that tie a panel to its node. Pure.
 *
 *  A table has 256 packed RGBA entries. Entry 0 is transparent: no value. Lightness runs evenly in OKLCH
 *  at one hue, so equal steps look equal also with a colour-vision deficiency: hue 255 (blue) for values,
 *  45 (rust) for gradients. Entries from `FAINTEST` on are for pixels that hold something; it is far
 *  enough from the background to see one entry. */

export const FAINTEST = 12

export type Theme = 'light' | 'dark'
export type Ink = 'value' | 'grad'

const HUES: Record<Ink, number> = { value: 255, grad: 45 }

/** The table for `ink` on the background of `theme`, made once. */
export function colourTable(ink: Ink, theme: Theme): Uint32Array {
  const key = `${ink} ${theme}`
  let table = tables.get(key)
  if (table === undefined) {
    table = makeTable(HUES[ink], theme)
    tables.set(key, table)
  }
  return table
}

const tables = new Map<string, Uint32Array>()

function makeTable(hue: number, theme: Theme): Uint32Array {
  const [from, to] = theme === 'light' ? [0.965, 0.29] : [0.28, 0.94]
  const table = new Uint32Array(256)
  for (let entry = 1; entry < 256; entry++) {
    const share = entry / 255
    // Most colourful in the middle: near white and near black few colours exist.
    const chroma = 0.03 + 0.15 * Math.sin(Math.PI * Math.min(1, 0.12 + share * 0.8))
    table[entry] = packed(oklch(from + (to - from) * share, chroma, hue))
  }
  return table
}

/** sRGB 0..255 of an OKLCH colour; chroma is reduced until the colour exists. (Ottosson 2020.) */
export function oklch(lightness: number, chroma: number, hue: number): readonly [number, number, number] {
  for (let reduced = chroma; ; reduced *= 0.94) {
    const linear = linearRgb(lightness, reduced, hue)
    if (reduced < 0.002 || linear.every((channel) => channel > -0.0005 && channel < 1.0005)) {
      const [red, green, blue] = linear.map(gamma) as [number, number, number]
      return [red, green, blue]
    }
  }
}

function linearRgb(lightness: number, chroma: number, hue: number): [number, number, number] {
  const a = chroma * Math.cos((hue * Math.PI) / 180)
  const b = chroma * Math.sin((hue * Math.PI) / 180)
  const long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
  const middle = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
  const short = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3
  return [
    4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * short,
    -1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * short,
    -0.0041960863 * long - 0.7034186147 * middle + 1.707614701 * short,
  ]
}

function gamma(linear: number): number {
  const channel = Math.min(1, Math.max(0, linear))
  const encoded = channel <= 0.0031308 ? 12.92 * channel : 1.055 * channel ** (1 / 2.4) - 0.055
  return Math.round(encoded * 255)
}

/** One pixel as ImageData stores it, read as a little-endian uint32. */
function packed([red, green, blue]: readonly [number, number, number]): number {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0
}

/** `rgb(…)` text of a table entry, for legends. */
export function cssColour(pixel: number): string {
  return `rgb(${pixel & 255} ${(pixel >>> 8) & 255} ${(pixel >>> 16) & 255})`
}

/** Colours of panels, in the order in which they are handed out. White text has at least 4.5:1 on each. */
export const PANEL_COLOURS = [
  '#1f6fd1',
  '#b4470c',
  '#1b7a43',
  '#8a3fbf',
  '#a8246d',
  '#0b7285',
  '#7a5c00',
  '#5b5bd6',
  '#b3261e',
  '#4b6b12',
] as const

/** Colour and letter of the panel with number `slot`: `A` to `Z`, then `A2`. */
export function panelMark(slot: number): { readonly colour: string; readonly letter: string } {
  const colour = PANEL_COLOURS[slot % PANEL_COLOURS.length] ?? PANEL_COLOURS[0]
  const round = Math.floor(slot / 26)
  return { colour, letter: String.fromCharCode(65 + (slot % 26)) + (round === 0 ? '' : String(round + 1)) }
}
