/** One panel: the heat maps of an invocation, for the open run and those compared with it. */
import { useSignal } from '@preact/signals'
import type { ComponentChildren, JSX } from 'preact'
import { useEffect, useLayoutEffect, useMemo, useRef } from 'preact/hooks'
import type { History } from '../api/decode.ts'
import * as format from '../format.ts'
import { measureText } from '../graph/measure.ts'
import { panelMark } from '../heatmap/colours.ts'
import { FULL_STEPS, PANEL_STEPS } from '../state/histories.ts'
import { type Panel, panelKey, titleOf } from '../state/panels.ts'
import { counterpart } from '../state/places.ts'
import { type Loadable, latest } from '../state/resource.ts'
import type { Store } from '../state/store.ts'
import { useStore } from './context.ts'
import { Dialog, IconButton, Popover, Switch } from './controls.tsx'
import { followDrag } from './drag.ts'
import { extras, withExtras } from './later.ts'
import { Failure } from './states.tsx'
import { type Loaded, Tensors } from './tensors.tsx'

const PAD = 12
const PLOT_HEIGHT = 88
const FULL_HEIGHT = 200
/** What the head of a panel holds beside its title. */
const HEAD_ROOM = 166
/** Of the dialog's sides, border and scroll bar. */
const FULL_PAD = 2 * 24 + 2 + 16

export interface PanelViewProps {
  readonly panel: Panel
  readonly width: number
  readonly columns: number
  /** Whether there is a panel above it, and one below. */
  readonly above: boolean
  readonly below: boolean
}

export function PanelView({ panel, width, columns, above, below }: PanelViewProps): JSX.Element {
  const store = useStore()
  const root = useRef<HTMLElement>(null)
  const open = useSignal<'full' | 'table' | null>(null)
  const title = titleOf(panel.node)
  const mark = panelMark(panel.slot)
  const held = useHistories(panel, PANEL_STEPS)
  const loaded = loadedOf(held)
  const first = loaded[0]?.history

  useLayoutEffect(() => {
    if (store.panels.fresh.value !== panelKey(panel)) return
    store.panels.fresh.value = null
    root.current?.scrollIntoView({ block: 'nearest' })
    // A panel that moved by keyboard lost the focus on its way.
    if (document.activeElement === document.body) root.current?.focus()
  }, [store.panels.fresh.value])

  const move = (right: number, down: number): void => {
    store.panels.move(panel, right, down, columns)
    store.panels.fresh.value = panelKey(panel)
  }
  const close = (): void => {
    const own = root.current?.closest('[data-panel]')
    const next = (own?.nextElementSibling ?? own?.previousElementSibling)?.querySelector('article')
    store.panels.close(panel)
    next?.focus({ preventScroll: true })
  }
  const column = panel.column % columns
  const DataTable = extras.value?.DataTable
  return (
    <article
      ref={root}
      class="panel"
      tabIndex={-1}
      aria-label={`Panel ${mark.letter}: ${title}`}
      style={{ '--mark': mark.colour }}
    >
      <header
        class="panel-head"
        onPointerDown={(event) => {
          if (!(event.target as Element).closest('button, .sheet'))
            followDrag(event, store, panel.model, panel.node, title)
        }}
      >
        <span class="mark" aria-hidden="true">
          {mark.letter}
        </span>
        <h2>
          <button
            type="button"
            class="plain"
            title={`Show ${title} in the graph`}
            disabled={first === undefined}
            onClick={() => first !== undefined && showInGraph(store, panel, first.level)}
          >
            {format.fit(title, width - HEAD_ROOM, (shown) => measureText(shown, 13, 650))}
          </button>
        </h2>
        <span class="panel-tools">
          {first !== undefined && <Overlay panel={panel} history={first} />}
          <IconButton icon="full" label="Full screen" onClick={() => (open.value = 'full')} />
          <Popover label={`More about panel ${mark.letter}`} icon="more" side="end">
            {(close) => (
              <ul class="menu">
                <Item text="Move left" disabled={column === 0} act={() => move(-1, 0)} close={close} />
                <Item
                  text="Move right"
                  disabled={column >= columns - 1}
                  act={() => move(1, 0)}
                  close={close}
                />
                <Item text="Move up" disabled={!above} act={() => move(0, -1)} close={close} />
                <Item text="Move down" disabled={!below} act={() => move(0, 1)} close={close} />
                <Item
                  text="Data table"
                  disabled={first === undefined}
                  act={() => withExtras(store, () => (open.value = 'table'))}
                  close={close}
                />
                <Item
                  text="Save as PNG"
                  disabled={first === undefined}
                  act={() =>
                    withExtras(store, ({ savePanelPicture }) => savePanelPicture(root.current, title))
                  }
                  close={close}
                />
                <Item
                  text="Save as CSV"
                  disabled={first === undefined}
                  act={() => withExtras(store, ({ saveCsv }) => saveCsv(loaded, title))}
                  close={close}
                />
              </ul>
            )}
          </Popover>
          <IconButton icon="close" label={`Close panel ${mark.letter}`} onClick={close} />
        </span>
      </header>
      <PanelBody held={held} width={width - 2 * PAD - 2} height={PLOT_HEIGHT} />
      {open.value === 'full' && <FullPanel panel={panel} onClose={() => (open.value = null)} />}
      {open.value === 'table' && DataTable && (
        <DataTable title={title} held={held} onClose={() => (open.value = null)} />
      )}
    </article>
  )
}

function showInGraph(store: Store, panel: Panel, level: string): void {
  if (panel.model !== store.place.value?.model)
    store.openPlace({ run: store.place.value?.run ?? '', model: panel.model })
  store.openLevel(level, panel.node)
}

/** Which further invocations are laid over that of the panel: other calls, or the layers of a stack. */
function Overlay({ panel, history }: { panel: Panel; history: History }): JSX.Element | null {
  const store = useStore()
  const others = history.peers.filter((peer) => peer !== panel.node)
  const { also } = panel
  if (others.length === 0) return null
  const label = 'Compare with other calls and layers'
  return (
    <Popover
      label={label}
      icon="stack"
      side="end"
      text={
        also.length === 0 ? undefined : (
          <span class="count">
            +{also.length}
            <span class="hidden"> {label}</span>
          </span>
        )
      }
    >
      {() => (
        <fieldset class="choice peers">
          <legend>Show together with</legend>
          <Switch
            label="all"
            value={also.length === others.length}
            onChange={(all) => store.panels.overlay(panel, all ? others : [])}
          />
          {others.map((peer) => (
            <Switch
              key={peer}
              label={titleOf(peer, history.level)}
              value={also.includes(peer)}
              onChange={(shown) =>
                store.panels.overlay(
                  panel,
                  others.filter((other) => (other === peer ? shown : also.includes(other))),
                )
              }
            />
          ))}
        </fieldset>
      )}
    </Popover>
  )
}

interface ItemProps {
  readonly text: string
  readonly act: () => void
  readonly close: () => void
  readonly disabled?: boolean
}

function Item({ text, act, close, disabled = false }: ItemProps): JSX.Element {
  return (
    <li>
      <button
        type="button"
        disabled={disabled}
        onClick={() => {
          close()
          act()
        }}
      >
        {text}
      </button>
    </li>
  )
}

/** A history that a panel shows, and what tells its run from the others. */
export interface Shown {
  readonly run: string
  readonly tags: readonly string[]
  readonly node: string
  readonly loadable: Loadable<History>
}

/** The histories of a panel's invocations, in the open run first. A run that has no model of the panel's
 *  name shows the one that stands for it, and says so. */
function useHistories({ model, node, also }: Panel, limit: number): readonly Shown[] {
  const store = useStore()
  const runs = store.place.value === null ? [] : [store.place.value.run, ...store.compare.value]
  const wanted = runs.flatMap((run) => {
    const models = store.models.value.get(run) ?? []
    const own = counterpart(models, model)
    const tags = [
      ...(runs.length > 1 ? [format.shorten(format.visible(run), 44)] : []),
      ...(own === undefined || own === model ? [] : [`model ${format.shorten(format.visible(own), 44)}`]),
    ]
    const lacks = `Run “${format.visible(run)}” has no model “${format.visible(model)}”; it has ${models.map((name) => `“${format.visible(name)}”`).join(', ') || 'none'}.`
    return (own === undefined ? [node] : [node, ...also]).map((id) => ({ run, own, node: id, tags, lacks }))
  })
  const key = JSON.stringify([wanted.map(({ run, own, node }) => [run, own, node]), limit])
  const held = useMemo(
    () =>
      wanted.map(({ run, own, node }) =>
        own === undefined ? null : store.histories.hold({ run, model: own }, node, limit),
      ),
    [key],
  )
  useEffect(() => () => held.forEach((one) => void one?.release()), [held])
  return wanted.map(({ run, node, tags, lacks }, position) => ({
    run,
    tags,
    node,
    loadable: held[position]?.state.value ?? { kind: 'failed', text: lacks, stale: undefined },
  }))
}

function loadedOf(held: readonly Shown[]): Loaded[] {
  return held.flatMap(({ loadable, ...shown }) => {
    const history = latest(loadable)
    return history === undefined ? [] : [{ ...shown, history }]
  })
}

interface BodyProps {
  readonly held: readonly Shown[]
  /** Of the room inside, and of one heat map, in CSS pixels. */
  readonly width: number
  readonly height: number
}

function PanelBody({ held, width, height }: BodyProps): JSX.Element {
  const store = useStore()
  const loaded = loadedOf(held)
  return (
    <div class="panel-body">
      {held.map(({ run, tags, node, loadable }) =>
        loadable.kind === 'failed' ? (
          <Failure
            key={`${run} ${node}`}
            what={['No histories', ...tags].join(', ')}
            text={loadable.text}
            retry={store.retry}
            quiet={loaded.length > 0}
          />
        ) : null,
      )}
      {loaded.length === 0 && held.some(({ loadable }) => loadable.kind !== 'failed') && (
        <PlotSkeleton height={height} />
      )}
      {loaded.length > 0 && <Tensors loaded={loaded} width={width} height={height} />}
    </div>
  )
}

function PlotSkeleton({ height }: { height: number }): JSX.Element {
  return (
    <div role="status" aria-label="Loading histories">
      {[0, 1, 2].map((row) => (
        <div key={row} class="bone" style={{ height: `${height}px`, margin: '24px 0' }} />
      ))}
    </div>
  )
}

function FullPanel({ panel, onClose }: { panel: Panel; onClose: () => void }): JSX.Element {
  const store = useStore()
  const shown = useSignal(panel)
  const held = useHistories(shown.value, FULL_STEPS)
  const panels = store.panels.list.value
  const step = (by: number): void => {
    const at = panels.findIndex((other) => panelKey(other) === panelKey(shown.value))
    const next = panels[(at + by + panels.length) % panels.length]
    if (next !== undefined) shown.value = next
  }
  const tools: ComponentChildren = panels.length > 1 && (
    <>
      <IconButton icon="left" label="Previous panel" onClick={() => step(-1)} />
      <IconButton icon="right" label="Next panel" onClick={() => step(1)} />
    </>
  )
  const room = useSignal(innerWidth)
  useEffect(() => {
    const measure = (): void => {
      room.value = innerWidth
    }
    window.addEventListener('resize', measure)
    return () => window.removeEventListener('resize', measure)
  }, [])
  const width = Math.min(1600, room.value - 32)
  return (
    <Dialog title={titleOf(shown.value.node)} class="full" onClose={onClose} tools={tools}>
      <PanelBody held={held} width={width - FULL_PAD} height={FULL_HEIGHT} />
    </Dialog>
  )
}
