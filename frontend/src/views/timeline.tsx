/** The bar below: which step the colours and the line in the heat maps stand for, and what colours the nodes. */
import { useSignal } from '@preact/signals'
import type { JSX } from 'preact'
import { useEffect } from 'preact/hooks'
import * as format from '../format.ts'
import { STATS, tintOf } from '../graph/tint.ts'
import { nearest } from '../heatmap/columns.ts'
import type { Steps } from '../schema.ts'
import { latest } from '../state/resource.ts'
import type { Store } from '../state/store.ts'
import { useStore } from './context.ts'
import { IconButton, Popover } from './controls.tsx'

const PLAY_MS = 250

export function Timeline(): JSX.Element {
  return (
    <footer class="bar bottom">
      <Scrubber />
      <Warnings />
      <ColourBy />
    </footer>
  )
}

/** Moves to a neighbouring step; beyond the last it follows the latest again. */
export function moveStep(store: Store, by: number): void {
  const steps = store.allSteps.value
  if (steps.length === 0) return
  const at = store.step.value === null ? steps.length - 1 : nearest(steps, store.step.value)
  const next = at + by
  if (next >= steps.length) store.step.value = null
  else store.step.value = steps[Math.max(0, next)] ?? null
}

function Scrubber(): JSX.Element {
  const store = useStore()
  const playing = useSignal(false)
  const steps = store.allSteps.value
  const last = steps.length - 1
  const position = store.step.value === null ? last : nearest(steps, store.step.value)
  const follows = store.step.value === null
  useEffect(() => {
    if (!playing.value) return
    const timer = setInterval(() => {
      moveStep(store, 1)
      if (store.step.value === null) playing.value = false
    }, PLAY_MS)
    return () => clearInterval(timer)
  }, [playing.value])
  const step = steps[position]
  const ranks = step === undefined ? undefined : store.ranksOf(step)
  return (
    <div class="scrubber">
      <IconButton
        icon={playing.value ? 'pause' : 'play'}
        label={playing.value ? 'Pause' : 'Play through the steps'}
        disabled={steps.length < 2}
        onClick={() => {
          if (!playing.value && follows) store.step.value = steps[0] ?? null
          playing.value = !playing.value
        }}
      />
      <IconButton
        icon="left"
        label="Previous step"
        keys="["
        disabled={position <= 0}
        onClick={() => moveStep(store, -1)}
      />
      <input
        type="range"
        aria-label="Step"
        aria-valuetext={
          step === undefined ? 'no steps yet' : `step ${step}${follows ? ', following the latest' : ''}`
        }
        min={0}
        max={Math.max(0, last)}
        value={Math.max(0, position)}
        disabled={steps.length < 2}
        onInput={(event) => {
          const chosen = Number(event.currentTarget.value)
          store.step.value = chosen === last ? null : (steps[chosen] ?? null)
        }}
      />
      <IconButton
        icon="right"
        label="Next step"
        keys="]"
        disabled={follows}
        onClick={() => moveStep(store, 1)}
      />
      <output class="step">
        {step === undefined ? 'no steps yet' : `step ${format.whole(step)}`}
        {follows && step !== undefined && <span class="tag">latest</span>}
        {ranks !== undefined && (
          <span
            class={ranks.missing.length > 0 ? 'badge warning' : 'tag'}
            title="Ranks whose samples this step holds"
          >
            {format.ranks(ranks)}
          </span>
        )}
      </output>
    </div>
  )
}

/** What went wrong while recording, in few words; the sheet has all. */
function Warnings(): JSX.Element | null {
  const store = useStore()
  const steps = latest(store.steps.state.value)
  if (steps === undefined) return null
  const lines = warningsOf(steps)
  if (lines.length === 0) return null
  return (
    <Popover
      label="What went wrong while recording"
      text={<span class="warning-text">{lines[0]}</span>}
      class="warnings"
    >
      {() => (
        <ul class="plain-list">
          {lines.map((line) => (
            <li key={line}>{line}</li>
          ))}
          {steps.faults.map(({ path, place, error }) => (
            <li key={`${path} ${place} ${error}`}>
              <b>{format.visible(path) || 'root'}</b>, {place}: {format.shorten(format.visible(error), 300)}
            </li>
          ))}
        </ul>
      )}
    </Popover>
  )
}

export function warningsOf({ dropped, faults, skipped, restarts }: Steps): string[] {
  const lines: string[] = []
  if (dropped > 0) lines.push(`${format.plural(dropped, 'record')} dropped: the disk was too slow`)
  if (faults.length > 0) lines.push(`${format.plural(faults.length, 'fault')} while recording`)
  if (skipped.length > 0) lines.push(`optimizer skipped ${format.plural(skipped.length, 'step')}`)
  if (restarts.length > 0) lines.push(`restarted at step ${format.few(restarts)}`)
  return lines
}

function ColourBy(): JSX.Element {
  const store = useStore()
  const chosen = STATS.find(({ stat }) => stat === store.stat.value)
  return (
    <div class="colour-by">
      <label class="field">
        Colour by
        <select
          value={store.stat.value ?? ''}
          title={chosen?.meaning ?? 'kind of module'}
          onChange={(event) => {
            store.stat.value = STATS.find(({ stat }) => stat === event.currentTarget.value)?.stat ?? null
          }}
        >
          <option value="">Kind of module</option>
          {STATS.map(({ stat, title }) => (
            <option key={stat} value={stat}>
              {title}
            </option>
          ))}
        </select>
      </label>
      {chosen !== undefined && <Legend />}
    </div>
  )
}

function Legend(): JSX.Element {
  const store = useStore()
  const loadable = store.health.state.value
  const health = latest(loadable)
  if (loadable.kind === 'failed') {
    return (
      <span class="legend" role="alert">
        {loadable.text}
      </span>
    )
  }
  if (health === undefined) return <span class="legend muted">loading…</span>
  const tint = tintOf(health)
  if (health.high === null) return <span class="legend muted">nothing known at this step</span>
  const theme = store.host.theme.value
  const stops = [0, 0.25, 0.5, 0.75, 1].map((share) =>
    tint.fill(
      tint.words.scale === 'log'
        ? tint.low * (tint.high / tint.low || 1) ** share
        : tint.low + (tint.high - tint.low) * share,
      theme,
    ),
  )
  return (
    <span class="legend" title={`${tint.words.meaning}, at step ${format.whole(health.step)}`}>
      {tint.text(tint.low)}
      <span class="swatch" style={{ background: `linear-gradient(to right, ${stops.join(', ')})` }} />
      {tint.text(tint.high)}
      <span class="muted">{tint.words.scale === 'log' ? 'log' : ''}</span>
    </span>
  )
}
