/** Random valid graphs for the property tests. */
import fc from 'fast-check'
import type { LayoutEdge, LayoutNode } from './types.ts'

export interface Graph {
  readonly nodes: readonly LayoutNode[]
  readonly edges: readonly LayoutEdge[]
}

const node = fc.record({
  width: fc.integer({ min: 24, max: 240 }),
  height: fc.integer({ min: 14, max: 90 }),
  kind: fc.constantFrom<LayoutNode['kind']>('node', 'node', 'node', 'input', 'output'),
})

/** Mostly short steps forwards, as in models; also long ones, self loops and, one in eight, backwards. */
const step = fc.oneof(
  { weight: 5, arbitrary: fc.integer({ min: 1, max: 3 }) },
  { weight: 2, arbitrary: fc.integer({ min: 0, max: 30 }) },
  { weight: 1, arbitrary: fc.integer({ min: -10, max: -1 }) },
)

const edge = fc.record({
  source: fc.nat({ max: 39 }),
  step,
  kind: fc.constantFrom<LayoutEdge['kind']>('gradient', 'gradient', 'data'),
})

/** Up to 40 nodes and 80 edges, in any number of parts, with cycles, self loops and repeated edges. */
export const graphs: fc.Arbitrary<Graph> = fc
  .tuple(
    fc.array(node, { minLength: 1, maxLength: 40, size: 'max' }),
    fc.array(edge, { maxLength: 80, size: 'max' }),
  )
  .map(([nodes, edges]) => {
    const wrap = (position: number) => `node ${(position + nodes.length * 10) % nodes.length}`
    return {
      nodes: nodes.map((sizes, i) => ({ id: `node ${i}`, ...sizes })),
      edges: edges.map(({ source, step, kind }) => ({
        source: wrap(source),
        target: wrap(source + step),
        kind,
      })),
    }
  })
