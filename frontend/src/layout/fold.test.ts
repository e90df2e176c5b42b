import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { graphs } from './arbitraries.ts'
import { fold, type Sibling } from './fold.ts'
import {
  chain,
  denseBlock,
  encoderDecoder,
  mixtureOfExperts,
  type SampleGraph,
  unusedModules,
} from './graphs.ts'
import type { LayoutEdge } from './types.ts'

describe('chains', () => {
  it('of equal siblings become one stack in the place of the first', () => {
    const { stacks, nodes, edges } = folded(chain(48))

    expect(stacks).toMatchObject([{ id: 'stack:layers.0', kind: 'chain', name: 'layers.0' }])
    expect(stacks[0]?.members).toEqual(Array.from({ length: 48 }, (_, i) => `layers.${i}`))
    expect(nodes.map(({ id }) => id)).toEqual(['input', 'stack:layers.0', 'norm', 'output'])
    expect(edges.map(ends)).toEqual(['input>stack:layers.0', 'stack:layers.0>norm', 'norm>output'])
  })

  it('keep one edge for what each member gets from outside', () => {
    const { stacks, edges } = folded(encoderDecoder(6))

    expect(stacks.map(({ members }) => members.length)).toEqual([6, 6])
    expect(edges.map(ends).filter((edge) => edge.startsWith('encoder.norm'))).toEqual([
      'encoder.norm>stack:decoder.0',
    ])
  })

  it('of three stay as they are', () => {
    expect(folded(chain(3)).stacks).toEqual([])
  })

  it('end where the signature changes', () => {
    const { stacks } = fold(siblings('aaaabbbb'), chained('aaaabbbb'))

    expect(stacks.map(({ members }) => members)).toEqual([
      ['0', '1', '2', '3'],
      ['4', '5', '6', '7'],
    ])
  })

  it('are not folded over a connection past a member', () => {
    const shortcut = [...chained('aaaaaa'), gradient('1', '4')]

    expect(fold(siblings('aaaaaa'), shortcut).stacks).toEqual([])
    expect(folded(denseBlock(12)).stacks).toEqual([])
  })

  it('are cut where a way leads round through another node, which a stack would turn into a cycle', () => {
    const edges = [...chained('aaaaaaaa'), gradient('1', 'x'), gradient('x', '6')]
    const { stacks } = fold([...siblings('aaaaaaaa'), { id: 'x', signature: 'x', name: 'x' }], edges)

    expect(stacks.map(({ members }) => members)).toEqual([['0', '1', '2', '3', '4', '5']])
  })

  it('are cut between neighbours that another node lies between', () => {
    const edges = [...chained('aaaaaaaa'), gradient('3', 'x'), gradient('x', '4')]
    const { stacks } = fold([...siblings('aaaaaaaa'), { id: 'x', signature: 'x', name: 'x' }], edges)

    expect(stacks.map(({ members }) => members)).toEqual([
      ['0', '1', '2', '3'],
      ['4', '5', '6', '7'],
    ])
  })
})

describe('parallel siblings', () => {
  it('between the same neighbours become one stack', () => {
    const { stacks, nodes, edges } = folded(mixtureOfExperts(32))

    expect(stacks).toMatchObject([{ id: 'stack:experts.0', kind: 'parallel' }])
    expect(stacks[0]?.members).toHaveLength(32)
    expect(nodes.map(({ id }) => id)).toContain('shared_expert')
    expect(edges.map(ends)).toContain('topk>stack:experts.0')
    expect(edges).toHaveLength(10)
  })

  it('without neighbours, as unused modules, do so too', () => {
    expect(folded(unusedModules(500)).stacks.map(({ members }) => members.length)).toEqual([500])
  })
})

describe('fold', () => {
  it('leaves open stacks unfolded', () => {
    const { nodes, edges } = chain(48)
    const { stacks, nodes: shown } = fold(named({ nodes, edges }), edges, new Set(['stack:layers.0']))

    expect(stacks).toEqual([])
    expect(shown).toHaveLength(nodes.length)
  })

  it('finds another id where a node has the one of the stack', () => {
    const taken = { id: 'stack:0', signature: 'x', name: 'x' }

    expect(fold([...siblings('aaaa'), taken], chained('aaaa')).stacks[0]?.id).toBe("stack:0'")
  })

  it('calls an edge of a stack a gradient if one of its edges is', () => {
    const nodes = [{ id: 'x', signature: 'x', name: 'x' }, ...siblings('aaaa')]
    const both = [{ ...gradient('x', '0'), kind: 'data' as const }, gradient('x', '3')]

    for (const edges of [both, both.toReversed()])
      expect(fold(nodes, [...chained('aaaa'), ...edges]).edges).toEqual([gradient('x', 'stack:0')])
  })

  it('names an unknown id', () => {
    expect(() => fold(siblings('a'), [gradient('0', 'gone')])).toThrow('no node "gone"')
  })

  it('loses no node, and makes no cycle where there was none', () => {
    fc.assert(
      fc.property(
        graphs,
        fc.array(fc.constantFrom('a', 'b'), { minLength: 40, maxLength: 40 }),
        (graph, signatures) => {
          const nodes = graph.nodes.map(({ id }, i) => ({ id, name: id, signature: signatures[i] ?? 'a' }))
          const forwards = graph.edges.filter(({ source, target }) => position(source) < position(target))
          const { stacks, nodes: shown, edges } = fold(nodes, forwards)

          const kept = shown.flatMap(({ id }) => stacks.find((stack) => stack.id === id)?.members ?? [id])
          expect(kept.toSorted()).toEqual(nodes.map(({ id }) => id).toSorted())
          expect(acyclic(shown, edges)).toBe(true)
        },
      ),
    )
  })
})

function folded(graph: SampleGraph) {
  return fold(named(graph), graph.edges)
}

function named({ nodes }: Pick<SampleGraph, 'nodes' | 'edges'>): Sibling[] {
  return nodes.map(({ id, className }) => ({ id, name: id, signature: className || id }))
}

/** Nodes 0, 1, ... with one letter each as signature. */
function siblings(signatures: string): Sibling[] {
  return [...signatures].map((signature, i) => ({ id: `${i}`, signature, name: signature }))
}

function chained(signatures: string): LayoutEdge[] {
  return [...signatures].slice(1).map((_, i) => gradient(`${i}`, `${i + 1}`))
}

function gradient(source: string, target: string): LayoutEdge {
  return { source, target, kind: 'gradient' }
}

function ends({ source, target }: LayoutEdge): string {
  return `${source}>${target}`
}

function position(id: string): number {
  return Number(id.split(' ')[1])
}

function acyclic(nodes: readonly Sibling[], edges: readonly LayoutEdge[]): boolean {
  const left = new Set(nodes.map(({ id }) => id))
  for (let size = -1; size !== left.size; ) {
    size = left.size
    for (const id of left)
      if (!edges.some(({ source, target }) => target === id && left.has(source))) left.delete(id)
  }
  return left.size === 0
}
