/** A level with some of its siblings folded together: what stands for what, and what leads where. */
import type { LayoutEdge } from './types.ts'

/** What is drawn as one box: a sibling, or all that are folded together. */
export interface Unit {
  readonly id: string
  /** Ids of siblings, in execution order. */
  readonly members: readonly string[]
  /** Neighbours before and after, each once. */
  readonly from: Unit[]
  readonly to: Unit[]
  /** Place in an order in which edges lead from smaller to larger ones, as far as cycles allow. */
  order: number
}

/** Siblings folded in some way; `units` by the order of execution of their first members. */
export interface Units {
  readonly units: readonly Unit[]
  readonly of: ReadonlyMap<string, Unit>
}

/** The units of `ids` (in execution order), those of `groups` folded together. */
export function unitsOf(
  ids: readonly string[],
  edges: readonly LayoutEdge[],
  groups: readonly { readonly id: string; readonly members: readonly string[] }[],
): Units {
  const of = new Map<string, Unit>()
  const add = (id: string, members: readonly string[]): void => {
    const unit = { id, members, from: [], to: [], order: 0 }
    for (const member of members) of.set(member, unit)
  }
  for (const { id, members } of groups) add(id, members)
  for (const id of ids) if (!of.has(id)) add(id, [id])
  const units = [...new Set(ids.map((id) => of.get(id) as Unit))]
  units.forEach((unit, order) => {
    unit.order = order
  })
  const pairs = new Set<number>()
  for (const { source, target } of edges) {
    const [from, to] = [of.get(source), of.get(target)] as [Unit, Unit]
    const pair = pairOf(from, to, units)
    if (from === to || pairs.has(pair)) continue
    pairs.add(pair)
    from.to.push(to)
    to.from.push(from)
  }
  sort(units)
  return { units, of }
}

/** One number for two units. */
export function pairOf(from: Unit, to: Unit, units: readonly Unit[]): number {
  return from.order * units.length + to.order
}

/** As they were given, if no edge leads back. Else by Kahn: "Topological sorting of large networks" (1962); units of
 *  cycles come last. */
function sort(units: readonly Unit[]): void {
  if (units.every(({ to, order }) => to.every((next) => next.order > order))) return
  for (const unit of units) unit.order = -unit.from.length
  const sorted = units.filter(({ order }) => order === 0)
  for (const { to } of sorted) for (const next of to) if (++next.order === 0) sorted.push(next)
  for (const unit of units) if (unit.order < 0) sorted.push(unit)
  sorted.forEach((unit, order) => {
    unit.order = order
  })
}

/** What can be reached from units that were left, on ways that a caller asks for one piece at a time. */
export class Ways {
  readonly #reached = new Set<Unit>()
  #waiting: Unit[] = []

  /** All ways from `unit` on, other than to what `allowed` says. */
  leave(unit: Unit, allowed: (next: Unit) => boolean): void {
    for (const next of unit.to) if (!allowed(next)) this.#visit(next)
  }

  /** Whether a way leads to any of `units`. What comes after all of them is not looked at: it can't lead back. */
  leadTo(units: readonly Unit[]): boolean {
    const last = units.reduce((most, { order }) => Math.max(most, order), 0)
    const later: Unit[] = []
    for (let step = this.#waiting.pop(); step; step = this.#waiting.pop()) {
      if (step.order >= last) later.push(step)
      else for (const next of step.to) this.#visit(next)
    }
    this.#waiting = later
    return units.some((unit) => this.#reached.has(unit))
  }

  #visit(unit: Unit): void {
    if (this.#reached.has(unit)) return
    this.#reached.add(unit)
    this.#waiting.push(unit)
  }
}
