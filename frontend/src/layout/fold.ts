/** A level of the graph in, the same level with fewer boxes out: "blocks, Block x48" instead of 48 nodes.
 *
 *  What can be folded: `group`, the calls in one container that is itself never called, as a ModuleList; a `chain` or
 *  `parallel` run of equal siblings, or a `pattern` of several in turn (runs.ts); and a `slice`, some neighbours of a level that is too large to look at. */
import { FEWEST, type Run, runsOf } from './runs.ts'
import { checkEnds, type LayoutEdge } from './types.ts'
import { pairOf, type Unit, type Units, unitsOf, Ways } from './units.ts'

export interface Sibling {
  readonly id: string
  /** Equal for siblings of the same class and the same inner structure. */
  readonly signature: string
  /** Paths of the containers it lies in, outermost first: `down`, `down.0`, `down.0.block`. */
  readonly containers?: readonly string[]
  /** Never folded, as inputs and outputs of the level. */
  readonly apart?: boolean
}

export interface Fold {
  /** Stays the same whatever else is folded. */
  readonly id: string
  readonly kind: 'group' | Run['kind'] | 'slice'
  /** Path of the container of a group, else empty. */
  readonly path: string
  /** Siblings, in execution order. */
  readonly members: readonly string[]
  /** How many parts it has: a group's entries, however many calls each makes; the repeats of a pattern. */
  readonly parts: number
  /** Whether the parts are all alike. */
  readonly alike: boolean
}

export interface Folded<E extends LayoutEdge> {
  /** Each is one node, in the place of its first member. */
  readonly closed: readonly Fold[]
  /** Could be closed; outer ones before inner ones. */
  readonly open: readonly Fold[]
  /** Ids of siblings and closed folds, in execution order. */
  readonly nodes: readonly string[]
  /** One for each pair of nodes; `gradient` if any edge of the pair is. Edges inside folds are left out. */
  readonly edges: readonly E[]
}

/** A level with more nodes than this is shown in slices. */
export const LARGE = 1000
/** Runs up to this length don't matter to where slices end. */
const SHORT = 100
/** Telling whether a container can be folded takes a walk over the level. A level with more has other problems. */
const MOST_GROUPS = 100

/** `siblings` in execution order. `chosen` says which folds are open; where it doesn't, runs and slices are closed, and
 *  so are groups of at least four that are alike, and all groups of a large level. A fold never makes a cycle, and no
 *  run hides a connection between its members that isn't part of the chain. Throws an Error that names an unknown id. */
export function fold<E extends LayoutEdge>(
  siblings: readonly Sibling[],
  edges: readonly E[],
  chosen: ReadonlyMap<string, boolean> = new Map(),
): Folded<E> {
  const byId = new Map(siblings.map((sibling) => [sibling.id, sibling]))
  checkEnds(edges, byId)
  const ids = [...byId.keys()]
  const [closed, open]: [Fold[], Fold[]] = [[], []]
  const add = (found: Fold, isOpen: boolean): Fold => {
    const named = { ...found, id: unusedId(found.id, byId) }
    ;((chosen.get(named.id) ?? isOpen) ? open : closed).push(named)
    return named
  }

  let folded = unitsOf(ids, edges, closed)
  let known = 0
  const refold = (): void => {
    if (known !== closed.length) folded = unitsOf(ids, edges, closed)
    known = closed.length
  }

  for (const group of containersOf(siblings).slice(0, MOST_GROUPS)) {
    const inside = folded.units.filter((unit) => unit.members.every((id) => liesIn(byId.get(id), group.path)))
    if (inside.length < 2 || leavesAndReturns(inside)) continue
    add(group, siblings.length <= LARGE && !(group.alike && group.parts >= FEWEST))
    refold()
  }

  const opened = open.filter(({ id }) => chosen.get(id))
  const groups = new Set(opened.map(({ members }) => members.join()))
  const short: Fold[] = []
  for (const { kind, units, parts } of runsOf(folded.units, kindsOf(folded.units, byId))) {
    const members = units.map(({ id }) => id)
    // What was opened as a group must not close again as a run.
    if (groups.has(members.join())) continue
    const id = `${kind}:${members[0]}`
    const run = add({ id, kind, path: '', members, parts, alike: true }, false)
    if (members.length <= SHORT) short.push(run)
  }
  // Slices must not shift when a run in one of them is opened.
  const { units } = unitsOf(ids, edges, [...closed, ...short])
  if (units.length > LARGE) for (const slice of slicesOf(units, byId)) add(slice, false)
  refold()

  const shown = new Set(folded.units.map(({ id }) => id))
  const { of } = folded
  return {
    // A slice holds smaller folds as well.
    closed: closed.filter(({ id }) => shown.has(id)),
    open: open.filter(({ members: [first = '', ...rest] }) =>
      rest.some((id) => of.get(id) !== of.get(first)),
    ),
    nodes: [...shown],
    edges: edgesOf(folded, edges),
  }
}

/** A number for each unit, equal where siblings of one container are alike. What is folded is like nothing else. */
function kindsOf(units: readonly Unit[], byId: ReadonlyMap<string, Sibling>): Map<Unit, number> {
  const numbers = new Map<string, number>()
  return new Map(
    units.map((unit) => {
      const sibling = byId.get(unit.id)
      const kind = sibling === undefined ? unit.id : `${sibling.containers?.at(-1)}\n${sibling.signature}`
      const number = numbers.get(kind) ?? numbers.size
      numbers.set(kind, number)
      return [unit, number]
    }),
  )
}

function unusedId(wish: string, known: ReadonlyMap<string, unknown>): string {
  return known.has(wish) ? unusedId(`${wish}'`, known) : wish
}

function liesIn(sibling: Sibling | undefined, container: string): boolean {
  return sibling?.containers?.includes(container) ?? false
}

/** Containers with several parts, outer ones first. */
function containersOf(siblings: readonly Sibling[]): Fold[] {
  const inside = new Map<string, { depth: number; members: string[]; parts: Map<string, string[]> }>()
  for (const { id, signature, containers = [] } of siblings)
    containers.forEach((path, depth) => {
      const known = inside.get(path) ?? { depth, members: [], parts: new Map<string, string[]>() }
      inside.set(path, known)
      known.members.push(id)
      const part = containers[depth + 1] ?? id
      const signatures = known.parts.get(part)
      if (signatures) signatures.push(signature)
      else known.parts.set(part, [signature])
    })
  return [...inside]
    .sort(([, a], [, b]) => a.depth - b.depth)
    .flatMap(([path, { members, parts }]) => {
      if (parts.size < 2) return []
      const alike = new Set([...parts.values()].map((signatures) => signatures.join('\n'))).size === 1
      return [{ id: `group:${path}`, kind: 'group', path, members, parts: parts.size, alike } as const]
    })
}

/** Whether a way leads from some of the units past others back into them: one box for all would close a cycle. */
function leavesAndReturns(inside: readonly Unit[]): boolean {
  const within = new Set(inside)
  const ways = new Ways()
  for (const unit of inside) ways.leave(unit, (next) => within.has(next))
  return ways.leadTo(inside)
}

/** As many slices as each has units. In an order in which no edge leads back, neighbours can be folded freely. */
function slicesOf(units: readonly Unit[], byId: ReadonlyMap<string, Sibling>): Fold[] {
  const size = Math.round(Math.sqrt(units.length))
  const slices: { readonly container: string | undefined; readonly units: Unit[] }[] = []
  for (const unit of units.toSorted((a, b) => a.order - b.order)) {
    const sibling = byId.get(unit.members[0] ?? '')
    if (sibling?.apart) continue
    const last = slices.at(-1)
    const container = sibling?.containers?.at(-1)
    if (last && last.units.length < size && last.container === container) last.units.push(unit)
    else slices.push({ container, units: [unit] })
  }
  return slices
    .filter(({ units }) => units.length > 1)
    .map(({ units }) => {
      const members = units.flatMap((unit) => unit.members)
      const id = `slice:${members[0]}`
      return { id, kind: 'slice', path: '', members, parts: units.length, alike: false }
    })
}

function edgesOf<E extends LayoutEdge>({ units, of }: Units, edges: readonly E[]): E[] {
  const found = new Map<number, E>()
  for (const edge of edges) {
    const [source, target] = [of.get(edge.source), of.get(edge.target)] as [Unit, Unit]
    if (source === target && source.id !== edge.source) continue
    const pair = pairOf(source, target, units)
    if (found.get(pair)?.kind !== 'gradient')
      found.set(pair, { ...edge, source: source.id, target: target.id })
  }
  return [...found.values()]
}
