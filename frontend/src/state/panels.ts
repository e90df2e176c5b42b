/** The panels on the board: which, in what order, in what column, with which mark. */
import { computed, type ReadonlySignal, type Signal, signal } from '@preact/signals'
import { shorten, visible } from '../format.ts'
import { panelMark } from '../heatmap/colours.ts'
import { ROOT_ID } from '../schema.ts'
import type { PanelChoice } from './link.ts'

/** `slot` gives colour and letter; it stays with the panel while it is open. */
export interface Panel extends PanelChoice {
  readonly slot: number
}

export interface Panels {
  readonly list: ReadonlySignal<readonly Panel[]>
  readonly choices: ReadonlySignal<readonly PanelChoice[]>
  /** The panel to bring into view, by its key; set when one is added. */
  readonly fresh: Signal<string | null>
  /** What `undo` would bring back, or null. */
  readonly closed: ReadonlySignal<Panel | null>
  find(model: string, node: string): Panel | undefined
  /** Adds a panel at `position` of `column`, or moves it there if it is open already. */
  add(model: string, node: string, column: number, position?: number): void
  close(panel: Panel): void
  undo(): void
  /** Moves a panel by so many columns to the right, or places down in its column of `columns`. */
  move(panel: Panel, right: number, down: number, columns: number): void
  reset(choices: readonly PanelChoice[]): void
}

/** `layer1.0.conv1` for the call `layer1/0/conv1`: the escapes of an id are undone. */
export function titleOf(node: string): string {
  if (node === ROOT_ID) return 'the whole model'
  const path = node
    .split('/')
    .map((part) => part.replace(/^\^/, '').replace(/%(25|2F|23|5E)/gi, decodeURIComponent))
  return visible(path.join('.'))
}

export function panelKey({ model, node }: Pick<PanelChoice, 'model' | 'node'>): string {
  return JSON.stringify([model, node])
}

export function createPanels(first: readonly PanelChoice[], notice: Signal<string>): Panels {
  const list = signal<readonly Panel[]>(withSlots(first, []))
  const fresh = signal<string | null>(null)
  const closed = signal<Panel | null>(null)

  function find(model: string, node: string): Panel | undefined {
    return list.value.find((panel) => panel.model === model && panel.node === node)
  }

  function put(panel: Panel, position: number | undefined): void {
    const others = list.value.filter((other) => other !== find(panel.model, panel.node))
    const column = others.filter((other) => other.column === panel.column)
    const before = position === undefined ? undefined : column[position]
    const at = before === undefined ? others.length : others.indexOf(before)
    list.value = [...others.slice(0, at), panel, ...others.slice(at)]
  }

  return {
    list,
    choices: computed(() => list.value.map(({ model, node, column }) => ({ model, node, column }))),
    fresh,
    closed,
    find,
    add(model, node, column, position) {
      const open = find(model, node)
      const slot = open?.slot ?? freeSlot(list.value)
      put({ model, node, column, slot }, position)
      fresh.value = panelKey({ model, node })
      notice.value = `${shorten(titleOf(node), 60)} ${open ? 'moved to' : 'added as panel'} ${open ? `column ${column + 1}` : `${panelMark(slot).letter} in column ${column + 1}`}.`
    },
    close(panel) {
      list.value = list.value.filter((other) => other !== panel)
      closed.value = panel
      notice.value = `Closed panel ${panelMark(panel.slot).letter}.`
    },
    undo() {
      if (closed.value === null) return
      const { model, node, column } = closed.value
      put({ model, node, column, slot: freeSlot(list.value) }, undefined)
      closed.value = null
    },
    move(panel, right, down, columns) {
      const shown = (column: number): number => column % columns
      const column = Math.min(columns - 1, Math.max(0, shown(panel.column) + right))
      const mates = list.value.filter((other) => shown(other.column) === column && other !== panel)
      const now = list.value.filter((other) => shown(other.column) === shown(panel.column)).indexOf(panel)
      const position = Math.min(mates.length, Math.max(0, now + down))
      const before = mates[position]
      const others = list.value.filter((other) => other !== panel)
      const at = before === undefined ? others.length : others.indexOf(before)
      list.value = [...others.slice(0, at), { ...panel, column }, ...others.slice(at)]
    },
    reset(choices) {
      list.value = withSlots(choices, list.value)
    },
  }
}

/** Panels that were open keep their mark. */
function withSlots(choices: readonly PanelChoice[], open: readonly Panel[]): readonly Panel[] {
  const panels: Panel[] = []
  for (const choice of choices) {
    if (panels.some((panel) => panelKey(panel) === panelKey(choice))) continue
    const slot = open.find((panel) => panelKey(panel) === panelKey(choice))?.slot
    panels.push({ ...choice, slot: slot ?? freeSlot([...open, ...panels]) })
  }
  return panels
}

function freeSlot(panels: readonly Panel[]): number {
  const taken = new Set(panels.map((panel) => panel.slot))
  let slot = 0
  while (taken.has(slot)) slot++
  return slot
}
