/** The value axis of a heat map: values to 0..1 and back. Pure. */
import type { Track } from '../api/decode.ts'
import { Status } from '../schema.ts'

export type AxisKind = 'linear' | 'symlog'

export interface Axis {
  readonly kind: AxisKind
  /** The values at the lower and upper end. */
  readonly low: number
  readonly high: number
  /** 0 at `low`, 1 at `high`; beyond them outside 0..1. */
  place(value: number): number
  /** The value at a share of the height; the inverse of `place`. */
  value(share: number): number
}

/** What the rows of a track span. `low`, `high`: the union of the bins; `min`, `max`: the exact extremes,
 *  which may lie outside, since outliers are left out of the bins; `knee`: where symlog turns linear. */
export interface Extent {
  readonly low: number
  readonly high: number
  readonly min: number
  readonly max: number
  readonly knee: number
}

/** Knee of a symlog axis as a share of its larger end: twelve decades. */
const LEAST_KNEE = 1e-12

/** Null where no row of the track holds a finite value. */
export function extent(track: Track): Extent | null {
  const { rows } = track
  let [low, high, min, max, knee] = [Infinity, -Infinity, Infinity, -Infinity, Infinity]
  for (let step = 0; step < rows.status.length; step++) {
    if (!hasValues(track, step)) continue
    const [rowLow, rowHigh] = [rows.low[step] as number, rows.high[step] as number]
    low = Math.min(low, rowLow)
    high = Math.max(high, rowHigh)
    min = Math.min(min, rows.min[step] as number)
    max = Math.max(max, rows.max[step] as number)
    const size = Math.max(Math.abs(rowLow), Math.abs(rowHigh))
    if (size > 0) knee = Math.min(knee, size)
  }
  if (low > high) return null
  return { low, high, min, max, knee: (Number.isFinite(knee) ? knee : 1) / 10 }
}

/** Whether the row of `step` has at least one finite value to draw. */
export function hasValues(track: Track, step: number): boolean {
  const { status, min, low, high } = track.rows
  return (
    status[step] === Status.OK &&
    Number.isFinite(min[step]) &&
    Number.isFinite(low[step]) &&
    Number.isFinite(high[step])
  )
}

export function union(one: Extent, other: Extent): Extent {
  return {
    low: Math.min(one.low, other.low),
    high: Math.max(one.high, other.high),
    min: Math.min(one.min, other.min),
    max: Math.max(one.max, other.max),
    knee: Math.min(one.knee, other.knee),
  }
}

/** An axis over `[low, high]`. A range of one value gets room around it, so that its bar lies in the middle.
 *  symlog is linear within ±`knee` and logarithmic beyond. */
export function makeAxis(kind: AxisKind, { low, high, knee }: Pick<Extent, 'low' | 'high' | 'knee'>): Axis {
  // Halved, since that is how places are reckoned: half of the smallest double is nothing.
  const room = high / 2 - low / 2 > 0 ? 0 : Math.abs(low) / 10 || 1
  const [bottom, top] = [low - room, high + room]
  if (kind === 'linear') {
    // Halves first: the difference of two large doubles can exceed the largest double.
    const half = top / 2 - bottom / 2
    return {
      kind,
      low: bottom,
      high: top,
      place: (value) => (value / 2 - bottom / 2) / half,
      value: (share) => bottom * (1 - share) + top * share,
    }
  }
  // A smaller knee would spend the axis on values nobody can tell from zero, and in the end divide by zero.
  const bend = Math.max(knee, Math.max(Math.abs(bottom), Math.abs(top)) * LEAST_KNEE)
  const [from, to] = [symlog(bottom, bend), symlog(top, bend)]
  return {
    kind,
    low: bottom,
    high: top,
    place: (value) => (symlog(value, bend) - from) / (to - from),
    value: (share) => unsymlog(from + (to - from) * share, bend),
  }
}

function symlog(value: number, knee: number): number {
  return Math.sign(value) * Math.log1p(Math.abs(value) / knee)
}

function unsymlog(place: number, knee: number): number {
  return Math.sign(place) * Math.expm1(Math.abs(place)) * knee
}
