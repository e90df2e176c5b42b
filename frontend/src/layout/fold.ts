/** A level of the graph in, the same level with repetition folded out: "DecoderLayer x48" instead of 48 nodes. */
import type { LayoutEdge } from './types.ts'

export interface Sibling {
  readonly id: string
  /** Equal for siblings of the same class and the same inner structure. */
  readonly signature: string
  readonly name: string
}

/** `chain`: one after another; `parallel`: all between the same neighbours. */
export interface Stack {
  readonly id: string
  readonly kind: 'chain' | 'parallel'
  /** Name of the first member. */
  readonly name: string
  /** In execution order. */
  readonly members: readonly string[]
}

export interface Folded {
  readonly stacks: readonly Stack[]
  /** In execution order. A stack is a node with its own id in the place of its first member. */
  readonly nodes: readonly Sibling[]
  /** One for each pair of nodes; `gradient` if any edge of the pair is. Edges inside stacks are left out. */
  readonly edges: readonly LayoutEdge[]
}

/** Fewer than this read better one by one. */
const FEWEST = 4

/** `nodes` in execution order. Stacks whose id is in `open` stay unfolded. A fold never makes a cycle, and it never
 *  hides a connection between members that isn't part of the chain. Throws an Error that names an unknown id. */
export function fold(
  nodes: readonly Sibling[],
  edges: readonly LayoutEdge[],
  open: ReadonlySet<string> = new Set(),
): Folded {
  const neighbours = neighboursOf(nodes, edges)
  const taken = new Set<string>()
  const stacks: Stack[] = []
  for (const [kind, groups] of [
    ['parallel', parallelGroups(nodes, neighbours)],
    ['chain', chains(nodes, neighbours)],
  ] as const)
    for (const group of groups) {
      const [first] = group
      if (!first || group.length < FEWEST || group.some(({ id }) => taken.has(id))) continue
      for (const { id } of group) taken.add(id)
      const id = unusedId(`stack:${first.id}`, neighbours)
      if (!open.has(id)) stacks.push({ id, kind, name: first.name, members: group.map((node) => node.id) })
    }
  return folded(nodes, edges, stacks)
}

interface Neighbours {
  readonly from: Set<string>
  readonly to: Set<string>
}

function neighboursOf(nodes: readonly Sibling[], edges: readonly LayoutEdge[]): Map<string, Neighbours> {
  const neighbours = new Map<string, Neighbours>()
  for (const { id } of nodes) neighbours.set(id, { from: new Set(), to: new Set() })
  for (const { source, target } of edges) {
    const ends = [neighbours.get(source), neighbours.get(target)] as const
    for (const [i, id] of [source, target].entries())
      if (!ends[i])
        throw new Error(
          `edge ${JSON.stringify(source)} -> ${JSON.stringify(target)}: no node ${JSON.stringify(id)}`,
        )
    ends[0]?.to.add(target)
    ends[1]?.from.add(source)
  }
  return neighbours
}

/** Siblings of one signature with the same neighbours before and after, as the experts of a mixture. */
function parallelGroups(nodes: readonly Sibling[], neighbours: ReadonlyMap<string, Neighbours>): Sibling[][] {
  const groups = new Map<string, Sibling[]>()
  for (const node of nodes) {
    const { from, to } = neighbours.get(node.id) as Neighbours
    const key = JSON.stringify([node.signature, [...from].sort(), [...to].sort()])
    const group = groups.get(key) ?? []
    groups.set(key, group)
    group.push(node)
  }
  return [...groups.values()]
}

/** Longest runs of siblings of one signature in which each feeds the next and no other of its kind, and no way leads
 *  from the run past other nodes back into it. */
function chains(nodes: readonly Sibling[], neighbours: ReadonlyMap<string, Neighbours>): Sibling[][] {
  const byId = new Map(nodes.map((node) => [node.id, node]))
  const onlyLike = (node: Sibling, ids: ReadonlySet<string> = new Set()): Sibling | undefined => {
    const alike = [...ids].flatMap((id) => {
      const other = byId.get(id)
      return other && other.signature === node.signature && other !== node ? [other] : []
    })
    return alike.length === 1 ? alike[0] : undefined
  }
  const next = (node: Sibling): Sibling | undefined => {
    const after = onlyLike(node, neighbours.get(node.id)?.to)
    return after && onlyLike(after, neighbours.get(after.id)?.from) === node ? after : undefined
  }
  const used = new Set<Sibling>()
  const runs: Sibling[][] = []
  for (const start of nodes) {
    if (used.has(start)) continue
    const run: Sibling[] = []
    const reached = new Set<string>()
    let member: Sibling | undefined = start
    while (member && !used.has(member) && !reached.has(member.id)) {
      used.add(member)
      run.push(member)
      const after = next(member)
      if (after) reachAround(member.id, after.id, reached, neighbours)
      member = after
    }
    runs.push(run)
  }
  return runs
}

/** Add to `reached` what can be reached from `start`, a member of a run, other than by its edge to the `following`
 *  member. */
function reachAround(
  start: string,
  following: string,
  reached: Set<string>,
  neighbours: ReadonlyMap<string, Neighbours>,
): void {
  const stack = [start]
  for (let id = stack.pop(); id !== undefined; id = stack.pop())
    for (const next of neighbours.get(id)?.to ?? [])
      if (!(id === start && next === following) && !reached.has(next)) {
        reached.add(next)
        stack.push(next)
      }
}

function unusedId(wish: string, known: ReadonlyMap<string, unknown>): string {
  return known.has(wish) ? unusedId(`${wish}'`, known) : wish
}

function folded(nodes: readonly Sibling[], edges: readonly LayoutEdge[], stacks: readonly Stack[]): Folded {
  const stackOf = new Map(stacks.flatMap((stack) => stack.members.map((id) => [id, stack] as const)))
  const seen = new Set<Stack>()
  const foldedNodes = nodes.flatMap((node) => {
    const stack = stackOf.get(node.id)
    if (!stack) return [node]
    if (seen.has(stack)) return []
    seen.add(stack)
    return [{ ...node, id: stack.id }]
  })
  const foldedEdges = new Map<string, LayoutEdge>()
  for (const edge of edges) {
    const [from, to] = [stackOf.get(edge.source), stackOf.get(edge.target)]
    if (from && from === to) continue
    const [source, target] = [from?.id ?? edge.source, to?.id ?? edge.target]
    const key = JSON.stringify([source, target])
    const known = foldedEdges.get(key)
    if (known?.kind !== 'gradient') foldedEdges.set(key, { source, target, kind: edge.kind })
  }
  return { stacks: [...seen], nodes: foldedNodes, edges: [...foldedEdges.values()] }
}
