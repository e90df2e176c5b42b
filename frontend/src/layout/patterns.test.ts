import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { fold } from './fold.ts'
import { acyclic, chained, ends, gradient, siblings } from './letters.ts'
import { patternsOf } from './patterns.ts'
import type { LayoutEdge } from './types.ts'
import { unitsOf } from './units.ts'

describe('patterns', () => {
  const block = (repeats: number): string => 'abc'.repeat(repeats)

  it('of several kinds in turn become one stack', () => {
    const { closed, nodes, edges } = fold(siblings(`x${block(10)}y`), chained(`x${block(10)}y`))

    expect(closed).toMatchObject([{ id: 'pattern:1', kind: 'pattern', path: '', parts: 10, alike: true }])
    expect(closed[0]?.members).toHaveLength(30)
    expect(nodes).toEqual(['0', 'pattern:1', '31'])
    expect(edges.map(ends)).toEqual(['0>pattern:1', 'pattern:1>31'])
  })

  it('are folded from three repeats on, and with the shortest period', () => {
    expect(fold(siblings(block(2)), chained(block(2))).closed).toEqual([])
    expect(fold(siblings(block(3)), chained(block(3))).closed).toMatchObject([{ parts: 3 }])
    expect(fold(siblings('ab'.repeat(8)), chained('ab'.repeat(8))).closed).toMatchObject([{ parts: 8 }])
  })

  it('begin with the first block that is like the others', () => {
    const first = `Abc${block(4)}z`
    expect(fold(siblings(first), chained(first)).closed).toMatchObject([{ id: 'pattern:3', parts: 4 }])
  })

  it('may hold connections inside and to the next repeat, if all have them', () => {
    const residual = [0, 1, 2, 3].flatMap((i) => (i < 3 ? [gradient(`${2 * i}`, `${2 * i + 2}`)] : []))
    const letters = 'ab'.repeat(4)
    expect(fold(siblings(letters), [...chained(letters), ...residual]).closed).toMatchObject([{ parts: 4 }])

    const { closed } = fold(siblings(letters), [...chained(letters), ...residual.slice(1)])
    expect(closed).toEqual([])
  })

  it.each([
    ['past a repeat', gradient('1', '8')],
    ['back', gradient('8', '4')],
    ['in one repeat only', gradient('3', '5')],
  ])('are not folded over a connection %s', (_where, edge) => {
    expect(fold(siblings(block(4)), [...chained(block(4)), edge]).closed).toEqual([])
  })

  it('are not folded where their parts are no chain', () => {
    const apart = chained(block(4)).filter(({ target }) => Number(target) % 3 !== 0)
    expect(fold(siblings(block(4)), apart).closed).toEqual([])
    // The c of each is a head that nothing comes after.
    const heads = chained(block(4)).map(({ source, target }) =>
      gradient(Number(source) % 3 === 2 ? `${Number(source) - 1}` : source, target),
    )
    expect(fold(siblings(block(4)), heads).closed).toEqual([])
  })

  it('are cut where a way leads round through another node', () => {
    const edges = [...chained(block(8)), gradient('1', 'x'), gradient('x', '14')]
    const { closed } = fold([...siblings(block(8)), { id: 'x', signature: 'x' }], edges)

    expect(closed.map(({ id, parts }) => [id, parts])).toEqual([['pattern:12', 4]])
  })

  it('may all be given the same from outside, but not each its own, as in a U-Net', () => {
    const both = [...siblings(block(4)), ...['w', 'x', 'y', 'z'].map((id) => ({ id, signature: id }))]
    const fed = (sources: string) => [...sources].map((source, i) => gradient(source, `${3 * i + 1}`))
    const skips = (targets: string) => [...targets].map((target, i) => gradient(`${3 * i + 1}`, target))
    const folds = (more: LayoutEdge[]) => fold(both, [...chained(block(4)), ...more]).closed

    expect(folds(fed('wwww'))).toMatchObject([{ id: 'pattern:0', parts: 4 }])
    expect(folds(skips('wwww'))).toMatchObject([{ id: 'pattern:0', parts: 4 }])
    expect(folds(fed('wxyz'))).toEqual([])
    expect(folds(skips('wxyz'))).toEqual([])
  })

  it('are a stack in an open container of unlike things, unless that was opened by hand', () => {
    const layers = siblings('ab'.repeat(3)).map((one) => ({ ...one, containers: ['layers'] }))
    const edges = chained('ab'.repeat(3))
    expect(fold(layers, edges).closed).toMatchObject([{ id: 'pattern:0', parts: 3 }])
    expect(fold(layers, edges, new Map([['group:layers', true]])).closed).toEqual([])
  })

  it('take no time that grows faster than the level', () => {
    /** How often the search looks at the neighbours of a unit; every fifth repeat is unlike the others. */
    const looks = (repeats: number): number => {
      const letters = block(repeats)
      const odd = Array.from({ length: repeats / 5 }, (_, i) => gradient(`${15 * i}`, `${15 * i + 2}`))
      const edges = [...chained(letters), ...odd]
      const { units } = unitsOf([...Array(letters.length).keys()].map(String), edges, [])
      let seen = 0
      for (const unit of units)
        for (const side of ['from', 'to'] as const) {
          const neighbours = unit[side]
          Object.defineProperty(unit, side, {
            get() {
              seen++
              return neighbours
            },
          })
        }
      const kinds = new Map(units.map((unit, place) => [unit, place % 3]))
      expect(patternsOf(units, kinds, new Set())).toHaveLength(repeats / 5)
      return seen
    }
    expect(looks(2000)).toBeLessThan(2.1 * looks(1000))
  })
})

describe('unfolded again', () => {
  const level = fc
    .tuple(
      fc.array(
        fc.tuple(fc.string({ unit: fc.constantFrom(...'abc'), minLength: 1, maxLength: 4 }), fc.nat(5)),
        {
          maxLength: 6,
        },
      ),
      fc.array(fc.tuple(fc.nat(60), fc.nat(6)), { maxLength: 6 }),
    )
    .map(([blocks, skips]) => {
      const letters = blocks.map(([pattern, repeats]) => pattern.repeat(repeats)).join('')
      const more = skips.map(([from, by]) => gradient(`${from}`, `${from + by + 1}`))
      const inside = more.filter(({ target }) => Number(target) < letters.length)
      return { nodes: siblings(letters), edges: [...chained(letters), ...inside] }
    })

  it('a level is what it was; folded, it has the same edges between what is shown', () => {
    fc.assert(
      fc.property(level, ({ nodes, edges }) => {
        const folded = fold(nodes, edges)
        expect(fold(nodes, edges)).toEqual(folded)
        expect(acyclic(folded.nodes, folded.edges)).toBe(true)

        const shown = new Map(folded.closed.flatMap(({ id, members }) => members.map((one) => [one, id])))
        const of = (id: string): string => shown.get(id) ?? id
        const between = edges.map(({ source, target }) => `${of(source)}>${of(target)}`)
        const crossing = between.filter((pair) => new Set(pair.split('>')).size > 1)
        expect(new Set(folded.edges.map(ends))).toEqual(new Set(crossing))

        const chosen = new Map<string, boolean>()
        let now = folded
        for (; now.closed.length > 0; now = fold(nodes, edges, chosen))
          for (const { id } of now.closed) chosen.set(id, true)
        expect(now.nodes).toEqual(nodes.map(({ id }) => id))
        expect(new Set(now.edges.map(ends))).toEqual(new Set(edges.map(ends)))
      }),
      { numRuns: 300 },
    )
  })
})
