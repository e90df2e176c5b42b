/** A scene with its layout: what the pane, the minimap and the exports draw. Pure. */
import { type Layout, layout, type Placed, type Route } from '../layout/index.ts'
import type { Box, OpenFold, Scene, Wire } from './scene.ts'
import { type Size, type Spot, shownWorld, type View } from './viewport.ts'

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

/** A rectangle by its upper left corner. */
export interface Area {
  readonly left: number
  readonly top: number
  readonly width: number
  readonly height: number
}

/** What stands around the boxes of an open fold, so that it can be closed again. */
export interface Frame extends Area {
  readonly fold: OpenFold
  /** How many frames lie within each other inside it. */
  readonly depth: number
  /** Whether only its own boxes lie in it. Else it is that of its first box alone. */
  readonly whole: boolean
}

export interface Picture {
  readonly boxes: readonly PlacedBox[]
  readonly wires: readonly PlacedWire[]
  readonly frames: readonly Frame[]
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
    frames: framesOf(boxes, scene.open),
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

/** Frames around neighbours that the layout puts closest together don't touch. */
const [PADDING, NESTED_PADDING] = [9, 6]

/** Inner ones first. */
function framesOf(boxes: readonly PlacedBox[], open: readonly OpenFold[]): Frame[] {
  const frames: Frame[] = []
  for (const fold of open.toReversed()) {
    const keys = new Set(fold.boxes)
    const own = boxes.filter(({ key }) => keys.has(key))
    const inside = frames.filter(({ fold: { boxes } }) => boxes.every((key) => keys.has(key)))
    const depth = Math.max(0, ...inside.map((frame) => frame.depth + 1))
    const padding = PADDING + depth * NESTED_PADDING
    const around = rectangle(own, padding)
    const whole = boxes.every((box) => keys.has(box.key) || !touches(box, around))
    frames.push({ fold, depth, whole, ...(whole ? around : rectangle(own.slice(0, 1), padding)) })
  }
  return frames
}

function rectangle(boxes: readonly PlacedBox[], padding: number): Area {
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity]
  for (const { x, y, width, height } of boxes) {
    left = Math.min(left, x - width / 2 - padding)
    right = Math.max(right, x + width / 2 + padding)
    top = Math.min(top, y - height / 2 - padding)
    bottom = Math.max(bottom, y + height / 2 + padding)
  }
  return { left, top, width: right - left, height: bottom - top }
}

/** The boxes that the pane shows, and those a little outside it. */
export function boxesInView(picture: Pick<Picture, 'boxes'>, view: View, pane: Size): PlacedBox[] {
  const world = around(view, pane)
  return picture.boxes.filter((box) => touches(box, world))
}

/** The frames whose upper left corner the pane shows. */
export function framesInView(picture: Picture, view: View, pane: Size): Frame[] {
  const world = around(view, pane)
  return picture.frames.filter(({ left, top }) => touches({ x: left, y: top, width: 0, height: 0 }, world))
}

function around(view: View, pane: Size): Area {
  const { left, top, right, bottom } = shownWorld(view, pane, 160)
  return { left, top, width: right - left, height: bottom - top }
}

/** Whether a box (given by its centre) lies at least partly in a rectangle. */
function touches({ x, y, width, height }: Spot & Size, area: Area): boolean {
  return (
    x + width / 2 > area.left &&
    x - width / 2 < area.left + area.width &&
    y + height / 2 > area.top &&
    y - height / 2 < area.top + area.height
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
