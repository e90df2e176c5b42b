/** Columns in, their x out: bent lines short, left and right balanced, distances kept. */
import type { Column } from './columns.ts'

/** The pendulum method of Sander: "A fast heuristic for hierarchical Manhattan layout" (1995). Each column swings
 *  towards the mean of its neighbours; columns that touch and push against each other swing as one. It starts midway
 *  between everything-left and everything-right and keeps all distances at any time.
 *
 *  `columns`: from left to right, at their leftmost positions. */
export function placeColumns(columns: readonly Column[]): void {
  startMidway(columns)
  for (let round = 0; round < ROUNDS; round++) if (swing(columns) < STILL) break
  for (const column of columns) {
    column.x = Math.round(column.x)
    for (const vertex of column.members) vertex.x = column.x
  }
}

const ROUNDS = 150
/** Largest move, in pixels, that ends the rounds. */
const STILL = 0.25
/** Two columns that pull at each other must not change places for ever. */
const DAMPING = 0.6

function startMidway(columns: readonly Column[]): void {
  let width = 0
  for (const column of columns) width = Math.max(width, column.x)
  const rightmost = new Map<Column, number>()
  for (const column of columns.toReversed()) {
    let x = width
    for (const { column: next, gap } of column.after) x = Math.min(x, (rightmost.get(next) ?? width) - gap)
    rightmost.set(column, x)
  }
  for (const column of columns) column.x = (column.x + (rightmost.get(column) ?? column.x)) / 2
}

/** Columns that move together. */
interface Region {
  columns: Column[]
  force: number
  weight: number
}

/** One round; returns the largest move. */
function swing(columns: readonly Column[]): number {
  const regions = new Map<Column, Region>()
  for (const column of columns) {
    let force = 0
    let weight = 0
    for (const pull of column.pulls) {
      force += pull.weight * (pull.to.x - column.x)
      weight += pull.weight
    }
    regions.set(column, { columns: [column], force, weight: weight || 0.1 })
  }
  joinTouching(columns, regions)
  let largest = 0
  const move = (region: Region, step: number) => {
    for (const column of region.columns) column.x += step
    largest = Math.max(largest, Math.abs(step))
  }
  // Those that go right move first at the right end, and vice versa, so that none blocks the next.
  for (const side of ['after', 'before'] as const) {
    const sign = side === 'after' ? 1 : -1
    const seen = new Set<Region>()
    for (const column of side === 'after' ? columns.toReversed() : columns) {
      const region = regions.get(column) as Region
      if (region.force * sign <= 0 || seen.has(region)) continue
      seen.add(region)
      let room = (Math.abs(region.force) / region.weight) * DAMPING
      for (const member of region.columns)
        for (const { column: next, gap } of member[side])
          if (regions.get(next) !== region) room = Math.min(room, sign * (next.x - member.x) - gap)
      if (room > 0) move(region, sign * room)
    }
  }
  return largest
}

function joinTouching(columns: readonly Column[], regions: Map<Column, Region>): void {
  for (let joined = true; joined; ) {
    joined = false
    for (const column of columns)
      for (const { column: next, gap } of column.after) {
        if (next.x - column.x - gap > TOUCHING) continue
        const [left, right] = [regions.get(column) as Region, regions.get(next) as Region]
        if (left === right || left.force / left.weight <= right.force / right.weight) continue
        const [big, small] = left.columns.length < right.columns.length ? [right, left] : [left, right]
        big.force += small.force
        big.weight += small.weight
        for (const member of small.columns) regions.set(member, big)
        big.columns.push(...small.columns)
        joined = true
      }
  }
}

const TOUCHING = 0.01
