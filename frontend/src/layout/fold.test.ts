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
import { acyclic, chained, ends, gradient, siblings } from './letters.ts'

describe('chains', () => {
  it('of equal siblings become one stack in the place of the first', () => {
    const { closed, nodes, edges } = folded(chain(48))

    expect(closed).toMatchObject([{ id: 'chain:layers.0', kind: 'chain', parts: 48, alike: true }])
    expect(closed[0]?.members).toEqual(Array.from({ length: 48 }, (_, i) => `layers.${i}`))
    expect(nodes).toEqual(['input', 'chain:layers.0', 'norm', 'output'])
    expect(edges.map(ends)).toEqual(['input>chain:layers.0', 'chain:layers.0>norm', 'norm>output'])
  })

  it('keep one edge for what each member gets from outside', () => {
    const { closed, edges } = folded(encoderDecoder(6))

    expect(closed.map(({ members }) => members.length)).toEqual([6, 6])
    expect(edges.map(ends).filter((edge) => edge.startsWith('encoder.norm'))).toEqual([
      'encoder.norm>chain:decoder.0',
    ])
  })

  it('of three stay as they are', () => {
    expect(folded(chain(3)).closed).toEqual([])
  })

  it('end where the signature changes', () => {
    const { closed } = fold(siblings('aaaabbbb'), chained('aaaabbbb'))

    expect(closed.map(({ members }) => members)).toEqual([
      ['0', '1', '2', '3'],
      ['4', '5', '6', '7'],
    ])
  })

  it('are not folded over a connection past a member', () => {
    const shortcut = [...chained('aaaaaa'), gradient('1', '4')]

    expect(fold(siblings('aaaaaa'), shortcut).closed).toEqual([])
    expect(folded(denseBlock(12)).closed).toEqual([])
  })

  it('are cut where a way leads round through another node, which a stack would turn into a cycle', () => {
    const edges = [...chained('aaaaaaaa'), gradient('1', 'x'), gradient('x', '6')]
    const { closed } = fold([...siblings('aaaaaaaa'), { id: 'x', signature: 'x' }], edges)

    expect(closed.map(({ members }) => members)).toEqual([['0', '1', '2', '3', '4', '5']])
  })

  it('are cut between neighbours that another node lies between', () => {
    const edges = [...chained('aaaaaaaa'), gradient('3', 'x'), gradient('x', '4')]
    const { closed } = fold([...siblings('aaaaaaaa'), { id: 'x', signature: 'x' }], edges)

    expect(closed.map(({ members }) => members)).toEqual([
      ['0', '1', '2', '3'],
      ['4', '5', '6', '7'],
    ])
  })
})

describe('parallel siblings', () => {
  it('between the same neighbours become one stack', () => {
    const { closed, nodes, edges } = folded(mixtureOfExperts(32))

    expect(closed).toMatchObject([{ id: 'parallel:experts.0', kind: 'parallel' }])
    expect(closed[0]?.members).toHaveLength(32)
    expect(nodes).toContain('shared_expert')
    expect(edges.map(ends)).toContain('topk>parallel:experts.0')
    expect(edges).toHaveLength(10)
  })

  it('without neighbours, as unused modules, do so too', () => {
    expect(folded(unusedModules(500)).closed.map(({ members }) => members.length)).toEqual([500])
  })
})

describe('fold', () => {
  it('leaves open closed unfolded', () => {
    const { nodes, edges } = chain(48)
    const {
      closed,
      open,
      nodes: shown,
    } = fold(named({ nodes, edges }), edges, new Map([['chain:layers.0', true]]))

    expect(closed).toEqual([])
    expect(open).toMatchObject([{ id: 'chain:layers.0' }])
    expect(shown).toHaveLength(nodes.length)
  })

  it('finds another id where a node has the one of the stack', () => {
    const taken = { id: 'chain:0', signature: 'x' }

    expect(fold([...siblings('aaaa'), taken], chained('aaaa')).closed[0]?.id).toBe("chain:0'")
  })

  it('calls an edge of a stack a gradient if one of its edges is', () => {
    const nodes = [{ id: 'x', signature: 'x' }, ...siblings('aaaa')]
    const both = [{ ...gradient('x', '0'), kind: 'data' as const }, gradient('x', '3')]

    for (const edges of [both, both.toReversed()])
      expect(fold(nodes, [...chained('aaaa'), ...edges]).edges).toEqual([gradient('x', 'chain:0')])
  })

  it('names an unknown id', () => {
    expect(() => fold(siblings('a'), [gradient('0', 'gone')])).toThrow('no node "gone"')
  })

  it('loses no node, and makes no cycle where there was none', () => {
    const place = fc.record({
      signature: fc.constantFrom('a', 'b'),
      containers: fc.constantFrom([], ['x'], ['x', 'x.0'], ['x', 'x.1'], ['y']),
      chosen: fc.constantFrom(true, false, undefined),
    })
    fc.assert(
      fc.property(graphs, fc.array(place, { minLength: 40, maxLength: 40 }), (graph, places) => {
        const nodes = graph.nodes.map(({ id }, i) => ({ id, ...(places[i] as (typeof places)[number]) }))
        const forwards = graph.edges.filter(({ source, target }) => position(source) < position(target))
        const chosen = new Map(
          nodes.flatMap(({ containers, chosen }) => {
            const id = `group:${containers.at(-1)}`
            return chosen === undefined ? [] : [[id, chosen] as const]
          }),
        )
        const { closed, nodes: shown, edges } = fold(nodes, forwards, chosen)

        const kept = shown.flatMap((id) => closed.find((one) => one.id === id)?.members ?? [id])
        expect(kept.toSorted()).toEqual(nodes.map(({ id }) => id).toSorted())
        expect(acyclic(shown, edges)).toBe(true)
      }),
    )
  })
})

describe('the calls of a container', () => {
  const inside = (path: string, ...ids: string[]): Sibling[] =>
    ids.map((id) => ({ id, signature: id, containers: [path] }))

  it('are one group, closed if they are many and alike', () => {
    const alike = siblings('aaaa').map((sibling) => ({ ...sibling, containers: ['blocks'] }))
    const { closed, open } = fold(alike, chained('aaaa'))

    expect(closed).toMatchObject([{ id: 'group:blocks', path: 'blocks', parts: 4, alike: true }])
    expect(open).toEqual([])
  })

  it('stay open if they differ, and close when chosen', () => {
    const heads = [...siblings('s'), ...inside('heads', 'box', 'class')]
    const edges = [gradient('0', 'box'), gradient('0', 'class')]
    expect(fold(heads, edges)).toMatchObject({ closed: [], open: [{ id: 'group:heads', alike: false }] })

    const { closed, nodes } = fold(heads, edges, new Map([['group:heads', false]]))
    expect(closed).toMatchObject([{ members: ['box', 'class'] }])
    expect(nodes).toEqual(['0', 'group:heads'])
  })

  it('that were opened do not close again as a run', () => {
    const alike = siblings('aaaa').map((sibling) => ({ ...sibling, containers: ['blocks'] }))
    const { nodes } = fold(alike, chained('aaaa'), new Map([['group:blocks', true]]))

    expect(nodes).toEqual(['0', '1', '2', '3'])
  })

  it('can not be folded where their values pass through others and come back', () => {
    const nodes = [...inside('down', 'd0', 'd1'), ...inside('pools', 'p0')]
    const { closed, open } = fold(
      nodes,
      [gradient('d0', 'p0'), gradient('p0', 'd1')],
      new Map([['group:down', false]]),
    )

    expect([...closed, ...open]).toEqual([])
  })

  it('nor where two groups, each of which could be, would feed each other', () => {
    const nodes = [...inside('a', 'a0'), ...inside('b', 'b0', 'b1'), ...inside('a', 'a1')]
    const both = new Map([
      ['group:a', false],
      ['group:b', false],
    ])
    const { closed } = fold(nodes, [gradient('a0', 'b0'), gradient('b1', 'a1')], both)

    expect(closed.map(({ path }) => path)).toEqual(['a'])
  })

  it('of containers in containers fold one by one, alike if what is in them is', () => {
    const layers = Array.from({ length: 4 }, (_, layer): Sibling[] =>
      ['attention', 'feed'].map((signature, i) => ({
        id: `layers.${layer}.${i}`,
        signature,
        containers: ['layers', `layers.${layer}`],
      })),
    ).flat()
    const edges = layers.slice(1).map(({ id }, i) => gradient(layers[i]?.id ?? '', id))
    expect(fold(layers, edges).closed).toMatchObject([{ path: 'layers', parts: 4, alike: true }])

    const opened = fold(layers, edges, new Map([['group:layers', true]]))
    expect(opened.closed).toEqual([])
    expect(opened.open.map(({ path }) => path)).toEqual([
      'layers',
      'layers.0',
      'layers.1',
      'layers.2',
      'layers.3',
    ])
  })
})

describe('a level of more than a thousand', () => {
  // By Thue and Morse: nothing in it comes three times in a row.
  const letters = Array.from({ length: 400 }, (_, i) => (ones(i) % 2 === 0 ? 'abc' : 'acb')).join('')

  it('is shown in slices, about as many as each has nodes', () => {
    const { closed, nodes, edges } = fold(siblings(letters), chained(letters))

    expect(closed.every(({ kind }) => kind === 'slice')).toBe(true)
    expect(nodes).toHaveLength(35)
    expect(edges).toHaveLength(34)
    expect(closed.flatMap(({ members }) => members)).toHaveLength(1200)
  })

  it('leaves inputs and outputs out of them', () => {
    const ends = { signature: 'end', apart: true }
    const all = [{ id: 'input', ...ends }, ...siblings(letters), { id: 'output', ...ends }]
    const edges = [gradient('input', '0'), ...chained(letters), gradient('1199', 'output')]
    const { nodes } = fold(all, edges)

    expect([nodes[0], nodes.at(-1)]).toEqual(['input', 'output'])
  })

  it('unfolds a slice among the others', () => {
    const { nodes } = fold(siblings(letters), chained(letters), new Map([['slice:35', true]]))

    expect(nodes).toHaveLength(34 + 35)
  })

  it('keeps its slices when what is in them unfolds', () => {
    const runs = letters.replaceAll('a', 'aaaaa')
    const chosen = new Map<string, boolean>()
    const unfold = (): number => {
      const { closed } = fold(siblings(runs), chained(runs), chosen)
      for (const { id } of closed) chosen.set(id, true)
      return closed.length
    }
    const counts = [unfold(), unfold(), unfold()]

    expect(counts).toEqual([35, 400, 0])
    expect(fold(siblings(runs), chained(runs), chosen).nodes).toHaveLength(runs.length)
  })

  it('cuts them in the order of execution', () => {
    const skips = Array.from({ length: 1190 }, (_, i) => gradient(`${i}`, `${i + 9}`))
    const unlike = siblings(letters).map(({ id }) => ({ id, signature: id }))
    const { closed } = fold(unlike, skips)

    expect(closed.flatMap(({ members }) => members)).toEqual(unlike.map(({ id }) => id))
  })

  it('offers to fold only what is seen', () => {
    const runs = letters.replaceAll('a', 'aaaaa')
    const { closed, open } = fold(siblings(runs), chained(runs), new Map([['chain:0', true]]))

    expect(closed).toHaveLength(35)
    expect(open).toEqual([])
  })

  it('closes its groups first', () => {
    const most = siblings(letters).map((one, i) => (i < 1100 ? { ...one, containers: ['layers'] } : one))
    const { closed, nodes } = fold(most, chained(letters))

    expect(closed).toMatchObject([{ id: 'group:layers', parts: 1100, alike: false }])
    expect(nodes).toHaveLength(101)
  })
})

function folded(graph: SampleGraph) {
  return fold(named(graph), graph.edges)
}

function named({ nodes }: Pick<SampleGraph, 'nodes' | 'edges'>): Sibling[] {
  return nodes.map(({ id, className }) => ({ id, signature: className || id }))
}

/** How many ones the binary form of a number has. */
function ones(number: number): number {
  return number.toString(2).replaceAll('0', '').length
}

function position(id: string): number {
  return Number(id.split(' ')[1])
}
