import { describe, expect, it } from 'vitest'
import { orderAlong } from './fragments.ts'
import { rowsOf } from './lanes.ts'
import { nodeVertex, type Vertex } from './model.ts'
import { crossings } from './order.ts'
import { rank } from './ranks.ts'

describe('orderAlong', () => {
  it('puts siblings to the left and right as they run before or after the path', () => {
    const { order } = ordered(['sab', 'scb', 'sdeb', 'sfb'], 'sdeb')

    expect(order[1]?.replaceAll('-', '')).toBe('acdf')
  })

  it('puts short skips nearest to the path', () => {
    const { order } = ordered(['abcdef', 'ae', 'bd'], 'abcdef')

    expect(order[2]).toBe('c-b-a')
  })

  it('puts a skip from a branch to the path between the two', () => {
    const { order, count } = ordered(['sabcdet', 'suvwxt', 'ue'], 'sabcdet')

    expect(order.slice(2, 5)).toEqual(['b-uv', 'c-uw', 'd-ux'])
    expect(count).toBe(0)
  })

  it('gives up on a thicket of a thousand vertices beside the path', () => {
    const branch = Array.from({ length: 1001 }, (_, i) => String.fromCodePoint(0x4e00 + i)).join('')

    expect(() => ordered([`s${branch}t`, 'sat'], 'sat')).toThrow('thicket')
  })
})

/** Each word is a chain of nodes with one letter for a name; nodes run in alphabetical order. A row of the result
 *  names nodes by their letter, lane points by a dash and the letter of their source. */
function ordered(words: readonly string[], main: string): { order: string[]; count: number } {
  const letters = [...new Set(words.join(''))].sort()
  const nodes = letters.map((_, i) => nodeVertex(i, 'node', 80, 30, 0))
  const node = (letter: string) => nodes[letters.indexOf(letter)] as Vertex
  for (const word of words)
    [...word].slice(1).forEach((letter, i) => {
      const [upper, lower] = [node([...word][i] ?? ''), node(letter)]
      const line = { upper, lower, reversed: false, kind: 'gradient' as const, segments: [], points: [] }
      upper.out.push({ ...line, segments: [] })
      lower.into.push(upper.out.at(-1) as (typeof upper.out)[number])
    })
  rank(nodes, 0)
  const rows = rowsOf(nodes)
  const order = orderAlong([...main].map(node), rows)
  if (!order) throw new Error('thicket')
  for (const row of order)
    row.forEach((vertex, place) => {
      vertex.place = place
    })
  const name = ({ index, lane }: Vertex) => (lane ? `-${letters[lane.source.index]}` : letters[index])
  return { order: order.map((row) => row.map(name).join('')), count: crossings(order) }
}
