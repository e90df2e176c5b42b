/** Columns in, their x out: bent lines short, left and right balanced, distances kept. */
import { type Column, columnOf } from './columns.ts'

/** The pendulum method of Sander: "A fast heuristic for hierarchical Manhattan layout" (1995). Each column swings
 *  towards the mean of its neighbours; columns that touch and push against each other swing as one. It starts midway
 *  between everything-left and everything-right, which centres the drawing, and keeps all distances at any time.
 *
 *  `columns`: from left to right, at their leftmost positions. */
export function placeColumns(columns: readonly Column[]): void {
  startMidway(columns)
  const rounds = Math.max(FEWEST_ROUNDS, Math.min(MOST_ROUNDS, STEPS / columns.length))
  for (let round = 0; round < rounds; round++) if (swing(columns) < STILL) break
  for (const column of columns) {
    column.x = Math.round(column.x)
    for (const vertex of column.members) vertex.x = column.x
  }
}

/** Small graphs come to rest; in large ones the last pixel isn't worth the time. */
const MOST_ROUNDS = 150
const FEWEST_ROUNDS = 20
const STEPS = 80_000
/** Largest move, in pixels, that ends the rounds. */
const STILL = 0.25
/** Two columns that pull at each other must not change places for ever. */
const DAMPING = 0.6

function startMidway(columns: readonly Column[]): void {
  let width = 0
  for (const column of columns) width = Math.max(width, column.x)
  const leftmost = columns.map((column) => column.x)
  for (const column of columns.toReversed()) {
    column.x = width
    for (const { right, gap } of column.after) column.x = Math.min(column.x, columnOf(right).x - gap)
  }
  columns.forEach((column, i) => {
    column.x = (column.x + (leftmost[i] ?? 0)) / 2
  })
}

/** One round; returns the largest move. */
function swing(columns: readonly Column[]): number {
  for (const column of columns) {
    let [force, weight] = [0, 0]
    for (const pull of column.pulls) {
      force += pull.weight * (pull.to.x - column.x)
      weight += pull.weight
    }
    column.force = force
    column.weight = weight || 0.1
    column.leader = column
    column.last = column
    column.follower = undefined
  }
  while (joinTouching(columns));
  // Those that go right move first at the right end, and vice versa, so that none blocks the next.
  let largest = 0
  for (const column of columns.toReversed())
    if (column.leader.force > 0) largest = Math.max(largest, move(column.leader, 1))
  for (const column of columns)
    if (column.leader.force < 0) largest = Math.max(largest, move(column.leader, -1))
  return largest
}

/** Join groups that touch and push against each other; returns whether there were any. */
function joinTouching(columns: readonly Column[]): boolean {
  let joined = false
  for (const column of columns)
    for (const { right, gap } of column.after) {
      const next = columnOf(right)
      if (next.x - column.x - gap > TOUCHING) continue
      const [a, b] = [column.leader, next.leader]
      if (a === b || a.force / a.weight <= b.force / b.weight) continue
      a.force += b.force
      a.weight += b.weight
      a.last.follower = b
      a.last = b.last
      for (let member: Column | undefined = b; member; member = member.follower) member.leader = a
      joined = true
    }
  return joined
}

const TOUCHING = 0.01

/** Move a group as far as it swings and its neighbours allow. Once only: its force is spent. */
function move(leader: Column, side: 1 | -1): number {
  let room = (Math.abs(leader.force) / leader.weight) * DAMPING
  for (let member: Column | undefined = leader; member; member = member.follower) {
    if (side === 1) {
      for (const { right, gap } of member.after) {
        const next = columnOf(right)
        if (next.leader !== leader) room = Math.min(room, next.x - member.x - gap)
      }
    } else {
      for (const { left, gap } of member.before) {
        const next = columnOf(left)
        if (next.leader !== leader) room = Math.min(room, member.x - next.x - gap)
      }
    }
  }
  leader.force = 0
  if (room <= 0) return 0
  for (let member: Column | undefined = leader; member; member = member.follower) member.x += side * room
  return room
}
