/** One panel: the heat maps of an invocation, for the open run and those compared with it. */
import { useSignal } from '@preact/signals'
import type { ComponentChildren, JSX } from 'preact'
import { useEffect, useLayoutEffect, useMemo, useRef } from 'preact/hooks'
import type { Place } from '../api/api.ts'
import type { History } from '../api/decode.ts'
import * as format from '../format.ts'
import { panelMark } from '../heatmap/colours.ts'
import { statusText } from '../heatmap/plot.ts'
import { commonExtent, hasGradients, type TensorTracks, tensorsOf } from '../heatmap/tensors.ts'
import { Status } from '../schema.ts'
import { FULL_STEPS, PANEL_STEPS } from '../state/histories.ts'
import { type Panel, panelKey, titleOf } from '../state/panels.ts'
import { type Loadable, latest } from '../state/resource.ts'
import { useStore } from './context.ts'
import { Dialog, IconButton, Popover } from './controls.tsx'
import { followDrag } from './drag.ts'
import { PlotView } from './plot.tsx'
import { saveCsv, savePanelPicture } from './save.ts'
import { Failure } from './states.tsx'
import { DataTable } from './table.tsx'

const PAD = 12
const PLOT_GAP = 8
const PLOT_HEIGHT = 88
const FULL_HEIGHT = 200
/** Of the dialog's sides, border and scroll bar. */
const FULL_PAD = 2 * 24 + 2 + 16

export interface PanelViewProps {
  readonly panel: Panel
  readonly width: number
  readonly columns: number
}

export function PanelView({ panel, width, columns }: PanelViewProps): JSX.Element {
  const store = useStore()
  const root = useRef<HTMLElement>(null)
  const open = useSignal<'full' | 'table' | null>(null)
  const title = titleOf(panel.node)
  const mark = panelMark(panel.slot)
  const held = useHistories(panel, PANEL_STEPS)
  const first = held[0] === undefined ? undefined : latest(held[0].loadable)

  useLayoutEffect(() => {
    if (store.panels.fresh.value !== panelKey(panel)) return
    store.panels.fresh.value = null
    root.current?.scrollIntoView({ block: 'nearest' })
  }, [store.panels.fresh.value])

  const move = (right: number, down: number): void => {
    store.panels.move(panel, right, down, columns)
    store.panels.fresh.value = panelKey(panel)
  }
  const column = panel.column % columns
  return (
    <article
      ref={root}
      class="panel"
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
        <h2 title={format.visible(panel.node)}>
          <button
            type="button"
            class="plain"
            title="Show in the graph"
            onClick={() => showInGraph(store, panel)}
          >
            {title}
          </button>
        </h2>
        <span class="panel-tools">
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
                <Item text="Move up" act={() => move(0, -1)} close={close} />
                <Item text="Move down" act={() => move(0, 1)} close={close} />
                <Item text="Data table" act={() => (open.value = 'table')} close={close} />
                <Item
                  text="Save as PNG"
                  disabled={first === undefined}
                  act={() => savePanelPicture(root.current, title)}
                  close={close}
                />
                <Item
                  text="Save as CSV"
                  disabled={first === undefined}
                  act={() => first !== undefined && saveCsv(first, title)}
                  close={close}
                />
              </ul>
            )}
          </Popover>
          <IconButton
            icon="close"
            label={`Close panel ${mark.letter}`}
            onClick={() => store.panels.close(panel)}
          />
        </span>
      </header>
      <PanelBody held={held} width={width - 2 * PAD - 2} height={PLOT_HEIGHT} />
      {open.value === 'full' && <FullPanel panel={panel} onClose={() => (open.value = null)} />}
      {open.value === 'table' && <DataTable title={title} held={held} onClose={() => (open.value = null)} />}
    </article>
  )
}

function showInGraph(store: ReturnType<typeof useStore>, panel: Panel): void {
  if (panel.model !== store.place.value?.model)
    store.openPlace({ run: store.place.value?.run ?? '', model: panel.model })
  store.showNode(panel.node)
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

/** The histories of a panel's node, the open run's first. */
export interface RunHistory {
  readonly run: string
  readonly loadable: Loadable<History>
}

function useHistories({ model, node }: Panel, limit: number): readonly RunHistory[] {
  const store = useStore()
  const runs = store.place.value === null ? [] : [store.place.value.run, ...store.compare.value]
  const places = runs.map((run): Place => ({ run, model }))
  const key = JSON.stringify([places, node, limit])
  const held = useMemo(() => places.map((place) => store.histories.hold(place, node, limit)), [key])
  useEffect(() => () => held.forEach(({ release }) => void release()), [held])
  return held.map(({ state }, position) => ({ run: runs[position] ?? '', loadable: state.value }))
}

interface BodyProps {
  readonly held: readonly RunHistory[]
  /** Of the room inside, and of one heat map, in CSS pixels. */
  readonly width: number
  readonly height: number
}

function PanelBody({ held, width, height }: BodyProps): JSX.Element {
  const store = useStore()
  const loaded = held.flatMap(({ run, loadable }) => {
    const history = latest(loadable)
    return history === undefined ? [] : [{ run, history }]
  })
  return (
    <div class="panel-body">
      {held.map(({ run, loadable }) =>
        loadable.kind === 'failed' ? (
          <Failure
            key={run}
            what={held.length > 1 ? `No histories from ${format.visible(run)}` : 'No histories'}
            text={loadable.text}
            retry={store.retry}
          />
        ) : null,
      )}
      {loaded.length === 0 && held.some(({ loadable }) => loadable.kind !== 'failed') && (
        <PlotSkeleton height={height} />
      )}
      {loaded.length > 0 && (
        <Tensors loaded={loaded} several={held.length > 1} width={width} height={height} />
      )}
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

interface Loaded {
  readonly run: string
  readonly history: History
}

interface TensorsProps {
  readonly loaded: readonly Loaded[]
  readonly several: boolean
  readonly width: number
  readonly height: number
}

function Tensors({ loaded, several, width, height }: TensorsProps): JSX.Element {
  const store = useStore()
  const { gradients } = store.preferences.value
  const groups = useMemo(() => groupsOf(loaded), [...loaded.map(({ history }) => history), loaded.length])
  const grad = gradients && loaded.some(({ history }) => hasGradients(history))
  const plotWidth = grad ? Math.floor((width - PLOT_GAP) / 2) : width
  const total = loaded[0]?.history
  if (groups.length === 0) return <p class="panel-note">Nothing of this module is recorded.</p>
  return (
    <>
      {groups.map(({ title, tensors }) => (
        <section key={title} class="tensor-group">
          <h3>{title}</h3>
          {tensors.map(({ name, shape, rows }) => (
            <div key={name} class="tensor">
              <p class="tensor-head">
                <span class="tensor-name">{name}</span>
                <span class="muted">{format.shape(shape)}</span>
              </p>
              {rows.map(({ run, history, tracks }) => (
                <div key={`${run}\n${tracks.phase}`} class="tensor-row">
                  {(several || tracks.phase === 'eval') && (
                    <p class="tensor-tags">
                      {several && <span class="tag">{format.shorten(format.visible(run), 44)}</span>}
                      {tracks.phase === 'eval' && <span class="tag">eval</span>}
                    </p>
                  )}
                  <div class="plots">
                    {(grad ? (['value', 'grad'] as const) : (['value'] as const)).map((kind) => (
                      <PlotView
                        key={kind}
                        history={history}
                        track={tracks[kind]}
                        missing={
                          tracks.phase === 'eval' && kind === 'grad' ? statusText(Status.EVAL) : 'not logged'
                        }
                        kind={kind}
                        name={`${title} ${name}${several ? `, run ${run}` : ''}`}
                        width={plotWidth}
                        height={height}
                        range={
                          rows.length > 1 ? commonExtent(rows.flatMap((row) => row.tracks[kind] ?? [])) : null
                        }
                      />
                    ))}
                  </div>
                </div>
              ))}
            </div>
          ))}
        </section>
      ))}
      {total !== undefined && total.steps.length < total.total && (
        <p class="panel-note">
          {format.whole(total.steps.length)} of {format.plural(total.total, 'logged step')}, evenly chosen.
        </p>
      )}
    </>
  )
}

interface TensorRow extends Loaded {
  readonly tracks: TensorTracks
}

interface TensorRows {
  readonly name: string
  readonly shape: TensorTracks['shape']
  readonly rows: readonly TensorRow[]
}

/** The tensors of all runs, those of the same name together. */
function groupsOf(loaded: readonly Loaded[]): { title: string; tensors: readonly TensorRows[] }[] {
  const groups = new Map<string, Map<string, TensorRow[]>>()
  for (const { run, history } of loaded) {
    for (const { title, tensors } of tensorsOf(history)) {
      const group = groups.get(title) ?? new Map<string, TensorRow[]>()
      groups.set(title, group)
      for (const tracks of tensors) {
        const name = format.visible(tracks.name)
        group.set(name, [...(group.get(name) ?? []), { run, history, tracks }])
      }
    }
  }
  return [...groups].map(([title, tensors]) => ({
    title,
    tensors: [...tensors].map(([name, rows]) => ({ name, shape: rows[0]?.tracks.shape ?? null, rows })),
  }))
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
  const width = Math.min(1600, innerWidth - 32)
  return (
    <Dialog title={titleOf(shown.value.node)} class="full" onClose={onClose} tools={tools}>
      <PanelBody held={held} width={width - FULL_PAD} height={FULL_HEIGHT} />
    </Dialog>
  )
}
