/** Repetition among the units of a level: runs that can be folded without making a cycle. */
import { patternsOf } from './patterns.ts'
import { type Unit, Ways } from './units.ts'

export interface Run {
  /** `chain`: of one kind, one after another; `parallel`: of one kind, all between the same neighbours; `pattern`: several
   *  kinds in turn (patterns.ts). */
  readonly kind: 'chain' | 'parallel' | 'pattern'
  readonly units: readonly Unit[]
  /** How many parts are alike. */
  readonly parts: number
}

/** Fewer than this read better one by one. */
export const FEWEST = 4

/** `kinds`: equal for units that are alike. */
export function runsOf(units: readonly Unit[], kinds: ReadonlyMap<Unit, number>): Run[] {
  const taken = new Set<Unit>()
  const runs: Run[] = []
  for (const [kind, found] of [
    ['parallel', parallelGroups(units, kinds)],
    ['chain', chains(units, kinds)],
  ] as const)
    for (const run of found) {
      if (run.length < FEWEST || run.some((unit) => taken.has(unit))) continue
      for (const unit of run) taken.add(unit)
      runs.push({ kind, units: run, parts: run.length })
    }
  for (const { units: run, repeats } of patternsOf(units, kinds, taken))
    runs.push({ kind: 'pattern', units: run, parts: repeats })
  return runs
}

/** Units of one kind with the same neighbours before and after, as the experts of a mixture. */
function parallelGroups(units: readonly Unit[], kinds: ReadonlyMap<Unit, number>): Unit[][] {
  const groups = new Map<string, Unit[]>()
  const orders = (neighbours: readonly Unit[]): string =>
    neighbours
      .map(({ order }) => order)
      .sort()
      .join()
  for (const unit of units) {
    const key = `${kinds.get(unit)} ${orders(unit.from)} ${orders(unit.to)}`
    const group = groups.get(key)
    if (group) group.push(unit)
    else groups.set(key, [unit])
  }
  return [...groups.values()]
}

/** Longest runs of units of one kind in which each feeds the next and no other of its kind, and no way leads from the
 *  run past other units back into it. */
function chains(units: readonly Unit[], kinds: ReadonlyMap<Unit, number>): Unit[][] {
  const onlyLike = (unit: Unit, others: readonly Unit[]): Unit | undefined => {
    const alike = others.filter((other) => kinds.get(other) === kinds.get(unit))
    return alike.length === 1 ? alike[0] : undefined
  }
  const next = (unit: Unit): Unit | undefined => {
    const after = onlyLike(unit, unit.to)
    return after && onlyLike(after, after.from) === unit ? after : undefined
  }
  const used = new Set<Unit>()
  const runs: Unit[][] = []
  for (const start of units) {
    if (used.has(start)) continue
    const run: Unit[] = []
    const around = new Ways()
    for (let unit: Unit | undefined = start; unit && !used.has(unit); ) {
      used.add(unit)
      run.push(unit)
      const after = next(unit)
      around.leave(unit, (other) => other === after)
      unit = after && !around.leadTo([after]) ? after : undefined
    }
    runs.push(run)
  }
  return runs
}
