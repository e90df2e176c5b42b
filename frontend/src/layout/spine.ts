/** Ranked graph in, the main path out: the heaviest way from a source to a sink. */
import { type Line, type Vertex, WEIGHT } from './model.ts'
import { topological } from './ranks.ts'

/** A path that begins at an input or ends at an output is worth this much more than one that doesn't, so that the
 *  main path ends at the model's output rather than at a loss one module deeper. */
const PLACEHOLDER = 2 * WEIGHT.gradient

/** Fills `before` and `after` of the nodes and returns the lines of the main path from top to bottom. Among equal
 *  continuations the middle one in execution order wins, so that parallel siblings spread to both sides. */
export function mainPath(nodes: readonly Vertex[]): Line[] {
  const sorted = topological(nodes)
  for (const node of sorted) {
    node.before = node.kind === 'input' ? PLACEHOLDER : 0
    for (const { upper, kind } of node.into) node.before = Math.max(node.before, upper.before + WEIGHT[kind])
  }
  for (const node of sorted.toReversed()) {
    node.after = node.kind === 'output' ? PLACEHOLDER : 0
    for (const { lower, kind } of node.out) node.after = Math.max(node.after, lower.after + WEIGHT[kind])
  }
  const path: Line[] = []
  const sources = nodes.filter((node) => node.into.length === 0)
  let node = middleOfBest(sources, (source) => source.after + source.before)
  while (node) {
    const line: Line | undefined = middleOfBest(node.out, ({ lower, kind }) => lower.after + WEIGHT[kind])
    if (line) path.push(line)
    node = line?.lower
  }
  return path
}

function middleOfBest<T>(candidates: readonly T[], worth: (candidate: T) => number): T | undefined {
  let best = Number.NEGATIVE_INFINITY
  for (const candidate of candidates) best = Math.max(best, worth(candidate))
  const equal = candidates.filter((candidate) => worth(candidate) === best)
  return equal[(equal.length - 1) >> 1]
}
