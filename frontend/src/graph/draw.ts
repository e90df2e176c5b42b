/** A picture onto canvases: the wires under the nodes, nodes themselves when zoomed far out, the minimap. */
import type { Theme } from '../heatmap/colours.ts'
import { type Point, trace } from '../layout/index.ts'
import { canvasColours, FONT } from '../theme.ts'
import { stripeOf } from './family.ts'
import type { Area, Frame, Picture, PlacedBox, PlacedWire } from './picture.ts'
import { type Size, type Spot, shownWorld, TEXT_SCALE, type View } from './viewport.ts'

export interface Look {
  readonly theme: Theme
  /** Key of the box whose wires are lit, or null. */
  readonly lit: string | null
  /** Whether all wires carry their shapes, or only lit ones. */
  readonly shapes: boolean
  /** Fill of a box where a statistic colours it. */
  readonly fill: (box: PlacedBox) => string | undefined
}

type World = ReturnType<typeof shownWorld>

export const RADIUS = 8
const [ARROW_LENGTH, ARROW_HALF] = [8, 4]
/** Below this, arrows and round corners are smaller than two pixels: thousands of them cost and don't show. */
const FAR_SCALE = 0.25

export function drawGraph(
  context: CanvasRenderingContext2D,
  picture: Picture,
  view: View,
  pane: Size,
  ratio: number,
  look: Look,
): void {
  const colours = canvasColours(look.theme)
  context.setTransform(1, 0, 0, 1, 0, 0)
  context.clearRect(0, 0, context.canvas.width, context.canvas.height)
  context.setTransform(view.scale * ratio, 0, 0, view.scale * ratio, view.x * ratio, view.y * ratio)
  const world = shownWorld(view, pane, 40)
  const seen = picture.wires.filter(
    (wire) =>
      wire.right >= world.left &&
      wire.left <= world.right &&
      wire.bottom >= world.top &&
      wire.top <= world.bottom,
  )
  const far = view.scale < FAR_SCALE
  const isLit = (wire: PlacedWire): boolean => wire.source === look.lit || wire.target === look.lit
  const plain = seen.filter((wire) => !isLit(wire))
  const lit = seen.filter(isLit)
  // Lines never get thinner than a device pixel: they would fade when zoomed out.
  const width = Math.max(1.5, 1 / (view.scale * ratio))
  for (const [wires, colour, thickness] of [
    [plain, colours.edge, width],
    [lit, colours.accent, width * 1.6],
  ] as const) {
    strokeWires(context, wires, colour, thickness, far)
  }
  drawFrames(context, picture.frames, world, colours.control, width, far)
  if (view.scale < TEXT_SCALE) drawBoxes(context, picture, look, world, far)
  else drawShapes(context, look.shapes ? seen : lit, look.theme)
}

const DASH = [4, 3]
const DASH_PERIOD = 7

function drawFrames(
  context: CanvasRenderingContext2D,
  frames: readonly Frame[],
  world: World,
  colour: string,
  thickness: number,
  far: boolean,
): void {
  context.strokeStyle = colour
  context.lineWidth = thickness / 1.5
  context.setLineDash(far ? [] : DASH)
  context.beginPath()
  for (const frame of frames) {
    if (!frame.whole) continue
    const { left, top, right, bottom } = clipped(frame, world)
    if (right > left && bottom > top) context.roundRect(left, top, right - left, bottom - top, RADIUS * 1.5)
  }
  context.stroke()
  context.setLineDash([])
}

/** The part of a frame that is drawn instead of all of it: a side as long as ten thousand nodes has a hundred thousand
 *  dashes. What is cut off is a whole number of dashes, so that the others stay where they are. */
export function clipped({ left, top, width, height }: Area, world: World): World {
  const cut = (beyond: number): number => DASH_PERIOD * Math.max(0, Math.floor(beyond / DASH_PERIOD))
  return {
    left: left + cut(world.left - left),
    top: top + cut(world.top - top),
    right: left + width - cut(left + width - world.right),
    bottom: top + height - cut(top + height - world.bottom),
  }
}

function strokeWires(
  context: CanvasRenderingContext2D,
  wires: readonly PlacedWire[],
  colour: string,
  thickness: number,
  far: boolean,
): void {
  context.strokeStyle = colour
  context.fillStyle = colour
  context.lineWidth = thickness
  context.lineJoin = 'round'
  for (const kind of ['gradient', 'data'] as const) {
    context.setLineDash(kind === 'data' && !far ? [5, 4] : [])
    context.beginPath()
    for (const wire of wires) {
      if (wire.kind !== kind) continue
      if (far) traceSharp(wire.points, context)
      else trace(shortened(wire.points), RADIUS, context)
    }
    context.stroke()
  }
  context.setLineDash([])
  if (far) return
  context.beginPath()
  for (const { points } of wires) traceArrow(context, points)
  context.fill()
}

function traceSharp(points: readonly Point[], context: CanvasRenderingContext2D): void {
  points.forEach(({ x, y }, position) => {
    if (position === 0) context.moveTo(x, y)
    else context.lineTo(x, y)
  })
}

/** The last segment ends at the back of the arrow, so that its tip stays sharp. */
function shortened(points: readonly Point[]): readonly Point[] {
  const [end, before] = [points.at(-1), points.at(-2)]
  if (end === undefined || before === undefined) return points
  const length = Math.hypot(end.x - before.x, end.y - before.y) || 1
  const cut = Math.min(ARROW_LENGTH - 1, length) / length
  return [
    ...points.slice(0, -1),
    { x: end.x - (end.x - before.x) * cut, y: end.y - (end.y - before.y) * cut },
  ]
}

function traceArrow(context: CanvasRenderingContext2D, points: readonly Point[]): void {
  const [end, before] = [points.at(-1), points.at(-2)]
  if (end === undefined || before === undefined) return
  const length = Math.hypot(end.x - before.x, end.y - before.y) || 1
  const [ux, uy] = [(end.x - before.x) / length, (end.y - before.y) / length]
  const [bx, by] = [end.x - ux * ARROW_LENGTH, end.y - uy * ARROW_LENGTH]
  context.moveTo(end.x, end.y)
  context.lineTo(bx - uy * ARROW_HALF, by + ux * ARROW_HALF)
  context.lineTo(bx + uy * ARROW_HALF, by - ux * ARROW_HALF)
  context.closePath()
}

function drawShapes(context: CanvasRenderingContext2D, wires: readonly PlacedWire[], theme: Theme): void {
  const colours = canvasColours(theme)
  context.font = FONT.replace('13px', '10.5px')
  context.textBaseline = 'middle'
  context.textAlign = 'left'
  const taken = new Set<string>()
  for (const { points, shape } of wires) {
    const spot = labelSpot(points)
    // Wires that share a trunk carry the same tensor: one label is enough.
    const place = spot === null ? '' : `${Math.round(spot.x)} ${Math.round(spot.y)}`
    if (shape === '' || spot === null || taken.has(place)) continue
    taken.add(place)
    // Beside the line: on a short one it would hide the arrow.
    const left = spot.x + 7
    context.fillStyle = colours.plate
    context.fillRect(left - 2, spot.y - 7, context.measureText(shape).width + 4, 14)
    context.fillStyle = colours.muted
    context.fillText(shape, left, spot.y)
  }
}

/** The middle of the longest upright segment. */
function labelSpot(points: readonly Point[]): Point | null {
  let [best, most]: [Point | null, number] = [null, 0]
  points.slice(1).forEach((point, position) => {
    const before = points[position] as Point
    const length = Math.abs(point.y - before.y)
    if (length > most) [best, most] = [{ x: (point.x + before.x) / 2, y: (point.y + before.y) / 2 }, length]
  })
  return best
}

function drawBoxes(
  context: CanvasRenderingContext2D,
  picture: Picture,
  look: Look,
  world: World,
  far: boolean,
): void {
  const colours = canvasColours(look.theme)
  for (const box of picture.boxes) {
    const [left, top] = [box.x - box.width / 2, box.y - box.height / 2]
    if (
      left > world.right ||
      left + box.width < world.left ||
      top > world.bottom ||
      top + box.height < world.top
    )
      continue
    const stripe = stripeOf(box.family, look.theme)
    const plain = box.node !== null && box.node.children > 0 ? colours.container : colours.surface
    // A stripe would be too thin to see from far away: its colour fills the box.
    context.fillStyle = look.fill(box) ?? (far && box.kind === 'node' ? stripe : plain)
    context.strokeStyle = box.key === look.lit ? colours.accent : colours.control
    context.lineWidth = box.key === look.lit ? 4 : 1.5
    if (far) {
      context.fillRect(left, top, box.width, box.height)
      context.strokeRect(left, top, box.width, box.height)
    } else {
      context.beginPath()
      context.roundRect(left, top, box.width, box.height, box.kind === 'node' ? 6 : box.height / 2)
      context.fill()
      context.stroke()
    }
    if (box.kind !== 'node' || far) continue
    context.fillStyle = stripe
    context.fillRect(left + 1, top + 2, 10, box.height - 4)
  }
}

/** The whole graph in a small rectangle. */
export function drawMinimap(
  context: CanvasRenderingContext2D,
  picture: Picture,
  map: Size,
  ratio: number,
  look: Look,
): void {
  const { scale, x, y } = minimapView(picture, map)
  context.setTransform(1, 0, 0, 1, 0, 0)
  context.clearRect(0, 0, context.canvas.width, context.canvas.height)
  context.setTransform(ratio, 0, 0, ratio, 0, 0)
  for (const box of picture.boxes) {
    context.fillStyle = look.fill(box) ?? stripeOf(box.family, look.theme)
    const [width, height] = [Math.max(2, box.width * scale), Math.max(1.5, box.height * scale)]
    context.fillRect(x + box.x * scale - width / 2, y + box.y * scale - height / 2, width, height)
  }
}

/** Where the pane lies in the minimap. */
export function minimapFrame(picture: Size, view: View, pane: Size, map: Size): Spot & Size {
  const { scale, x, y } = minimapView(picture, map)
  const shown = shownWorld(view, pane)
  const [left, top] = [Math.max(0, x + shown.left * scale), Math.max(0, y + shown.top * scale)]
  return {
    x: left,
    y: top,
    width: Math.max(4, Math.min(map.width, x + shown.right * scale) - left),
    height: Math.max(4, Math.min(map.height, y + shown.bottom * scale) - top),
  }
}

export function minimapView(graph: Size, map: Size): View {
  const scale = Math.min((map.width - 12) / graph.width, (map.height - 12) / graph.height)
  return { scale, x: (map.width - graph.width * scale) / 2, y: (map.height - graph.height * scale) / 2 }
}
