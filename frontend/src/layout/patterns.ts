/** Repetition with a period among the units of a level: Conv2d, BatchNorm2d, ReLU, and the same again. */
import { type Unit, Ways } from './units.ts'

/** Longer patterns are rare, and no easier to grasp than what they stand for. */
const LONGEST = 16
/** Fewer repeats read better one by one. */
const FEWEST_REPEATS = 3

export interface Repetition {
  readonly units: readonly Unit[]
  readonly repeats: number
}

/** Stretches of `units` (in execution order) whose kinds repeat with a period of two or more, the shortest that fits,
 *  and whose data flow is a chain of the pattern: all edges between them lead within a repeat or to the next one, the
 *  same in each; others come from the same units outside, and lead to the same, apart from the first and last repeat;
 *  and no way leads from the stretch past other units back into it. So the skips of a U-Net, each of which leads
 *  elsewhere, keep it apart. `taken` are in none. */
export function patternsOf(
  units: readonly Unit[],
  kinds: ReadonlyMap<Unit, number>,
  taken: ReadonlySet<Unit>,
): Repetition[] {
  const places = new Map(units.map((unit, place) => [unit, place]))
  const used = new Set(taken)
  const found: Repetition[] = []
  for (let period = 2; period <= LONGEST; period++) {
    const recurs = (place: number): boolean => {
      const [one, other] = [units[place] as Unit, units[place + period]]
      return other !== undefined && kinds.get(one) === kinds.get(other) && !used.has(one) && !used.has(other)
    }
    for (let start = 0, end = 0; start < units.length; start = end + 1) {
      for (end = start; recurs(end); ) end++
      const length = end > start ? end - start + period : 0
      // What is left over lies in front: the first block of a model is unlike the others, since it gets the input.
      let from = start + (length % period)
      while (from + period <= start + length) {
        const repeats = repeatsFrom(from, start + length, period, units, places)
        const members = units.slice(from, from + repeats * period)
        if (repeats >= FEWEST_REPEATS) {
          for (const unit of members) used.add(unit)
          found.push({ units: members, repeats })
        }
        from += members.length
      }
    }
  }
  return found
}

/** How many repeats from the place `from` on are a chain, one at least; their kinds repeat up to `end`. */
function repeatsFrom(
  from: number,
  end: number,
  period: number,
  units: readonly Unit[],
  places: ReadonlyMap<Unit, number>,
): number {
  const startOf = (repeat: number): number => from + repeat * period
  const partOf = (repeat: number): readonly Unit[] => units.slice(startOf(repeat), startOf(repeat + 1))
  const lies = (unit: Unit, first: number, last: number): boolean => {
    const place = places.get(unit) as number
    return place >= first && place < last
  }
  /** How far back the sources of a repeat's units lie, as far as they lie from `first` to before `last`. */
  const sources = (repeat: number, first: number, last: number): string =>
    partOf(repeat)
      .map((unit) => {
        const within = unit.from.filter((source) => lies(source, first, last))
        return within.map((source) => (places.get(unit) as number) - (places.get(source) as number)).sort()
      })
      .join(';')
  /** Which units outside a repeat's ones come from, or lead to. */
  const outside = (repeat: number, side: 'from' | 'to'): string =>
    partOf(repeat)
      .map((unit) => {
        const others = unit[side].filter((other) => !lies(other, from, end))
        return others.map((other) => places.get(other)).sort()
      })
      .join(';')
  const none = ';'.repeat(period - 1)
  const inner = sources(0, from, startOf(1))
  const step = sources(1, from, startOf(1))
  const continues = (repeat: number): boolean => {
    const [before, start, after] = [startOf(repeat - 1), startOf(repeat), startOf(repeat + 1)]
    return (
      after <= end &&
      sources(repeat, start, after) === inner &&
      sources(repeat, before, start) === step &&
      sources(repeat, from, before) === none &&
      sources(repeat, after, end) === none &&
      outside(repeat, 'from') === outside(1, 'from') &&
      outside(repeat - 1, 'to') === outside(0, 'to') &&
      partOf(repeat).every(({ from }) => from.some((source) => lies(source, before, after))) &&
      partOf(repeat - 1).every(({ to }) => to.some((target) => lies(target, before, after)))
    )
  }
  const around = new Ways()
  /** Whether no way leads past other units into a repeat, from before it or from itself. */
  const closed = (repeat: number): boolean => {
    const part = partOf(repeat)
    if (around.leadTo(part)) return false
    for (const unit of part) around.leave(unit, (next) => lies(next, from, startOf(repeat + 2)))
    return !around.leadTo(part)
  }
  if (step === none || sources(0, startOf(1), end) !== none || !closed(0)) return 1
  let repeats = 1
  while (continues(repeats) && closed(repeats)) repeats++
  return repeats
}
