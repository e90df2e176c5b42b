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
      <label class="field">
        Tensor
        <select value={chosen.value} onChange={(event) => (chosen.value = Number(event.currentTarget.value))}>
          {tracks.map(({ words, track }, position) => (
            <option key={position} value={position}>
              {[trackTitle(track), ...words].join(', ')}
            </option>
          ))}
        </select>
      </label>
      {shown && <Table history={shown.history} track={shown.track} />}
    </Dialog>
  )
}

function trackTitle({ head }: Track): string {
  const phase = head.phase === 'eval' ? ' (eval)' : ''
  return `${GROUP_TITLES[head.group]} ${format.visible(head.name)}: ${head.kind === 'grad' ? 'gradient' : 'value'}${phase}`
}

const COLUMNS = ['min', 'max', 'mean', 'std', 'zeros', 'nan', 'posinf', 'neginf', 'size'] as const

function Table({ history, track }: { history: History; track: Track }): JSX.Element {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable with the keyboard
    <section class="table-scroll" tabIndex={0} aria-label="Table">
      <table>
        <thead>
          <tr>
            <th scope="col">step</th>
            {COLUMNS.map((name) => (
              <th key={name} scope="col">
                {{ posinf: '+Inf', neginf: '−Inf', nan: 'NaN', size: 'elements' }[name as string] ?? name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {stepsOfPhase(history, track).map((step) => (
            <tr key={step}>
              <th scope="row">{format.whole(history.steps[step] ?? 0)}</th>
              {track.rows.status[step] === Status.OK ? (
                COLUMNS.map((name) => (
                  <td key={name}>{format.number(track.rows[name][step] as number, 4)}</td>
                ))
              ) : (
                <td colSpan={COLUMNS.length} class="muted">
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
