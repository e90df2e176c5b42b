import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { closingEdges } from './cycles.ts'

const COUNT = 12
const edges = fc.array(fc.tuple(fc.nat({ max: COUNT - 1 }), fc.nat({ max: COUNT - 1 })), { maxLength: 40 })

describe('closingEdges', () => {
  it('leaves an acyclic graph as it is, whatever the numbering', () => {
    expect(
      closingEdges(3, [
        [2, 1],
        [1, 0],
        [2, 0],
      ]),
    ).toEqual([false, false, false])
  })

  it('turns the edge of a cycle that runs against the numbering', () => {
    expect(
      closingEdges(4, [
        [0, 1],
        [1, 2],
        [2, 1],
        [2, 3],
      ]),
    ).toEqual([false, false, true, false])
  })

  it('leaves no cycle, and turns only edges that lie on one', () => {
    fc.assert(
      fc.property(edges, (given) => {
        const real = given.filter(([source, target]) => source !== target)
        const closing = closingEdges(COUNT, real)
        const turned = real.map(
          ([source, target], i) => (closing[i] ? [target, source] : [source, target]) as [number, number],
        )

        expect(onCycle(turned)).not.toContain(true)
        const lies = onCycle(real)
        closing.forEach((turn, i) => {
          if (turn) expect(lies[i]).toBe(true)
        })
      }),
    )
  })

  it('follows a ring of 20,000 nodes without recursion', () => {
    const ring = Array.from({ length: 20_000 }, (_, i) => [i, (i + 1) % 20_000] as const)

    expect(closingEdges(20_000, ring).flatMap((closes, i) => (closes ? [i] : []))).toEqual([19_999])
  })
})

/** For each edge: does a path lead from its target back to its source? */
function onCycle(given: readonly (readonly [number, number])[]): boolean[] {
  return given.map(([source, target]) => {
    const reached = new Set([target])
    for (const node of reached) for (const [from, to] of given) if (from === node) reached.add(to)
    return reached.has(source)
  })
}
