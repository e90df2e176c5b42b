/** One heat map: a canvas with its axis labels, the shared step line, and what the pointer is at. */
import { effect, signal, useSignal } from '@preact/signals'
import type { CSSProperties, JSX, TargetedPointerEvent } from 'preact'
import { useEffect, useLayoutEffect, useMemo, useRef } from 'preact/hooks'
import type { History, Track } from '../api/decode.ts'
import * as format from '../format.ts'
import type { Extent } from '../heatmap/axis.ts'
import type { Ink } from '../heatmap/colours.ts'
import { type Domain, nearest, shareOf } from '../heatmap/columns.ts'
import { drawPlot } from '../heatmap/draw.ts'
import { type Plot, type Probe, plotOf, probe } from '../heatmap/plot.ts'
import { placeOf, placesOf, type TimeAxis, ticks, tickText } from '../heatmap/time.ts'
import { useStore } from './context.ts'

export interface PlotViewProps {
  readonly history: History
  /** Null where this kind is not logged for the tensor. */
  readonly track: Track | null
  readonly kind: Ink
  readonly name: string
  readonly width: number
  readonly height: number
  /** Range of the value axis where several heat maps share it. */
  readonly range: Extent | null
}

const WORDS: Readonly<Record<Ink, string>> = { value: 'value', grad: 'grad' }
const MEANING: Readonly<Record<Ink, string>> = { value: 'value', grad: 'gradient' }

export function PlotView(props: PlotViewProps): JSX.Element {
  const { track, kind, name, width, height } = props
  const box = useRef<HTMLDivElement>(null)
  const near = useOnScreen(box)
  const style = { width: `${width}px`, height: `${height}px` }
  return (
    <figure class={`plot plot-${kind}`} ref={box} style={{ width: `${width}px` }}>
      {track === null && <Blank reason="not logged" style={style} />}
      {track !== null && !near.value && <div class="plot-area" style={style} />}
      {track !== null && near.value && <Drawn {...props} track={track} />}
      <figcaption class="plot-tag" title={MEANING[kind]}>
        {WORDS[kind]}
        <span class="hidden"> of {name}</span>
      </figcaption>
    </figure>
  )
}

function Drawn({
  history,
  track,
  kind,
  name,
  width,
  height,
  range,
}: PlotViewProps & { track: Track }): JSX.Element {
  const store = useStore()
  const canvas = useRef<HTMLCanvasElement>(null)
  const { axis, lockAxis } = store.preferences.value
  const timeAxis = store.timeAxis.value
  const domain = store.domain.value
  const ratio = devicePixelRatio
  const locked = lockAxis ? (store.ranges.value[kind] ?? range) : range
  const rangeKey = locked === null ? '' : `${locked.low} ${locked.high} ${locked.knee}`
  const plot = useMemo(
    () =>
      plotOf(
        history,
        track,
        domain,
        Math.round(width * ratio),
        Math.round(height / 2),
        axis,
        locked ?? undefined,
        placesOf(history, timeAxis) ?? undefined,
      ),
    [history, track, domain, width, height, axis, timeAxis, ratio, rangeKey],
  )
  // Not part of rendering: another theme or scale of colours changes nothing else.
  useLayoutEffect(
    () =>
      effect(() => {
        const context = canvas.current?.getContext('2d')
        const { intensity, normal, lines } = store.preferences.value
        const look = { theme: store.host.theme.value, ink: kind, intensity, normal, lines }
        if (context) drawPlot(context, plot, look, ratio)
      }),
    [plot, kind, ratio],
  )

  const point = (event: TargetedPointerEvent<HTMLDivElement>): void => {
    const { left, top } = (event.currentTarget as HTMLElement).getBoundingClientRect()
    const position = nearestAt(plot, (event.clientX - left) / width)
    const value = plot.drawn?.axis.value(1 - (event.clientY - top) / height) ?? 0
    const found = probe(plot, position, value)
    store.hovered.value = found?.step ?? null
    pointed.value = found && { ...found, plot, history, x: event.clientX, y: event.clientY, kind }
  }
  const style = { width: `${width}px`, height: `${height}px` }
  return (
    <>
      {/* biome-ignore lint/a11y/noStaticElementInteractions lint/a11y/useKeyWithClickEvents: [ and ] move the step too */}
      <div
        class="plot-area"
        style={style}
        onPointerMove={point}
        onPointerLeave={() => {
          store.hovered.value = null
          pointed.value = null
        }}
        onClick={() => {
          if (store.hovered.value !== null) store.step.value = store.hovered.value
        }}
      >
        <canvas
          ref={canvas}
          role="img"
          aria-label={useMemo(() => summary(plot, `${MEANING[kind]} of ${name}`), [plot, name])}
          width={Math.round(width * ratio)}
          height={Math.round(height * ratio)}
          style={style}
        />
        <Cursor history={history} />
        {plot.drawn !== null && <Ends plot={plot} />}
        {plot.blank !== '' && <p class="plot-blank">{plot.blank}</p>}
        <Restarts plot={plot} />
        <BrokenBadge plot={plot} />
      </div>
      <StepAxis unit={format.visible(history.unit)} domain={domain} width={width} kind={timeAxis} />
    </>
  )
}

/** The line of the shared step. It moves by a transform of its own: one custom property for all of them made
 *  the browser look at every element of the board again, 18 ms a frame with 56 heat maps. */
function Cursor({ history }: { history: History }): JSX.Element {
  const store = useStore()
  const line = useRef<HTMLElement>(null)
  useLayoutEffect(
    () =>
      effect(() => {
        const step = store.cursor.value
        const share =
          step === null ? -1 : shareOf(placeOf(history, step, store.timeAxis.value), store.domain.value)
        const shown = share >= 0 && share <= 1
        if (line.current === null) return
        line.current.hidden = !shown
        if (shown) line.current.style.transform = `translateX(${share * 100}%)`
      }),
    [history],
  )
  return <i class="cursor" ref={line} aria-hidden="true" />
}

function Blank({ reason, style }: { reason: string; style: CSSProperties }): JSX.Element {
  return (
    <div class="plot-area" style={style}>
      <p class="plot-blank">{reason}</p>
    </div>
  )
}

/** The ends of the value axis, and behind an arrow the exact extreme where it lies beyond. */
function Ends({ plot }: { plot: Plot }): JSX.Element | null {
  if (plot.drawn === null) return null
  const { axis, extent } = plot.drawn
  // A constant has room around its bar; its value is written once, at the top.
  const constant = extent.low === extent.high && axis.low < extent.low && axis.high > extent.high
  const room = (axis.high - axis.low) * 0.005
  const text = (value: number): string => format.number(value, format.digits(axis.low, axis.high))
  return (
    <>
      <span class="plot-end top">
        {constant ? format.number(extent.high) : text(axis.high)}
        {extent.max > axis.high + room && <b> ▲{text(extent.max)}</b>}
      </span>
      <span class="plot-end bottom">
        {!constant && text(axis.low)}
        {extent.min < axis.low - room && <b> ▼{text(extent.min)}</b>}
      </span>
    </>
  )
}

function BrokenBadge({ plot }: { plot: Plot }): JSX.Element | null {
  const { nan, posinf, neginf, at } = plot.broken
  if (at.length === 0) return null
  const kinds = [nan > 0 && 'NaN', posinf + neginf > 0 && 'Inf'].filter(Boolean).join(' and ')
  const counts = [
    [nan, 'NaN'],
    [posinf, '+Inf'],
    [neginf, '−Inf'],
  ] as const
  const full = counts
    .flatMap(([amount, word]) => (amount > 0 ? [`${format.whole(amount)} ${word}`] : []))
    .join(', ')
  return (
    <span class="broken" title={`${full}, first at step ${format.whole(plot.steps[at[0] as number] ?? 0)}`}>
      {kinds} in {format.plural(at.length, 'step')}
    </span>
  )
}

/** Labels below a heat map, in the unit of the axis; the user's own unit is named once. */
function StepAxis({ unit, domain, width, kind }: StepAxisProps): JSX.Element {
  return (
    <div class="step-axis" style={{ width: `${width}px` }} aria-hidden="true">
      {ticks(domain, width, 64, kind).map((mark, position) => (
        <span key={mark} style={{ left: `${shareOf(mark, domain) * 100}%` }}>
          {kind === 'time' && position === 0 && `${unit} `}
          {tickText(mark, kind)}
        </span>
      ))}
    </div>
  )
}

interface StepAxisProps {
  readonly unit: string
  readonly domain: Domain
  readonly width: number
  readonly kind: TimeAxis
}

/** Words at the lines where a new process went on. */
function Restarts({ plot }: { plot: Plot }): JSX.Element {
  return (
    <>
      {plot.restarts.map((share) => (
        <span
          key={share}
          class={share > 0.75 ? 'restart before' : 'restart'}
          style={{ left: `${share * 100}%` }}
        >
          restart
        </span>
      ))}
    </>
  )
}

/** Index of the column nearest to a share of the width. */
function nearestAt(plot: Plot, share: number): number {
  return nearest(plot.places, share)
}

function summary(plot: Plot, name: string): string {
  const { rows } = plot.track
  const last = plot.chosen.at(-1)
  if (plot.drawn === null || last === undefined) return `${name}: ${plot.blank}`
  const { min, max } = plot.drawn.extent
  const mean = rows.mean[last] as number
  return (
    `${name} over ${format.plural(plot.steps.length, 'step')}: from ${format.range(min, max, ' to ')}, ` +
    `last mean ${format.number(mean)}`
  )
}

/** What the pointer is at in any heat map. */
export interface Pointed extends Probe {
  readonly plot: Plot
  readonly history: History
  readonly kind: Ink
  readonly x: number
  readonly y: number
}

export const pointed = signal<Pointed | null>(null)

const shown = new WeakMap<Element, (near: boolean) => void>()
let observer: IntersectionObserver | null = null

/** Whether an element is in view or near it: heat maps further away are not drawn. */
function useOnScreen(element: { readonly current: HTMLElement | null }): { readonly value: boolean } {
  const near = useSignal(false)
  useEffect(() => {
    const watched = element.current
    if (watched === null) return
    observer ??= new IntersectionObserver(
      (entries) => {
        for (const { target, isIntersecting } of entries) shown.get(target)?.(isIntersecting)
      },
      { rootMargin: '600px' },
    )
    shown.set(watched, (now) => {
      near.value = now
    })
    observer.observe(watched)
    return () => observer?.unobserve(watched)
  }, [])
  return near
}
