/** Nodes of one connected part in, a row (`rank`) for each out: every line runs at least `leastSpan` rows down. */
import { type Line, leastSpan, type Vertex, WEIGHT } from './model.ts'

/** Longest path from the sources, then nodes with slack slide towards the lines they shorten, so that a mask or a
 *  target sequence sits next to the module that uses it. Placeholders within `reach` rows of the ends go there. */
export function rank(nodes: readonly Vertex[], reach: number): void {
  const sorted = topological(nodes)
  for (const node of sorted) {
    node.rank = 0
    for (const line of node.into) node.rank = Math.max(node.rank, line.upper.rank + leastSpan(line))
  }
  for (let pass = 0; pass < PASSES && slideAll(sorted); pass++);
  normalise(nodes)
  moveToEnds(nodes, reach)
}

/** Kahn's order; ties in execution order. Also used by spine.ts. */
export function topological(nodes: readonly Vertex[]): Vertex[] {
  // `score`, not yet in use, counts the lines that have still to come.
  for (const node of nodes) node.score = node.into.length
  const sorted = nodes.filter((node) => node.into.length === 0)
  for (const node of sorted) for (const { lower } of node.out) if (--lower.score === 0) sorted.push(lower)
  return sorted
}

/** Sliding one group can free another; four passes settle every graph of the gallery. */
const PASSES = 4

/** A larger group is the main body of the graph, which can't gain by sliding; this bounds the search. */
const LARGEST_GROUP = 400

function slideAll(sorted: readonly Vertex[]): boolean {
  let moved = false
  for (const node of sorted.toReversed()) {
    if (node.out.length === 0 || node.out.some((line) => slack(line) === 0)) continue
    moved = slide(new Set([node])) || slide(hangingOn(node)) || moved
  }
  return moved
}

/** `node` and everything above that is tied to it by lines without slack. */
function hangingOn(node: Vertex): Set<Vertex> {
  const group = new Set([node])
  for (const member of group) {
    if (group.size > LARGEST_GROUP) break
    for (const line of member.into) if (slack(line) === 0) group.add(line.upper)
  }
  return group
}

/** Move the group down as far as its lines allow, if that makes the sum of weighted line lengths smaller. */
function slide(group: ReadonlySet<Vertex>): boolean {
  if (group.size > LARGEST_GROUP) return false
  let gain = 0
  let room = Number.POSITIVE_INFINITY
  for (const member of group) {
    for (const line of member.into) if (!group.has(line.upper)) gain -= WEIGHT[line.kind]
    for (const line of member.out) {
      if (group.has(line.lower)) continue
      gain += WEIGHT[line.kind]
      room = Math.min(room, slack(line))
    }
  }
  if (gain <= 0 || room === 0) return false
  for (const member of group) member.rank += room
  return true
}

function slack(line: Line): number {
  return line.lower.rank - line.upper.rank - leastSpan(line)
}

function normalise(nodes: readonly Vertex[]): void {
  let first = Number.POSITIVE_INFINITY
  for (const node of nodes) first = Math.min(first, node.rank)
  for (const node of nodes) node.rank -= first
}

function moveToEnds(nodes: readonly Vertex[], reach: number): void {
  let last = 0
  for (const node of nodes) last = Math.max(last, node.rank)
  for (const node of nodes) {
    if (node.kind === 'input' && node.into.length === 0 && node.rank <= reach) node.rank = 0
    if (node.kind === 'output' && node.out.length === 0 && last - node.rank <= reach) node.rank = last
  }
}
