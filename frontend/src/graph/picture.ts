/** A scene with its layout: what the pane, the minimap and the exports draw. Pure. */
import { type Layout, layout, type Placed, type Route } from '../layout/index.ts'
import type { Box, Scene, Wire } from './scene.ts'
import type { View } from './viewport.ts'
import { type Size, shownWorld } from './viewport.ts'

export interface PlacedBox extends Box {
  readonly x: number
  readonly y: number
  readonly rank: number
}

export interface PlacedWire extends Wire {
  readonly points: Route['points']
  /** The smallest rectangle around `points`. */
  readonly left: number
  readonly top: number
  readonly right: number
  readonly bottom: number
}

export interface Picture {
  readonly boxes: readonly PlacedBox[]
  readonly wires: readonly PlacedWire[]
  readonly width: number
  readonly height: number
  box(key: string): PlacedBox | undefined
  /** Wires that start or end at a box. */
  wiresOf(key: string): readonly PlacedWire[]
}

/** `dataEdges`: whether wires along which no gradient flows are drawn. */
export function pictureOf(scene: Scene, dataEdges: boolean): Picture {
  const shown = scene.wires.filter((wire) => dataEdges || wire.kind === 'gradient')
  const made: Layout = layout(
    scene.boxes.map(({ key, width, height, kind }) => ({ id: key, width, height, kind })),
    shown.map(({ source, target, kind }) => ({ source, target, kind })),
  )
  const boxes = scene.boxes.map((box, position) => ({ ...box, ...placeOf(made.nodes[position]) }))
  const wires = shown.map((wire, position) => ({ ...wire, ...lineOf(made.edges[position]) }))
  const byKey = new Map(boxes.map((box) => [box.key, box]))
  const byEnd = new Map<string, PlacedWire[]>()
  for (const wire of wires) {
    for (const end of new Set([wire.source, wire.target])) byEnd.set(end, [...(byEnd.get(end) ?? []), wire])
  }
  return {
    boxes,
    wires,
    width: made.width,
    height: made.height,
    box: (key) => byKey.get(key),
    wiresOf: (key) => byEnd.get(key) ?? [],
  }
}

function placeOf(placed: Placed | undefined): Pick<PlacedBox, 'x' | 'y' | 'rank'> {
  if (placed === undefined) throw new Error('the layout left a node out')
  return { x: placed.x, y: placed.y, rank: placed.rank }
}

function lineOf(route: Route | undefined): Omit<PlacedWire, keyof Wire> {
  if (route === undefined) throw new Error('the layout left an edge out')
  const [xs, ys] = [route.points.map(({ x }) => x), route.points.map(({ y }) => y)]
  return {
    points: route.points,
    left: Math.min(...xs),
    top: Math.min(...ys),
    right: Math.max(...xs),
    bottom: Math.max(...ys),
  }
}

/** The boxes that the pane shows, and those a little outside it. */
export function boxesInView(picture: Pick<Picture, 'boxes'>, view: View, pane: Size): PlacedBox[] {
  const world = shownWorld(view, pane, 160)
  return picture.boxes.filter(
    ({ x, y, width, height }) =>
      x + width / 2 > world.left &&
      x - width / 2 < world.right &&
      y + height / 2 > world.top &&
      y - height / 2 < world.bottom,
  )
}

/** The box that an arrow key leads to from `from`: down and up along a wire if there is one, else to the
 *  nearest box in that direction. */
export function neighbour(
  picture: Picture,
  from: PlacedBox,
  direction: 'up' | 'down' | 'left' | 'right',
): PlacedBox | undefined {
  if (direction === 'up' || direction === 'down') {
    const down = direction === 'down'
    const ends = picture.wiresOf(from.key).flatMap((wire) => {
      const [own, other] = down ? [wire.source, wire.target] : [wire.target, wire.source]
      const box = own === from.key ? picture.box(other) : undefined
      return box === undefined || box === from ? [] : [box]
    })
    if (ends.length > 0) return nearestOf(ends, (box) => Math.hypot(box.x - from.x, box.y - from.y))
  }
  const [dx, dy] = { up: [0, -1], down: [0, 1], left: [-1, 0], right: [1, 0] }[direction] as [number, number]
  const ahead = picture.boxes.filter((box) => (box.x - from.x) * dx + (box.y - from.y) * dy > 1)
  return nearestOf(ahead, (box) => {
    const along = (box.x - from.x) * dx + (box.y - from.y) * dy
    const aside = Math.abs((box.x - from.x) * dy) + Math.abs((box.y - from.y) * dx)
    return along + 3 * aside
  })
}

function nearestOf(boxes: readonly PlacedBox[], distance: (box: PlacedBox) => number): PlacedBox | undefined {
  let best: PlacedBox | undefined
  for (const box of boxes) if (best === undefined || distance(box) < distance(best)) best = box
  return best
}
