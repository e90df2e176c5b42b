/** Where the graph lies in its pane. A point of the graph (world space) is drawn at `world * scale + offset`
 *  (pane space, pixels from the pane's upper left corner). Pure. */

export interface View {
  readonly x: number
  readonly y: number
  readonly scale: number
}

export interface Size {
  readonly width: number
  readonly height: number
}

export interface Spot {
  readonly x: number
  readonly y: number
}

export const [LEAST_SCALE, MOST_SCALE] = [0.02, 3]
/** Below this, nodes are drawn on the canvas: their words are too small to read anyway. */
export const TEXT_SCALE = 0.4

/** The buttons in the corner have room beside what is fitted. */
const [MARGIN, SIDE_MARGIN] = [24, 32]
/** A first view is never smaller than this; what does not fit is reached by scrolling. */
const READABLE = 0.85
const NARROW = 0.6

/** All of the graph, no larger than life. */
export function fitAll(graph: Size, pane: Size): View {
  const scale = clampScale(Math.min(1, fitScale(graph, pane)))
  return { x: (pane.width - graph.width * scale) / 2, y: (pane.height - graph.height * scale) / 2, scale }
}

/** All of the graph if that can be read, else from its top, as wide as fits; `anchor` (the first input)
 *  is in the middle where the width does not fit either. */
export function fitFirst(graph: Size, pane: Size, anchor: number): View {
  const whole = fitAll(graph, pane)
  if (whole.scale >= READABLE) return { ...whole, y: Math.max(MARGIN, Math.min(whole.y, MARGIN * 2)) }
  const scale = Math.min(1, Math.max(NARROW, (pane.width - 2 * SIDE_MARGIN) / graph.width))
  const fits = graph.width * scale <= pane.width
  return { x: pane.width / 2 - (fits ? graph.width / 2 : anchor) * scale, y: MARGIN, scale }
}

function fitScale(graph: Size, pane: Size): number {
  const [width, height] = [Math.max(1, pane.width - 2 * SIDE_MARGIN), Math.max(1, pane.height - 2 * MARGIN)]
  return Math.min(width / Math.max(1, graph.width), height / Math.max(1, graph.height))
}

function clampScale(scale: number): number {
  return Math.min(MOST_SCALE, Math.max(LEAST_SCALE, scale))
}

/** Zooms by `factor`; the point under `spot` (pane space) stays where it is. */
export function zoomAt(view: View, factor: number, spot: Spot): View {
  const scale = clampScale(view.scale * factor)
  const ratio = scale / view.scale
  return { x: spot.x - (spot.x - view.x) * ratio, y: spot.y - (spot.y - view.y) * ratio, scale }
}

/** Moves by pixels; some of the graph always stays in the pane. */
export function pan(view: View, dx: number, dy: number, graph: Size, pane: Size): View {
  return {
    scale: view.scale,
    x: keep(view.x + dx, graph.width * view.scale, pane.width),
    y: keep(view.y + dy, graph.height * view.scale, pane.height),
  }
}

function keep(offset: number, length: number, room: number): number {
  const rest = Math.min(80, length / 2, room / 2)
  return Math.min(room - rest, Math.max(rest - length, offset))
}

export function centreOn(view: View, world: Spot, pane: Size): View {
  return { ...view, x: pane.width / 2 - world.x * view.scale, y: pane.height / 2 - world.y * view.scale }
}

/** The smallest move that brings a box (centre and size, world space) into the pane. */
export function reveal(view: View, box: Spot & Size, pane: Size): View {
  const move = (centre: number, size: number, offset: number, room: number): number => {
    const from = (centre - size / 2) * view.scale + offset - MARGIN
    const to = (centre + size / 2) * view.scale + offset + MARGIN
    if (from < 0) return offset - from
    return to > room ? offset - (to - room) : offset
  }
  return {
    scale: view.scale,
    x: move(box.x, box.width, view.x, pane.width),
    y: move(box.y, box.height, view.y, pane.height),
  }
}

/** The part of the world that the pane shows, with `margin` pixels around it. */
export function shownWorld(
  view: View,
  pane: Size,
  margin = 0,
): { left: number; top: number; right: number; bottom: number } {
  return {
    left: (-margin - view.x) / view.scale,
    top: (-margin - view.y) / view.scale,
    right: (pane.width + margin - view.x) / view.scale,
    bottom: (pane.height + margin - view.y) / view.scale,
  }
}

export function toWorld(view: View, spot: Spot): Spot {
  return { x: (spot.x - view.x) / view.scale, y: (spot.y - view.y) / view.scale }
}
