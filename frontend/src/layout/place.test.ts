import { describe, expect, it } from 'vitest'
import type { Column } from './columns.ts'
import { placeColumns } from './place.ts'

describe('placeColumns', () => {
  it('leaves a column without neighbours and lines in the middle', () => {
    const [alone, row] = [column(), rowOf(5, 100)]

    placeColumns([alone, ...row])

    expect(alone.x).toBe(200)
  })

  it('pulls the ends of a bent line together', () => {
    const [a, b] = [column(), column(300)]
    pull(a, b)

    placeColumns([a, b])

    expect(Math.abs(a.x - b.x)).toBeLessThanOrEqual(1)
  })

  it('keeps distances where lines pull neighbours into each other', () => {
    const row = rowOf(4, 100)
    const [first, , , last] = row as [Column, Column, Column, Column]
    pull(first, last)

    placeColumns(row)

    expect(row.map(({ x }) => x - first.x)).toEqual([0, 100, 200, 300])
  })

  it('centres a column over those that pull it alike', () => {
    const [above, row] = [column(), rowOf(3, 100)]
    for (const below of row) pull(above, below)

    placeColumns([above, ...row])

    expect(Math.abs(above.x - (row[1] as Column).x)).toBeLessThanOrEqual(1)
  })

  it('moves columns that push against each other as one, to where their lines balance', () => {
    const [pair, anchors] = [rowOf(2, 100), rowOf(5, 100)] as [Column[], Column[]]
    const [a, b, first, last] = [pair[0], pair[1], anchors[0], anchors[4]] as [Column, Column, Column, Column]
    for (let weight = 0; weight < 3; weight++) pull(a, last)
    pull(b, first)

    placeColumns([...pair, ...anchors])

    // Three lines of 125 px from `a` to the right, one of 375 px from `b` to the left.
    expect(b.x - a.x).toBe(100)
    expect(Math.abs(a.x - first.x - 275)).toBeLessThanOrEqual(2)
  })
})

function column(x = 0): Column {
  return {
    members: [],
    x,
    before: [],
    after: [],
    pulls: [],
    leader: undefined,
    follower: undefined,
    last: undefined,
    followers: 0,
    force: 0,
    weight: 0,
  }
}

/** Columns side by side that meet in one row, at their leftmost positions. */
function rowOf(count: number, gap: number): Column[] {
  const columns = Array.from({ length: count }, (_, i) => column(i * gap))
  columns.slice(1).forEach((right, i) => {
    const left = columns[i] as Column
    const distance = { left, right, gap, rank: 1 }
    left.after.push(distance)
    right.before.push(distance)
  })
  return columns
}

function pull(a: Column, b: Column): void {
  a.pulls.push({ to: b, weight: 1 })
  b.pulls.push({ to: a, weight: 1 })
}
