/** Levels that are spelled, a letter for each node, and edges of levels: for the tests of folding. */
import type { Sibling } from './fold.ts'
import type { LayoutEdge } from './types.ts'

/** Nodes 0, 1, ... with one letter each as signature. */
export function siblings(signatures: string): Sibling[] {
  return [...signatures].map((signature, i) => ({ id: `${i}`, signature }))
}

export function chained(signatures: string): LayoutEdge[] {
  return [...signatures].slice(1).map((_, i) => gradient(`${i}`, `${i + 1}`))
}

export function gradient(source: string, target: string): LayoutEdge {
  return { source, target, kind: 'gradient' }
}

export function ends({ source, target }: LayoutEdge): string {
  return `${source}>${target}`
}

export function acyclic(nodes: readonly string[], edges: readonly LayoutEdge[]): boolean {
  const left = new Set(nodes)
  for (let size = -1; size !== left.size; ) {
    size = left.size
    for (const id of left)
      if (!edges.some(({ source, target }) => target === id && left.has(source))) left.delete(id)
  }
  return left.size === 0
}
