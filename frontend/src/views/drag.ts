/** Dragging modules and panels onto the board, with mouse, pen or touch. Pointer events, since native drag
 *  and drop does not know touch. Each drag has a button and a key as well. */
import { signal } from '@preact/signals'
import type { Store } from '../state/store.ts'

/** What is being dragged and where it would land. `column` is null while that is nowhere. */
export interface Dragged {
  readonly label: string
  readonly x: number
  readonly y: number
  readonly target: DropTarget | null
}

export interface DropTarget {
  readonly column: number
  readonly position: number
}

export const dragged = signal<Dragged | null>(null)

/** A press turns into a drag after this many pixels. */
const THRESHOLD = 5

/** Follows a pointer that went down on something that stands for the invocation `node` of `model`. */
export function followDrag(
  down: PointerEvent,
  store: Store,
  model: string,
  node: string,
  label: string,
): void {
  if (down.button !== 0) return
  let moving = false
  const move = (event: PointerEvent): void => {
    if (event.pointerId !== down.pointerId) return
    const far = Math.hypot(event.clientX - down.clientX, event.clientY - down.clientY) > THRESHOLD
    if (!moving && !far) return
    moving = true
    event.preventDefault()
    const [x, y] = [event.clientX, event.clientY]
    dragged.value = { label, x, y, target: dropTarget(x, y) }
  }
  const up = (event: PointerEvent): void => {
    if (event.pointerId !== down.pointerId) return
    const target = dragged.value?.target
    end()
    if (moving) swallowClick()
    if (target) store.panels.add(model, node, target.column, target.position)
  }
  const key = (event: KeyboardEvent): void => {
    if (event.key !== 'Escape' || !moving) return
    event.stopPropagation()
    end()
    swallowClick()
  }
  const end = (): void => {
    dragged.value = null
    window.removeEventListener('pointermove', move)
    window.removeEventListener('pointerup', up)
    window.removeEventListener('pointercancel', end)
    window.removeEventListener('keydown', key, true)
  }
  window.addEventListener('pointermove', move, { passive: false })
  window.addEventListener('pointerup', up)
  window.addEventListener('pointercancel', end)
  window.addEventListener('keydown', key, true)
}

/** A drag ends with a click on what it started from, which would open the module. */
export function swallowClick(): void {
  const stop = (event: Event): void => {
    event.stopPropagation()
    event.preventDefault()
  }
  window.addEventListener('click', stop, { capture: true, once: true })
  // Released over another element, no click comes.
  setTimeout(() => window.removeEventListener('click', stop, { capture: true }), 0)
}

function dropTarget(x: number, y: number): DropTarget | null {
  const column = document
    .elementsFromPoint(x, y)
    .map((element) => element.closest<HTMLElement>('[data-column]'))
    .find((element) => element !== null)
  if (!column) return null
  const middles = [...column.querySelectorAll('[data-panel]')].map((panel) => {
    const { top, height } = panel.getBoundingClientRect()
    return top + height / 2
  })
  return { column: Number(column.dataset.column), position: middles.filter((middle) => middle < y).length }
}

/** The column with the most room below its panels. */
export function emptiestColumn(): number {
  const ends = [...document.querySelectorAll<HTMLElement>('[data-column]')].map((column) => ({
    column: Number(column.dataset.column),
    end: column.querySelector('[data-panel]:last-of-type')?.getBoundingClientRect().bottom ?? -Infinity,
  }))
  return ends.reduce((best, next) => (next.end < best.end ? next : best), { column: 0, end: Infinity }).column
}
