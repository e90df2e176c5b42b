/** The whole tab. */
import { effect, useSignal } from '@preact/signals'
import type { JSX } from 'preact'
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks'
import { latest } from '../state/resource.ts'
import type { Store } from '../state/store.ts'
import { applyTheme } from '../theme.ts'
import { Board } from './board.tsx'
import { StoreContext, useStore } from './context.ts'
import { dragged } from './drag.ts'
import { GraphPane } from './graph.tsx'
import { Header } from './header.tsx'
import { extras, withExtras } from './later.ts'
import { Overlays } from './overlays.tsx'
import { Failure, NoRuns, Waiting } from './states.tsx'
import { moveStep, Timeline } from './timeline.tsx'

export function App({ store }: { store: Store }): JSX.Element {
  useLayoutEffect(() => effect(() => applyTheme(document.documentElement, store.host.theme.value)), [])
  return (
    <StoreContext.Provider value={store}>
      <Page />
    </StoreContext.Provider>
  )
}

function Page(): JSX.Element {
  const store = useStore()
  const loadable = store.runs.state.value
  const runs = latest(loadable)
  if (runs === undefined && loadable.kind === 'failed') {
    return (
      <main class="empty-page">
        <Failure what="The runs could not be loaded" text={loadable.text} retry={store.retry} />
      </main>
    )
  }
  if (runs === undefined) return <Waiting text="Looking for runs…" />
  if (runs.runs.every(({ models }) => models.length === 0)) return <NoRuns />
  return <Explorer />
}

function Explorer(): JSX.Element {
  const store = useStore()
  const open = useSignal<'search' | 'help' | null>(null)
  const close = (): void => {
    open.value = null
  }
  const show = (dialog: 'search' | 'help'): void => {
    void withExtras(store, () => {
      open.value = dialog
    })
  }
  useEffect(() => {
    const keys = (event: KeyboardEvent): void => {
      if (open.value !== null || document.querySelector('dialog[open]') !== null) return
      const typing = (event.target as Element | null)?.matches(
        'input:not([type=range]):not([type=checkbox]):not([type=radio]), select, textarea',
      )
      // Many keyboards have brackets behind AltGr (on Windows Ctrl and Alt at once) or, on a Mac, Alt.
      const bracket = event.key === '[' || event.key === ']'
      const control = (event.ctrlKey && !event.getModifierState('AltGraph')) || event.metaKey
      if (control && event.key.toLowerCase() === 'k') show('search')
      else if (typing || control || (event.altKey && !bracket)) return
      else if (event.key === '/') show('search')
      else if (event.key === '?') show('help')
      else if (event.key === '[') moveStep(store, -1)
      else if (event.key === ']') moveStep(store, 1)
      else return
      event.preventDefault()
    }
    window.addEventListener('keydown', keys)
    return () => window.removeEventListener('keydown', keys)
  }, [])
  const problem = store.entry.value?.problem ?? ''
  const { Help, Search } = extras.value ?? {}
  return (
    <div class="app">
      <Header
        onSearch={() => show('search')}
        onHelp={() => show('help')}
        onSaveGraph={(kind) => withExtras(store, ({ saveGraph }) => saveGraph(store, kind))}
      />
      <RunsFailure />
      {problem !== '' ? (
        <main class="empty-page">
          <Failure what="This model can’t be shown" text={problem} retry={store.retry} />
        </main>
      ) : (
        <Panes />
      )}
      <Timeline />
      {open.value === 'search' && Search && <Search onClose={close} />}
      {open.value === 'help' && Help && <Help onClose={close} />}
      <Ghost />
      <Overlays inside={false} />
    </div>
  )
}

/** The server went away: what is on screen stays. */
function RunsFailure(): JSX.Element | null {
  const store = useStore()
  const loadable = store.runs.state.value
  return loadable.kind === 'failed' ? (
    <Failure what="Out of date" text={loadable.text} retry={store.retry} />
  ) : null
}

const [LEAST_SHARE, MOST_SHARE, SHARE_STEP] = [0.15, 0.85, 0.02]

/** Graph and panels with a divider between, which moves by mouse, touch or arrow keys. */
function Panes(): JSX.Element {
  const store = useStore()
  const root = useRef<HTMLElement>(null)
  const share = store.preferences.value.graphShare
  const set = (wanted: number): void => {
    const graphShare = Math.min(MOST_SHARE, Math.max(LEAST_SHARE, wanted))
    store.preferences.value = { ...store.preferences.peek(), graphShare }
  }
  return (
    <main
      class="panes"
      ref={root}
      style={{ gridTemplateColumns: `minmax(0, ${share}fr) 8px minmax(0, ${1 - share}fr)` }}
    >
      <GraphPane />
      {/* biome-ignore lint/a11y/useSemanticElements: a separator that moves has no element of its own */}
      <div
        class="divider"
        role="separator"
        aria-orientation="vertical"
        aria-label="Width of the graph"
        aria-valuenow={Math.round(share * 100)}
        aria-valuemin={LEAST_SHARE * 100}
        aria-valuemax={MOST_SHARE * 100}
        tabIndex={0}
        onPointerDown={(event) => event.currentTarget.setPointerCapture(event.pointerId)}
        onPointerMove={(event) => {
          if (!event.currentTarget.hasPointerCapture(event.pointerId) || root.current === null) return
          const { left, width } = root.current.getBoundingClientRect()
          set((event.clientX - left) / width)
        }}
        onKeyDown={(event) => {
          if (event.key === 'ArrowLeft') set(share - SHARE_STEP)
          else if (event.key === 'ArrowRight') set(share + SHARE_STEP)
        }}
      />
      <Board />
    </main>
  )
}

/** What is being dragged, under the pointer. */
function Ghost(): JSX.Element | null {
  const now = dragged.value
  if (now === null) return null
  return (
    <div class="ghost" style={{ transform: `translate(${now.x + 8}px, ${now.y + 8}px)` }} aria-hidden="true">
      {now.label}
    </div>
  )
}
