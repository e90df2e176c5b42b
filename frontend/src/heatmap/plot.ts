/** One track to everything its heat map draws, in numbers. Pure; draw.ts puts it on a canvas. */
import type { History, Track } from '../api/decode.ts'
import { STATUS, Status } from '../schema.ts'
import { type Axis, type AxisKind, type Extent, extent, hasValues, makeAxis } from './axis.ts'
import { type Columns, type Domain, pixelColumns, shareOf } from './columns.ts'
import { type Grid, resample } from './grid.ts'

export interface Plot {
  readonly track: Track
  readonly bins: number
  /** Indices into `History.steps` of the steps that this track's phase has. */
  readonly chosen: readonly number[]
  /** The steps themselves, and where they lie from left to right, 0..1. */
  readonly steps: readonly number[]
  readonly places: readonly number[]
  readonly columns: Columns
  /** Where a new process went on, 0..1 from left to right: between its first step and the one before. */
  readonly restarts: readonly number[]
  /** Null where there is nothing to draw; `blank` says why. */
  readonly drawn: Drawn | null
  readonly blank: string
  readonly broken: Broken
}

export interface Drawn {
  readonly axis: Axis
  readonly extent: Extent
  readonly grid: Grid
  /** For each pixel column the exact smallest and largest value of its steps, as places on the axis within 0..1; NaN
   *  where no step has values. */
  readonly lowest: Float32Array
  readonly highest: Float32Array
  /** Height of y = 0, 0..1 from the bottom, null where that is not within the axis. */
  readonly zero: number | null
}

/** Values that are not finite: how many of each kind over all steps, and the steps (indices into `chosen`). */
export interface Broken {
  readonly nan: number
  readonly posinf: number
  readonly neginf: number
  readonly at: readonly number[]
}

/** Steps are logged at even numbers but not at even times; a pause is a gap from so many times the usual on. */
const JITTER = 4

/** `range` replaces the track's own extent, where panels share an axis; `lie` says where the steps of the
 *  history lie in the domain. */
export function plotOf(
  history: History,
  track: Track,
  domain: Domain,
  width: number,
  rows: number,
  kind: AxisKind,
  range: Extent | null = extent(track),
  lie: readonly number[] = history.steps,
): Plot {
  const chosen = stepsOfPhase(history, track)
  const steps = chosen.map((step) => history.steps[step] as number)
  const places = chosen.map((step) => lie[step] as number)
  const columns = pixelColumns(places, domain, width, lie === history.steps ? 1 : JITTER)
  const own = extent(track)
  return {
    track,
    bins: history.bins,
    chosen,
    steps,
    places: places.map((place) => shareOf(place, domain)),
    columns,
    restarts: restartsOf(history, lie).map((place) => shareOf(place, domain)),
    drawn:
      own === null ? null : drawnOf(history, track, chosen, columns, rows, makeAxis(kind, range ?? own), own),
    blank: own === null ? reasonFor(track, chosen) : '',
    broken: brokenOf(track, chosen),
  }
}

function drawnOf(
  history: History,
  track: Track,
  chosen: readonly number[],
  columns: Columns,
  rows: number,
  axis: Axis,
  own: Extent,
): Drawn {
  const zero = axis.place(0)
  return {
    axis,
    extent: own,
    ...extremesOf(track, chosen, columns, axis),
    grid: resample(track, history.bins, chosen, axis, columns, rows),
    zero: zero >= 0 && zero <= 1 ? zero : null,
  }
}

function extremesOf(
  track: Track,
  chosen: readonly number[],
  { width, first, amount }: Columns,
  axis: Axis,
): Pick<Drawn, 'lowest' | 'highest'> {
  const [lowest, highest] = [new Float32Array(width), new Float32Array(width)]
  const place = (value: number): number => Math.min(1, Math.max(0, axis.place(value)))
  for (let x = 0; x < width; x++) {
    let [min, max] = [Infinity, -Infinity]
    for (let part = 0; part < (amount[x] as number); part++) {
      const step = chosen[(first[x] as number) + part]
      if (step === undefined || !hasValues(track, step)) continue
      min = Math.min(min, track.rows.min[step] as number)
      max = Math.max(max, track.rows.max[step] as number)
    }
    lowest[x] = min > max ? Number.NaN : place(min)
    highest[x] = min > max ? Number.NaN : place(max)
  }
  return { lowest, highest }
}

/** A train track is blank ("did not run") at the steps of evaluation records, and the other way round; those
 *  steps are not gaps of the track. A step counts if any track of the same phase ran at it. */
export function stepsOfPhase(history: History, track: Track): number[] {
  const mates = history.tracks.filter(({ head }) => head.phase === track.head.phase)
  return history.steps.flatMap((_, step) =>
    mates.some(({ rows }) => rows.status[step] !== Status.NOT_RUN) ? [step] : [],
  )
}

/** Why a track has no value at all: the most frequent reason of its steps. */
export function reasonFor(track: Track, chosen: readonly number[]): string {
  const seen = new Map<number, number>()
  for (const step of chosen) {
    const status = track.rows.status[step] as number
    seen.set(status, (seen.get(status) ?? 0) + 1)
  }
  const [most] = [...seen].sort(([, one], [, other]) => other - one)
  if (most === undefined) return WAITING
  return most[0] === Status.OK ? 'no finite value' : statusText(most[0])
}

export const WAITING = 'waiting for the first record'

export function statusText(status: number): string {
  return STATUS[status] ?? `not recorded (reason ${status}, from a newer version)`
}

/** Those before the first step that is here are left out: nothing stands to their left. */
function restartsOf({ restarts, steps }: History, lie: readonly number[]): number[] {
  return restarts.flatMap((step) => {
    const at = steps.findIndex((other) => other >= step)
    return at > 0 ? [((lie[at - 1] as number) + (lie[at] as number)) / 2] : []
  })
}

function brokenOf({ rows }: Track, chosen: readonly number[]): Broken {
  const broken = { nan: 0, posinf: 0, neginf: 0, at: [] as number[] }
  chosen.forEach((step, position) => {
    const [nan, posinf, neginf] = [
      rows.nan[step] as number,
      rows.posinf[step] as number,
      rows.neginf[step] as number,
    ]
    if (nan + posinf + neginf === 0) return
    broken.nan += nan
    broken.posinf += posinf
    broken.neginf += neginf
    broken.at.push(position)
  })
  return broken
}

/** What lies under a point of a plot. `entries` is null outside the bins or on a blank step. */
export interface Probe {
  readonly step: number
  /** Index into `History.steps`. */
  readonly index: number
  readonly blank: string
  readonly bin: {
    readonly low: number
    readonly high: number
    readonly entries: number
    readonly kept: number
  } | null
}

/** `value` is that at the pointer's height. */
export function probe(plot: Plot, position: number, value: number): Probe | null {
  const index = plot.chosen[position]
  const step = plot.steps[position]
  if (index === undefined || step === undefined) return null
  const { rows } = plot.track
  if (!hasValues(plot.track, index)) {
    const status = rows.status[index] as number
    return { step, index, blank: status === Status.OK ? 'no finite value' : statusText(status), bin: null }
  }
  return { step, index, blank: '', bin: binAt(plot, index, value) }
}

function binAt({ track, bins }: Plot, index: number, value: number): Probe['bin'] {
  const [low, high] = [track.rows.low[index] as number, track.rows.high[index] as number]
  const counts = track.counts.subarray(index * bins, (index + 1) * bins)
  let kept = 0
  for (const count of counts) kept += count
  if (low === high) return { low, high, entries: kept, kept }
  if (value < low || value > high) return null
  // Halves, as on the axis; of the smallest doubles nothing is left of them.
  const share = (value / 2 - low / 2) / (high / 2 - low / 2) || 0
  const bin = Math.min(bins - 1, Math.floor(share * bins))
  const edge = (at: number): number => low * (1 - at / bins) + high * (at / bins)
  return { low: edge(bin), high: edge(bin + 1), entries: counts[bin] as number, kept }
}
