import { describe, expect, it } from 'vitest'
import { coverings, crossings, overlaps, trespasses } from './quality.ts'
import type { Layout, Placed, Route } from './types.ts'

describe('the measures find planted faults:', () => {
  it('overlaps', () => {
    const drawn = sheet([node('a', 0, 0), node('b', 39, 19), node('c', 80, 0), node('d', 0, 20)], [])

    expect(overlaps(drawn).map(([a, b]) => a.id + b.id)).toEqual(['ab', 'bd'].toSorted())
  })

  it('trespasses, also along a border, but not on the own ends', () => {
    const through = line('a', 'b', [0, 10], [0, 90])
    const along = line('a', 'b', [20, 10], [20, 90])
    const beside = line('a', 'b', [21, 10], [21, 90])
    const drawn = sheet(
      [node('a', 0, 0), node('foreign', 0, 50), node('b', 0, 100)],
      [through, along, beside],
    )

    expect(trespasses(drawn).map(([edge]) => edge)).toEqual([through, along])
  })

  it('coverings, but not of edges with a common end', () => {
    const first = line('a', 'b', [0, 0], [0, 50])
    const second = line('c', 'd', [1, 40], [1, 90])
    const sibling = line('a', 'd', [0, 0], [0, 90])
    const drawn = sheet([], [first, second, sibling])

    expect(coverings(drawn, 2)).toEqual([[first, second]])
    expect(coverings(drawn, 0.5)).toEqual([])
  })

  it('crossings, each point once, without touches and common ends', () => {
    const across = line('a', 'b', [0, 10], [40, 10])
    const down = line('c', 'd', [20, 0], [20, 30])
    const again = line('c', 'e', [20, 0], [20, 40])
    const touching = line('f', 'g', [30, 10], [30, 40])
    const sibling = line('a', 'h', [10, 0], [10, 40])

    expect(crossings([across, down, again, touching, sibling])).toBe(1)
  })
})

function node(id: string, x: number, y: number): Placed {
  return { id, x, y, width: 40, height: 20, rank: 0 }
}

function line(source: string, target: string, ...points: [number, number][]): Route {
  return { source, target, kind: 'gradient', points: points.map(([x, y]) => ({ x, y })) }
}

function sheet(nodes: Placed[], edges: Route[]): Layout {
  return { nodes, edges, width: 100, height: 100 }
}
