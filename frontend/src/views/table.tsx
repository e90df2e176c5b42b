/** The numbers behind the heat maps of a panel, as a table. */
import { useSignal } from '@preact/signals'
import type { JSX } from 'preact'
import type { History, Track } from '../api/decode.ts'
import * as format from '../format.ts'
import { statusText, stepsOfPhase } from '../heatmap/plot.ts'
import { GROUP_TITLES } from '../heatmap/tensors.ts'
import { Status } from '../schema.ts'
import { titleOf } from '../state/panels.ts'
import { latest } from '../state/resource.ts'
import { Dialog } from './controls.tsx'
import type { Shown } from './panel.tsx'

export interface DataTableProps {
  readonly title: string
  readonly held: readonly Shown[]
  readonly onClose: () => void
}

export function DataTable({ title, held, onClose }: DataTableProps): JSX.Element {
  const several = held.some(({ node }) => node !== held[0]?.node)
  const tracks = held.flatMap(({ tags, node, loadable }) => {
    const history = latest(loadable)
    return history === undefined
      ? []
      : history.tracks.map((track) => ({
          words: [...tags, ...(several ? [titleOf(node, history.level)] : [])],
          history,
          track,
        }))
  })
  const chosen = useSignal(0)
  const shown = tracks[chosen.value]
  return (
    <Dialog title={`Data of ${title}`} class="table-dialog" onClose={onClose}>
      {shown === undefined ? (
        <p class="panel-note">Nothing of this module is recorded.</p>
      ) : (
        <>
          <label class="field">
            Tensor
            <select
              value={chosen.value}
              onChange={(event) => (chosen.value = Number(event.currentTarget.value))}
            >
              {tracks.map(({ words, track }, position) => (
                <option key={position} value={position}>
                  {[trackTitle(track), ...words].join(', ')}
                </option>
              ))}
            </select>
          </label>
          <Table history={shown.history} track={shown.track} />
        </>
      )}
    </Dialog>
  )
}

function trackTitle({ head }: Track): string {
  const phase = head.phase === 'eval' ? ' (eval)' : ''
  return `${GROUP_TITLES[head.group]} ${format.visible(head.name)}: ${head.kind === 'grad' ? 'gradient' : 'value'}${phase}`
}

const NUMBERS = ['min', 'max', 'mean', 'std'] as const
const COUNTS = ['nan', 'posinf', 'neginf', 'size'] as const
const HEADS = [...NUMBERS, 'zeros', 'NaN', '+Inf', '\u2212Inf', 'elements']

function Table({ history, track }: { history: History; track: Track }): JSX.Element {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable with the keyboard
    <section class="table-scroll" tabIndex={0} aria-label="Table">
      <table>
        <thead>
          <tr>
            <th scope="col">step</th>
            {HEADS.map((name) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {stepsOfPhase(history, track).map((step) => (
            <tr key={step}>
              <th scope="row">{format.whole(history.steps[step] ?? 0)}</th>
              {track.rows.status[step] === Status.OK ? (
                cellsOf(track, step).map((text, column) => <td key={column}>{text}</td>)
              ) : (
                <td colSpan={HEADS.length} class="muted">
                  {statusText(track.rows.status[step] as number)}
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  )
}

function cellsOf({ rows }: Track, step: number): string[] {
  return [
    ...NUMBERS.map((name) => format.number(rows[name][step] as number, 4)),
    format.percent(rows.zeros[step] as number),
    ...COUNTS.map((name) => format.whole(rows[name][step] as number)),
  ]
}
