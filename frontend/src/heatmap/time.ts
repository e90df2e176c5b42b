/** Where logged steps lie from left to right: by their number, by the clock, or by the user's own time. Pure. */
import type { History } from '../api/decode.ts'
import * as format from '../format.ts'
import { type Domain, nearest } from './columns.ts'

export type TimeAxis = 'step' | 'time' | 'wall'

type Timed = Pick<History, 'steps' | 'wall' | 'time'>

/** Where the steps of a history lie, ascending: their numbers, seconds since the first record, or the user's
 *  time. Null where that is no axis: a time is unknown or goes back. */
export function placesOf(history: Timed, axis: TimeAxis): readonly number[] | null {
  if (axis === 'step') return history.steps
  let known = places.get(history)
  if (known === undefined) {
    known = { wall: spread(clock(history.wall)), time: ascending(history.time) }
    places.set(history, known)
  }
  return known[axis]
}

const places = new WeakMap<Timed, Readonly<Record<'wall' | 'time', readonly number[] | null>>>()

/** Where one step lies; one that the history has not, where the nearest does. */
export function placeOf(history: Timed, step: number, axis: TimeAxis): number {
  if (axis === 'step') return step
  return placesOf(history, axis)?.[nearest(history.steps, step)] ?? Number.NaN
}

/** Seconds since the first; a clock that was set back stands still meanwhile. */
function clock(wall: readonly number[]): number[] {
  let latest = -Infinity
  return wall.map((at) => {
    latest = Math.max(latest, at)
    return latest - (wall[0] as number)
  })
}

function ascending(time: History['time']): readonly number[] | null {
  const known = time.filter((at) => at !== null)
  const rises = known.every((at, position) => at >= (known[position - 1] ?? -Infinity))
  return known.length === time.length && rises ? spread(known) : null
}

/** Steps of one time (an epoch, say) share the room up to the next one evenly. */
function spread(times: readonly number[]): number[] {
  const apart: number[] = []
  let room = 1
  for (let from = 0; from < times.length; from = apart.length) {
    const at = times[from] as number
    let to = from + 1
    while (times[to] === at) to++
    const next = times[to]
    if (next !== undefined) room = next - at
    for (let step = from; step < to; step++) apart.push(at + (room * (step - from)) / (to - from))
  }
  return apart
}

/** Seconds that are round to a reader of clocks. */
const CLOCK = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400]

/** Round marks for an axis of `width` pixels, at most one per `room` pixels, within the domain; whole steps. */
export function ticks({ first, last }: Domain, width: number, room = 70, axis: TimeAxis = 'step'): number[] {
  const raw = (last - first) / Math.max(1, Math.floor(width / room))
  const power = 10 ** Math.floor(Math.log10(raw))
  let size = ([1, 2, 5].find((factor) => factor * power >= raw) ?? 10) * power
  if (axis === 'step') size = Math.max(1, size)
  if (axis === 'wall' && raw > 1) size = CLOCK.find((seconds) => seconds >= raw) ?? size
  const marks: number[] = []
  for (let mark = Math.ceil(first / size); mark * size <= last; mark++)
    marks.push(Number((mark * size).toPrecision(12)) + 0)
  return marks
}

/** A mark of the axis in words: `1,200`, `90 s`, `1 h 20 min`, `2.5`. */
export function tickText(mark: number, axis: TimeAxis): string {
  if (axis === 'step') return format.whole(mark)
  // Marks are round: all of their digits are few, and the first three need not tell them apart.
  const text = format.number(mark, 12)
  if (axis === 'time') return text
  return mark < 1 || (mark < 600 && mark % 60 !== 0) ? `${text} s` : format.duration(mark)
}
