/** Histories as comma-separated values. Pure. */
import type { History, Track } from '../api/decode.ts'
import { statusText } from '../heatmap/plot.ts'
import { Status } from '../schema.ts'

const FIELDS = [
  'size',
  'sampled',
  'nan',
  'posinf',
  'neginf',
  'min',
  'max',
  'mean',
  'std',
  'zeros',
  'low',
  'high',
] as const

/** One row per track and step with its statistics and bin counts; blank rows carry their reason. */
export function historiesCsv(histories: readonly { run: string; history: History }[]): string {
  const most = Math.max(...histories.map(({ history }) => history.bins))
  const bins = Array.from({ length: most }, (_, bin) => `bin_${bin}`)
  const head = [
    'run',
    'call',
    'group',
    'kind',
    'tensor',
    'phase',
    'step',
    'wall',
    histories[0]?.history.unit || 'time',
    'reason',
    ...FIELDS,
    ...bins,
  ]
  const lines = histories.flatMap(({ run, history }) =>
    history.tracks.flatMap((track) =>
      history.steps.map((_, step) => [run, history.node, ...rowOf(history, track, step)]),
    ),
  )
  return [head, ...lines].map((cells) => cells.map(csvCell).join(',')).join('\r\n')
}

function rowOf(history: History, track: Track, step: number): (string | number)[] {
  const { group, kind, name, phase } = track.head
  const status = track.rows.status[step] as number
  const lead = [
    group,
    kind,
    name,
    phase,
    history.steps[step] ?? '',
    history.wall[step] ?? '',
    history.time[step] ?? '',
  ]
  if (status !== Status.OK) return [...lead, statusText(status)]
  const counts = track.counts.subarray(step * history.bins, (step + 1) * history.bins)
  return [...lead, '', ...FIELDS.map((field) => track.rows[field][step] as number), ...counts]
}

/** Quoted where needed. A name that a spreadsheet would take for a formula gets an apostrophe in front. */
export function csvCell(value: string | number): string {
  if (typeof value === 'number') return String(value)
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}
