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
  /** The panel to bring into view, by its key; set when one is added or back. */
  readonly fresh: Signal<string | null>
  /** What `undo` would bring back to where it was in the list, or null. */
  readonly closed: ReadonlySignal<{ readonly panel: Panel; readonly at: number } | null>
  find(model: string, node: string): Panel | undefined
  /** Adds a panel at `position` of `column`, or moves it there if it is open already. */
  add(model: string, node: string, column: number, position?: number): void
  /** Lays the invocations `also` over that of a panel. */
  overlay(panel: Panel, also: readonly string[]): void
  close(panel: Panel): void
  undo(): void
  /** Moves a panel by so many columns to the right, or places down in its column of `columns`. */
  move(panel: Panel, right: number, down: number, columns: number): void
  reset(choices: readonly PanelChoice[]): void
  /** Says which model is meant where a link named none. */
  adopt(model: string): void
}

/** `layer1.0.relu #2` for the call `layer1/0/relu#1`: calls count from 1, the escapes of an id are undone.
 *  Within the level `above` the rest goes without saying. */
export function titleOf(node: string, above = ROOT_ID): string {
  if (node === ROOT_ID) return 'the whole model'
  const path = (above === ROOT_ID ? node : node.slice(above.length + 1)).split('/').map((part) =>
    part
      .replace(/^\^/, '')
      .replace(/#(\d+)$/, (_, call) => ` #${Number(call) + 1}`)
      .replace(/%(25|2F|23|5E)/gi, decodeURIComponent),
  )
  return visible(path.join('.'))
}

export function panelKey({ model, node }: Pick<PanelChoice, 'model' | 'node'>): string {
  return JSON.stringify([model, node])
}

export function createPanels(first: readonly PanelChoice[], notice: Signal<string>): Panels {
  const list = signal<readonly Panel[]>(withSlots(first, []))
  const fresh = signal<string | null>(null)
  const closed = signal<{ panel: Panel; at: number } | null>(null)

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
    choices: computed(() =>
      list.value.map(({ model, node, also, column }) => ({ model, node, also, column })),
    ),
    fresh,
    closed,
    find,
    add(model, node, column, position) {
      const open = find(model, node)
      const slot = open?.slot ?? freeSlot(list.value)
      put({ model, node, also: open?.also ?? [], column, slot }, position)
      fresh.value = panelKey({ model, node })
      notice.value = `${shorten(titleOf(node), 60)} ${open ? 'moved to' : 'added as panel'} ${open ? `column ${column + 1}` : `${panelMark(slot).letter} in column ${column + 1}`}.`
    },
    overlay(panel, also) {
      list.value = list.value.map((other) => (other === panel ? { ...panel, also } : other))
    },
    close(panel) {
      closed.value = { panel, at: list.value.indexOf(panel) }
      list.value = list.value.filter((other) => other !== panel)
      notice.value = `Closed panel ${panelMark(panel.slot).letter}.`
    },
    undo() {
      if (closed.value === null) return
      const { panel, at } = closed.value
      closed.value = null
      if (find(panel.model, panel.node) !== undefined) return
      const slot = freeSlot(list.value)
      list.value = [...list.value.slice(0, at), { ...panel, slot }, ...list.value.slice(at)]
      fresh.value = panelKey(panel)
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
    adopt(model) {
      if (list.value.every((panel) => panel.model !== '')) return
      const named = list.value.map((panel) => (panel.model === '' ? { ...panel, model } : panel))
      list.value = named.filter((panel, at) => {
        return at === named.findIndex((other) => panelKey(other) === panelKey(panel))
      })
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
