/** Entries of a colour table and marks to the pixels of a canvas, as `ImageData` stores them. Pure.
 *
 *  One `putImageData` for all of a heat map: a rectangle for each dash took a quarter of the time of drawing it. */
import type { Grid } from './grid.ts'

/** Fills `pixels`, which has a whole number of rows as wide as `grid`, with `entries` (one for each cell of `grid`) in
 *  the colours of `table`. A pixel shows the cell that its middle lies in. */
export function paint(
  pixels: Uint32Array,
  { width, rows }: Grid,
  entries: Uint8Array,
  table: Uint32Array,
): void {
  const height = pixels.length / width
  let before = -1
  for (let y = 0, pixel = 0; y < height; y++, pixel += width) {
    const row = Math.floor(((y + 0.5) * rows) / height)
    if (row === before) pixels.copyWithin(pixel, pixel - width, pixel)
    else
      for (let x = 0, cell = row * width; x < width; x++, cell++)
        pixels[pixel + x] = table[entries[cell] as number] as number
    before = row
  }
}

/** Draws a dash half transparent in `colour` (`#rrggbb`), `thick` pixels high, in each column at its share of the
 *  height (0..1 from the bottom; NaN: none), over the pixels that are there. */
export function dash(pixels: Uint32Array, shares: Float32Array, thick: number, colour: string): void {
  const width = shares.length
  const height = pixels.length / width
  const [red, green, blue] = [1, 3, 5].map((at) => Number.parseInt(colour.slice(at, at + 2), 16))
  const ink = (Number(blue) << 16) | (Number(green) << 8) | Number(red)
  const half = (ink >>> 1) & HALVES
  for (let x = 0; x < width; x++) {
    const share = shares[x] as number
    if (Number.isNaN(share)) continue
    const top = Math.round((1 - share) * (height - thick))
    for (let y = top, pixel = top * width + x; y < top + thick; y++, pixel += width) {
      const under = pixels[pixel] as number
      pixels[pixel] = under === 0 ? ink | (128 << 24) : (half + ((under >>> 1) & HALVES)) | (255 << 24)
    }
  }
}

/** Of three channels, what is left of each when all are shifted by one bit. */
const HALVES = 0x7f7f7f
