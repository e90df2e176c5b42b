/** Search over the whole model, not only the level that is shown. */
import { useSignal } from '@preact/signals'
import type { JSX } from 'preact'
import { useEffect, useMemo, useRef } from 'preact/hooks'
import * as format from '../format.ts'
import type { Match, Matches } from '../schema.ts'
import { latest, resource } from '../state/resource.ts'
import { useStore } from './context.ts'
import { Dialog } from './controls.tsx'
import { emptiestColumn } from './drag.ts'

const TYPING_MS = 120

export function Search({ onClose }: { onClose: () => void }): JSX.Element {
  const store = useStore()
  const query = useSignal('')
  const chosen = useSignal(0)
  const found = useMemo(() => resource<{ text: string; matches: Matches }>(), [])
  const loadable = found.state.value
  const text = query.value.trim()
  const answer = text === '' ? undefined : latest(loadable)
  const matches = answer?.matches
  /** What Enter was pressed for before its answer came. */
  const pressed = useRef<{ readonly text: string; readonly shift: boolean } | null>(null)

  useEffect(() => {
    const place = store.place.value
    chosen.value = 0
    if (place === null || text === '') {
      found.clear()
      return
    }
    const timer = setTimeout(
      () =>
        void found.load('search', async (signal) => ({
          text,
          matches: await store.api.search(place, text, signal),
        })),
      TYPING_MS,
    )
    return () => clearTimeout(timer)
  }, [text, store.place.value])

  const list = matches?.matches ?? []
  const go = (match: Match): void => {
    store.openLevel(match.level, match.id)
    onClose()
  }
  const enter = (shift: boolean): void => {
    // What is listed may still be what matched before.
    pressed.current = answer?.text === text ? null : { text, shift }
    const match = pressed.current === null ? list[chosen.value] : undefined
    if (match !== undefined) (shift ? addPanel : go)(match)
  }
  useEffect(() => {
    const { current } = pressed
    if (current !== null && current.text === text && current.text === answer?.text) enter(current.shift)
  }, [answer])
  const keys = (event: KeyboardEvent): void => {
    if (event.key === 'ArrowDown') chosen.value = Math.min(list.length - 1, chosen.value + 1)
    else if (event.key === 'ArrowUp') chosen.value = Math.max(0, chosen.value - 1)
    else if (event.key === 'Escape') closeDialog(event)
    else if (event.key === 'Enter') enter(event.shiftKey)
    else return
    event.preventDefault()
  }
  const addPanel = (match: Match): void => {
    const model = store.place.value?.model
    if (model !== undefined) store.panels.add(model, match.id, emptiestColumn())
  }

  return (
    <Dialog title="Search the model" class="search-dialog" onClose={onClose}>
      <input
        type="search"
        class="search-field"
        // biome-ignore lint/a11y/noRedundantRoles: without a datalist its own role is that of a search field
        role="combobox"
        aria-label="Path, class or shape"
        aria-expanded={list.length > 0}
        aria-controls="matches"
        aria-activedescendant={list.length > 0 ? `match-${chosen.value}` : undefined}
        placeholder="Path, class or shape, for example layer1 conv, or 64×56"
        autoFocus
        value={query.value}
        list={undefined}
        onInput={(event) => (query.value = event.currentTarget.value)}
        onKeyDown={keys}
      />
      <p class="search-status" role="status">
        {searchStatus(query.value, loadable.kind === 'failed' ? loadable.text : '', matches)}
      </p>
      <div id="matches" role="listbox" aria-label="Matches">
        {list.map((match, position) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: keys go to the field above
          <div
            key={match.id}
            id={`match-${position}`}
            role="option"
            aria-selected={position === chosen.value}
            tabIndex={-1}
            ref={(row) => {
              if (row !== null && position === chosen.value) row.scrollIntoView({ block: 'nearest' })
            }}
            onClick={() => go(match)}
          >
            <span class="match-path">{format.shorten(format.visible(match.path), 70)}</span>
            <span class="muted">{format.shorten(format.visible(match.class_name), 30)}</span>
            <span class="match-shape">{match.shape}</span>
          </div>
        ))}
      </div>
      <p class="muted search-keys">
        <kbd>Enter</kbd> shows it in the graph, <kbd>Shift</kbd>+<kbd>Enter</kbd> adds a panel
      </p>
    </Dialog>
  )
}

/** Escape in a search field only empties it. */
function closeDialog(event: KeyboardEvent): void {
  ;(event.target as Element).closest('dialog')?.close()
}

function searchStatus(query: string, failure: string, matches: Matches | undefined): string {
  if (query.trim() === '') return 'Type to search all modules, on every level.'
  if (failure !== '') return failure
  if (matches === undefined) return 'searching…'
  if (matches.total === 0) return `Nothing matches “${query}”.`
  const shown = matches.matches.length
  return shown < matches.total
    ? `first ${shown} of ${format.plural(matches.total, 'module')}`
    : format.plural(matches.total, 'module')
}
