/** Pan and zoom of the graph by mouse, pen, touch, wheel and trackpad. */
import type { Spot } from '../graph/viewport.ts'

export interface PanZoom {
  readonly pan: (dx: number, dy: number) => void
  readonly zoom: (factor: number, at: Spot) => void
  /** A press and release without a move, on the background. */
  readonly tap: (at: Spot) => void
}

const TAP_MOVE = 4
/** Wheel units per factor e; a notch of a mouse wheel is about 100. */
const WHEEL_ZOOM = 300
const LINE_HEIGHT = 16

/** Listens on `pane` until the returned function is called. Presses on buttons are left to them, yet a
 *  second finger pinches wherever it is. */
export function listenPanZoom(pane: HTMLElement, { pan, zoom, tap }: PanZoom): () => void {
  const pointers = new Map<number, Spot>()
  let moved = 0

  const spot = (event: MouseEvent): Spot => {
    const { left, top } = pane.getBoundingClientRect()
    return { x: event.clientX - left, y: event.clientY - top }
  }
  const wheel = (event: WheelEvent): void => {
    event.preventDefault()
    const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE_HEIGHT : 1
    // Browsers report a pinch on a trackpad as a wheel with Ctrl.
    if (event.ctrlKey || event.metaKey) zoom(Math.exp((-event.deltaY * unit) / WHEEL_ZOOM), spot(event))
    else if (event.shiftKey && event.deltaX === 0) pan(-event.deltaY * unit, 0)
    else pan(-event.deltaX * unit, -event.deltaY * unit)
  }
  const down = (event: PointerEvent): void => {
    if (event.button > 1 || (event.target as Element).closest('button, .minimap, .graph-tools') !== null)
      return
    pointers.set(event.pointerId, spot(event))
    moved = pointers.size > 1 ? TAP_MOVE + 1 : 0
    pane.setPointerCapture(event.pointerId)
  }
  const move = (event: PointerEvent): void => {
    const before = pointers.get(event.pointerId)
    if (before === undefined) return
    const now = spot(event)
    const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1]
    moved += Math.hypot(now.x - before.x, now.y - before.y)
    pointers.set(event.pointerId, now)
    if (other === undefined) {
      if (moved > TAP_MOVE) pan(now.x - before.x, now.y - before.y)
      return
    }
    const apart = (one: Spot): number => Math.max(1, Math.hypot(one.x - other.x, one.y - other.y))
    pan((now.x - before.x) / 2, (now.y - before.y) / 2)
    zoom(apart(now) / apart(before), { x: (now.x + other.x) / 2, y: (now.y + other.y) / 2 })
  }
  const up = (event: PointerEvent): void => {
    if (!pointers.delete(event.pointerId)) return
    if (event.type === 'pointerup' && moved <= TAP_MOVE) tap(spot(event))
  }
  const listeners = { pointerdown: down, pointermove: move, pointerup: up, pointercancel: up } as const
  pane.addEventListener('wheel', wheel, { passive: false })
  for (const [name, listener] of Object.entries(listeners))
    pane.addEventListener(name, listener as EventListener)
  return () => {
    pane.removeEventListener('wheel', wheel)
    for (const [name, listener] of Object.entries(listeners))
      pane.removeEventListener(name, listener as EventListener)
  }
}
