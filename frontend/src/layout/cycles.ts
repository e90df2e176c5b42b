/** Directed graph in, the edges to turn round so that no cycle is left out. */

/** For each edge `[source, target]` of a graph of `count` nodes: does it close a cycle? Nodes are numbered in
 *  execution order; within a cycle the edges that run against it are the ones to turn. Edges outside cycles are
 *  never turned, whatever the numbering: afterwards each strongly connected part is sorted by number, and the
 *  parts themselves are acyclic. */
export function closingEdges(count: number, edges: readonly (readonly [number, number])[]): boolean[] {
  const part = strongParts(count, edges)
  return edges.map(([source, target]) => part[source] === part[target] && source > target)
}

/** Tarjan: "Depth-first search and linear graph algorithms" (1972), with its own stack: a chain of 2,000 modules
 *  would overflow the call stack. */
function strongParts(count: number, edges: readonly (readonly [number, number])[]): Int32Array {
  const targets: number[][] = Array.from({ length: count }, () => [])
  for (const [source, target] of edges) targets[source]?.push(target)

  const part = new Int32Array(count).fill(-1)
  const entered = new Int32Array(count).fill(-1)
  const lowest = new Int32Array(count)
  const open: number[] = []
  const path: { node: number; rest: Iterator<number> }[] = []
  let clock = 0
  let parts = 0

  const enter = (node: number) => {
    entered[node] = lowest[node] = clock++
    open.push(node)
    path.push({ node, rest: (targets[node] ?? []).values() })
  }
  const reaches = (node: number, time: number | undefined) => {
    lowest[node] = Math.min(lowest[node] as number, time as number)
  }

  for (let root = 0; root < count; root++) {
    if (entered[root] === -1) enter(root)
    for (let top = path.at(-1); top; top = path.at(-1)) {
      const { node, rest } = top
      const next = rest.next()
      if (!next.done) {
        if (entered[next.value] === -1) enter(next.value)
        else if (part[next.value] === -1) reaches(node, entered[next.value])
        continue
      }
      path.pop()
      const parent = path.at(-1)
      if (parent) reaches(parent.node, lowest[node])
      if (lowest[node] !== entered[node]) continue
      for (let member = open.pop(); member !== undefined; member = open.pop()) {
        part[member] = parts
        if (member === node) break
      }
      parts++
    }
  }
  return part
}
