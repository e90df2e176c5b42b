/** The histories that panels show: fetched while somebody holds them, and again when their run has news. */
import { computed, effect, type ReadonlySignal, signal, untracked } from '@preact/signals'
import type { Api, Place } from '../api/api.ts'
import type { History } from '../api/decode.ts'
import { type Loadable, latest, type Resource, resource } from './resource.ts'

/** Steps asked for: about one per pixel column of a heat map in a panel, and in full screen. */
export const PANEL_STEPS = 400
export const FULL_STEPS = 2000

/** A panel that moves to another column is unmounted for a moment; its history is kept that long. */
const LINGER_MS = 2000

export interface Histories {
  /** The history of `node`, at most `limit` steps, until `release`. */
  hold(place: Place, node: string, limit: number): Held
  /** All that is held and here. */
  readonly ready: ReadonlySignal<readonly History[]>
  dispose(): void
}

export interface Held {
  readonly state: ReadonlySignal<Loadable<History>>
  release(): void
}

interface Entry {
  readonly resource: Resource<History>
  readonly end: () => void
  holders: number
}

/** `tokenOf` gives the change token of a place, undefined while that is unknown; a change of `attempt`
 *  fetches again. Both are read as signals. */
export function createHistories(
  api: Api,
  tokenOf: (place: Place) => string | undefined,
  attempt: ReadonlySignal<number>,
): Histories {
  const entries = signal<ReadonlyMap<string, Entry>>(new Map())

  function open(name: string, place: Place, node: string, limit: number): Entry {
    const held = resource<History>(true)
    const token = computed(() => tokenOf(place))
    const end = effect(() => {
      attempt.value
      if (token.value === undefined) return
      void untracked(() => held.load(name, (signal) => api.history(place, node, limit, signal)))
    })
    const entry = { resource: held, end, holders: 0 }
    entries.value = new Map(entries.peek()).set(name, entry)
    return entry
  }

  function close(name: string, entry: Entry): void {
    if (entry.holders > 0 || entries.peek().get(name) !== entry) return
    entry.end()
    entry.resource.clear()
    const others = new Map(entries.peek())
    others.delete(name)
    entries.value = others
  }

  return {
    hold(place, node, limit) {
      const name = JSON.stringify([place.run, place.model, node, limit])
      const entry = entries.peek().get(name) ?? open(name, place, node, limit)
      entry.holders++
      let released = false
      return {
        state: entry.resource.state,
        release() {
          if (released) return
          released = true
          entry.holders--
          setTimeout(close, LINGER_MS, name, entry)
        },
      }
    },
    ready: computed(() =>
      [...entries.value.values()].flatMap(({ resource: { state } }) => latest(state.value) ?? []),
    ),
    dispose() {
      for (const entry of entries.peek().values()) entry.end()
    },
  }
}
