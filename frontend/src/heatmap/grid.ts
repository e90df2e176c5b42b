/** Histograms to pixels. Pure: typed arrays in, typed arrays out. */
import type { Track } from '../api/decode.ts'
import { type Axis, hasValues } from './axis.ts'
import { FAINTEST } from './colours.ts'
import type { Columns } from './columns.ts'

/** `cells[y * width + x]` is the number of entries in that pixel, 0 for none; y counts from the top. */
export interface Grid {
  readonly width: number
  readonly rows: number
  readonly cells: Float32Array
}

export type Intensity = 'root' | 'linear' | 'log'
/** Against what a cell's count is measured: the fullest cell of all steps, or of its own step. */
export type Normal = 'all' | 'step'

/** The counts of `track` at the steps `chosen` (indices), spread over `rows` equal rows of `axis`.
 *
 *  Each step was binned over its own range, because an event file can't be rewritten. A bin that straddles
 *  rows is split in proportion, so that totals keep; a pixel of several steps gets their mean. */
export function resample(
  track: Track,
  bins: number,
  chosen: readonly number[],
  axis: Axis,
  columns: Columns,
  rows: number,
): Grid {
  const { width } = columns
  const cells = new Float32Array(width * rows)
  const slices = chosen.map((step) => sliceOf(track, bins, step, axis, rows))
  for (let x = 0; x < width; x++) {
    const amount = columns.amount[x] as number
    for (let part = 0; part < amount; part++) {
      const slice = slices[(columns.first[x] as number) + part]
      if (slice === null || slice === undefined) continue
      for (let row = 0, cell = (rows - 1) * width + x; row < rows; row++, cell -= width)
        cells[cell] = (cells[cell] as number) + (slice[row] as number) / amount
    }
  }
  return { width, rows, cells }
}

/** Entries per row of the axis, from the bottom up; null where the step has no value. */
function sliceOf(track: Track, bins: number, step: number, axis: Axis, rows: number): Float32Array | null {
  if (!hasValues(track, step)) return null
  const slice = new Float32Array(rows)
  const low = track.rows.low[step] as number
  const high = track.rows.high[step] as number
  // Clamped, since rounding may leave the axis by more than a narrow histogram is high. Where all of the
  // axis is narrower than rounding, a place is no number: the bottom row is as good as any.
  const edge = (at: number): number =>
    Math.min(rows, Math.max(0, axis.place(low * (1 - at / bins) + high * (at / bins)) * rows || 0))
  // The upper edge of a bin is the lower one of the next; those between empty bins are not needed.
  let [known, upper] = [0, edge(0)]
  for (let bin = 0; bin < bins; bin++) {
    const count = track.counts[step * bins + bin] as number
    if (count === 0) continue
    const lower = known === bin ? upper : edge(bin)
    known = bin + 1
    upper = edge(known)
    spread(slice, count, lower, upper)
  }
  return slice
}

/** Adds `count` to the rows between `lower` and `upper` (in rows, both within 0..rows). */
function spread(slice: Float32Array, count: number, lower: number, upper: number): void {
  const top = slice.length - 1
  const from = Math.min(top, Math.max(0, Math.floor(lower)))
  const to = Math.min(top, Math.max(from, Math.ceil(upper) - 1))
  if (from === to) {
    slice[from] = (slice[from] as number) + count
    return
  }
  const height = upper - lower
  for (let row = from; row <= to; row++) {
    const overlap = Math.min(row + 1, upper) - Math.max(row, lower)
    slice[row] = (slice[row] as number) + (count * overlap) / height
  }
}

/** For each cell of `grid` its entry in a colour table, 0 for none. A cell that holds anything gets at least the
 *  faintest tint, so that few never looks like none. Remembered: another theme needs the same. */
export function entriesOf(grid: Grid, intensity: Intensity, normal: Normal): Uint8Array {
  const look = `${intensity} ${normal}`
  const known = remembered.get(grid)
  if (known?.look === look) return known.entries
  const { width, rows, cells } = grid
  const bend = BENDS[intensity]
  const peaks = columnPeaks(grid)
  if (normal === 'all') peaks.fill(peaks.reduce((one, other) => Math.max(one, other), 0))
  const scales = Float64Array.from(peaks, (most) => (255 - FAINTEST) / bend(most))
  const entries = new Uint8Array(cells.length)
  for (let y = 0, cell = 0; y < rows; y++) {
    for (let x = 0; x < width; x++, cell++) {
      const value = cells[cell] as number
      if (value > 0) entries[cell] = FAINTEST + Math.round(bend(value) * (scales[x] as number))
    }
  }
  remembered.set(grid, { look, entries })
  return entries
}

const remembered = new WeakMap<Grid, { readonly look: string; readonly entries: Uint8Array }>()

const BENDS: Readonly<Record<Intensity, (value: number) => number>> = {
  root: Math.sqrt,
  linear: (value) => value,
  log: Math.log1p,
}

function columnPeaks({ width, rows, cells }: Grid): Float32Array {
  const peaks = new Float32Array(width)
  for (let y = 0, cell = 0; y < rows; y++) {
    for (let x = 0; x < width; x++, cell++) {
      const value = cells[cell] as number
      if (value > (peaks[x] as number)) peaks[x] = value
    }
  }
  return peaks
}
