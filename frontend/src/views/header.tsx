/** The bar above: run, model, where we are, search, display options, link, help. */
import { useSignal } from '@preact/signals'
import type { ComponentChildren, JSX } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import * as format from '../format.ts'
import { ROOT_ID, type RunEntry } from '../schema.ts'
import { titleOf } from '../state/panels.ts'
import { parentId } from '../state/places.ts'
import type { Preferences } from '../state/preferences.ts'
import { latest } from '../state/resource.ts'
import type { Store } from '../state/store.ts'
import { useStore } from './context.ts'
import { Choice, IconButton, Popover, Switch } from './controls.tsx'
import { emptiestColumn } from './drag.ts'
import { Icon } from './icons.tsx'

export interface HeaderProps {
  readonly onSearch: () => void
  readonly onHelp: () => void
  readonly onSaveGraph: (format: 'svg' | 'png') => void
}

export function Header({ onSearch, onHelp, onSaveGraph }: HeaderProps): JSX.Element {
  const store = useStore()
  return (
    <header class="bar top">
      <RunPicker />
      <ModelPicker />
      <Breadcrumb />
      <span class="bar-tools">
        <button
          type="button"
          class="button search-button"
          onClick={onSearch}
          title="Search the whole model (/ or Ctrl+K)"
        >
          <Icon name="search" />
          <span class="wide-only">Search</span> <kbd>/</kbd>
        </button>
        <Display />
        <Popover label="Save the graph" icon="download" side="end">
          {(close) => (
            <ul class="menu">
              {(['svg', 'png'] as const).map((kind) => (
                <li key={kind}>
                  <button
                    type="button"
                    onClick={() => {
                      close()
                      onSaveGraph(kind)
                    }}
                  >
                    Graph as {kind.toUpperCase()}
                  </button>
                </li>
              ))}
            </ul>
          )}
        </Popover>
        {store.host.address() !== null && (
          <IconButton icon="link" label="Copy link to this view" onClick={() => copyLink(store)} />
        )}
        <IconButton icon="help" label="Keys and help" keys="?" onClick={onHelp} />
      </span>
    </header>
  )
}

async function copyLink(store: Store): Promise<void> {
  const address = store.host.address()
  if (address === null) return
  try {
    await navigator.clipboard.writeText(address)
  } catch {
    // Not allowed in a frame of another origin or without https: there is an older way, and the user's own hand.
    if (!copyFromField(address)) {
      store.notice.value = `Copy this link: ${address}`
      return
    }
  }
  store.notice.value = 'Link copied.'
}

function copyFromField(text: string): boolean {
  const focused = document.activeElement as HTMLElement | null
  const field = document.createElement('textarea')
  field.value = text
  document.body.append(field)
  field.select()
  const copied = document.execCommand('copy')
  field.remove()
  focused?.focus()
  return copied
}

/** Which run is open, and which are compared with it. A field narrows hundreds of runs down. */
function RunPicker(): JSX.Element {
  const store = useStore()
  const wanted = useSignal('')
  const place = store.place.value
  const runs = latest(store.runs.state.value)?.runs ?? []
  const compare = store.compare.value
  const shown = runs.filter(({ name }) => name.toLowerCase().includes(wanted.value.toLowerCase()))
  const title = place === null ? 'no run' : format.visible(place.run)
  const text = (
    <>
      <span class="button-label">Run</span> <span class="button-value">{format.shorten(title, 34)}</span>
      {compare.length > 0 && <span class="count">+{compare.length}</span>}
      <Icon name="down" />
    </>
  )
  return (
    <Popover label="Run" text={text} class="runs">
      {(close) => (
        <>
          {runs.length > 6 && (
            <input
              type="search"
              class="search-field"
              placeholder={`Filter ${runs.length} runs`}
              aria-label="Filter runs"
              data-autofocus
              value={wanted.value}
              onInput={(event) => (wanted.value = event.currentTarget.value)}
            />
          )}
          <ul class="run-list">
            {shown.map((run) => (
              <RunRow key={run.name} run={run} open={run.name === place?.run} close={close} />
            ))}
          </ul>
          {shown.length === 0 && <p class="muted">No run has “{wanted.value}” in its name.</p>}
        </>
      )}
    </Popover>
  )
}

function RunRow({ run, open, close }: { run: RunEntry; open: boolean; close: () => void }): JSX.Element {
  const store = useStore()
  const name = format.visible(run.name)
  const model = run.models.find((entry) => entry.name === store.place.value?.model) ?? run.models[0]
  const compared = store.compare.value.includes(run.name)
  const row = useRef<HTMLLIElement>(null)
  useEffect(() => {
    if (open) row.current?.scrollIntoView({ block: 'nearest' })
  }, [])
  return (
    <li ref={row} class={open ? 'run open' : 'run'}>
      <button
        type="button"
        class="run-name"
        aria-current={open ? 'true' : undefined}
        disabled={model === undefined}
        onClick={() => {
          if (model !== undefined) store.openPlace({ run: run.name, model: model.name })
          close()
        }}
      >
        <span class="run-title" title={name}>
          {name}
        </span>
        <span class="muted">
          {model === undefined
            ? 'empty'
            : model.problem
              ? 'can’t be shown'
              : format.plural(model.steps, 'step')}
        </span>
      </button>
      {!open && model !== undefined && (
        <label class="run-compare">
          <input
            type="checkbox"
            checked={compared}
            aria-label={`Compare with ${name}`}
            onChange={() => {
              store.compare.value = compared
                ? store.compare.value.filter((other) => other !== run.name)
                : [...store.compare.value, run.name]
            }}
          />
          compare
        </label>
      )}
    </li>
  )
}

/** Shown only where the run has several models. */
function ModelPicker(): JSX.Element | null {
  const store = useStore()
  const place = store.place.value
  const run = latest(store.runs.state.value)?.runs.find(({ name }) => name === place?.run)
  if (place === null || run === undefined || run.models.length < 2) return null
  return (
    <label class="field">
      Model
      <select
        value={place.model}
        onChange={(event) => store.openPlace({ run: run.name, model: event.currentTarget.value })}
      >
        {run.models.map(({ name }) => (
          <option key={name} value={name}>
            {format.shorten(format.visible(name), 40)}
          </option>
        ))}
      </select>
    </label>
  )
}

/** From the root to the level that is shown; the last is where we are. */
function Breadcrumb(): JSX.Element {
  const store = useStore()
  const level = latest(store.level.state.value)
  if (level === undefined) {
    // While a level is fetched, or where it can't be, its id still tells the way back.
    const id = store.levelId.value
    return (
      <nav class="breadcrumb" aria-label="Parents">
        {store.place.value !== null && id !== ROOT_ID && <Crumbs parts={parentsOf(id)} last={id} />}
      </nav>
    )
  }
  const parts = level.ancestors.map(([id = ROOT_ID, name = '', className = '']) => ({
    id,
    text: crumb(id, name, className),
  }))
  const { node } = level
  const call = node.calls > 1 ? ` #${node.call + 1}` : ''
  return (
    <nav class="breadcrumb" aria-label="Parents">
      <Crumbs parts={parts} last={node.id}>
        <li>
          <h1 aria-current="page">
            {crumb(node.id, node.name, node.class_name)}
            {call}
            {node.id !== ROOT_ID && (
              <span class="muted"> {format.shorten(format.visible(node.class_name), 32)}</span>
            )}
          </h1>
          <IconButton
            icon="add"
            label="Add panel for this module"
            keys="Shift+P"
            onClick={() => store.panels.add(level.model, node.id, emptiestColumn())}
          />
        </li>
      </Crumbs>
    </nav>
  )
}

interface CrumbsProps {
  readonly parts: readonly { readonly id: string; readonly text: string }[]
  /** The level that is shown, selected when its parent opens. */
  readonly last: string
  readonly children?: ComponentChildren
}

function Crumbs({ parts, last, children }: CrumbsProps): JSX.Element {
  const store = useStore()
  return (
    <ol>
      {parts.map(({ id, text }, position) => (
        <li key={id}>
          <button
            type="button"
            class="crumb"
            onClick={() => store.openLevel(id, parts[position + 1]?.id ?? last)}
          >
            {text}
          </button>
        </li>
      ))}
      {children}
    </ol>
  )
}

function parentsOf(id: string): { id: string; text: string }[] {
  const parts: { id: string; text: string }[] = []
  for (let child = id; child !== ROOT_ID; child = parts[0]?.id ?? ROOT_ID) {
    const parent = parentId(child)
    parts.unshift({ id: parent, text: format.shorten(titleOf(parent), 32) })
  }
  return parts
}

function crumb(id: string, name: string, className: string): string {
  return format.shorten(format.visible(id === ROOT_ID ? className : name), 32)
}

function Display(): JSX.Element {
  const store = useStore()
  const shown = store.preferences.value
  const set = (change: Partial<Preferences>): void => {
    store.preferences.value = { ...store.preferences.peek(), ...change }
  }
  const unit = latest(store.steps.state.value)?.unit ?? ''
  return (
    <Popover
      label="Display"
      icon="settings"
      text={<span class="wide-only">Display</span>}
      side="end"
      class="display"
    >
      {() => (
        <>
          <Choice
            label="Value axis"
            options={[
              ['linear', 'linear'],
              ['symlog', 'symlog'],
            ]}
            value={shown.axis}
            onChange={(axis) => set({ axis })}
          />
          <Choice
            label="Colour by count"
            options={[
              ['root', 'square root'],
              ['linear', 'linear'],
              ['log', 'log'],
            ]}
            value={shown.intensity}
            onChange={(intensity) => set({ intensity })}
          />
          <Choice
            label="Darkest is the largest of"
            options={[
              ['all', 'all steps'],
              ['step', 'each step'],
            ]}
            value={shown.normal}
            onChange={(normal) => set({ normal })}
          />
          <Choice
            label="Time axis"
            options={[['step', 'step'], ['wall', 'clock'], ...(unit === '' ? [] : [['time', unit] as const])]}
            value={shown.timeAxis === 'time' && unit === '' ? 'step' : shown.timeAxis}
            onChange={(timeAxis) => set({ timeAxis })}
          />
          <fieldset class="choice">
            <legend>Show</legend>
            <Switch label="gradients" value={shown.gradients} onChange={(gradients) => set({ gradients })} />
            <Switch label="mean ± std lines" value={shown.lines} onChange={(lines) => set({ lines })} />
            <Switch
              label="same value axis in all panels"
              value={shown.lockAxis}
              onChange={(lockAxis) => set({ lockAxis })}
            />
            <Switch label="shapes on all edges" value={shown.shapes} onChange={(shapes) => set({ shapes })} />
            <Switch
              label="edges without gradient"
              value={shown.dataEdges}
              onChange={(dataEdges) => set({ dataEdges })}
            />
          </fieldset>
        </>
      )}
    </Popover>
  )
}
