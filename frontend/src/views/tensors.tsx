/** The heat maps of a panel: tensor by tensor, those of all its runs, calls and phases together. */
import type { JSX } from 'preact'
import { useMemo } from 'preact/hooks'
import type { History } from '../api/decode.ts'
import * as format from '../format.ts'
import { WAITING } from '../heatmap/plot.ts'
import { commonExtent, hasGradients, type TensorTracks, tensorsOf } from '../heatmap/tensors.ts'
import { placesOf } from '../heatmap/time.ts'
import { titleOf } from '../state/panels.ts'
import { useStore } from './context.ts'
import { PlotView } from './plot.tsx'

const PLOT_GAP = 8
/** Rows of one tensor stand side by side where each heat map gets at least this width. */
const LEAST_WIDTH = 240

export interface Loaded {
  readonly run: string
  /** What tells the run from the others of the panel. */
  readonly tags: readonly string[]
  readonly node: string
  readonly history: History
}

export interface TensorsProps {
  readonly loaded: readonly Loaded[]
  /** Of the room, and of one heat map, in CSS pixels. */
  readonly width: number
  readonly height: number
}

export function Tensors({ loaded, width, height }: TensorsProps): JSX.Element {
  const { gradients, timeAxis } = useStore().preferences.value
  const groups = useMemo(
    () => groupsOf(loaded),
    [JSON.stringify(loaded.map(({ tags }) => tags)), ...loaded.map(({ history }) => history)],
  )
  const grad = gradients && loaded.some(({ history }) => hasGradients(history))
  const thinned = loaded.find(({ history }) => history.steps.length < history.total)?.history
  if (groups.length === 0) {
    const waiting = loaded.every(({ history }) => history.total === 0)
    return <p class="panel-note">{waiting ? WAITING : 'Nothing of this module is recorded.'}</p>
  }
  return (
    <>
      {groups.map(({ title, tensors }) => (
        <section key={title} class="tensor-group">
          <h3>{title}</h3>
          {tensors.map((tensor) => (
            <Tensor key={tensor.name} title={title} tensor={tensor} {...{ grad, width, height }} />
          ))}
        </section>
      ))}
      {grad && groups.some(({ tensors }) => tensors.some(({ rows }) => rows.some(lacksGradient))) && (
        <p class="panel-note">Evaluation has no backward pass, hence no gradients.</p>
      )}
      {thinned !== undefined && (
        <p class="panel-note">
          {format.whole(thinned.steps.length)} of {format.plural(thinned.total, 'logged step')}, evenly
          chosen.
        </p>
      )}
      {loaded.some(({ history }) => placesOf(history, timeAxis) === null) && (
        <p class="panel-note">The time of this run goes back or has gaps: steps are shown instead.</p>
      )}
    </>
  )
}

interface TensorProps extends Omit<TensorsProps, 'loaded'> {
  readonly title: string
  readonly tensor: TensorRows
  readonly grad: boolean
}

function Tensor({ title, tensor: { name, shape, rows }, grad, width, height }: TensorProps): JSX.Element {
  const least = LEAST_WIDTH * (grad ? 2 : 1) + PLOT_GAP
  const across = Math.max(1, Math.min(rows.length, Math.floor((width + PLOT_GAP) / (least + PLOT_GAP))))
  const whole = Math.floor((width - PLOT_GAP * (across - 1)) / across)
  const half = Math.floor((whole - PLOT_GAP) / 2)
  return (
    <div class="tensor">
      <p class="tensor-head">
        <span class="tensor-name">{name}</span>
        <span class="muted">{format.shape(shape)}</span>
      </p>
      <div class="tensor-rows">
        {rows.map(({ key, owner, tags, history, tracks }) => {
          const evaluation = tracks.phase === 'eval'
          const both = grad && !lacksGradient({ tracks })
          return (
            <div key={key} style={{ width: `${whole}px` }}>
              {(tags.length > 0 || evaluation) && (
                <p class="tensor-tags muted">
                  {tags.map((tag) => (
                    <span key={tag} class="tag">
                      {tag}
                    </span>
                  ))}
                  {evaluation && <span class="tag">eval</span>}
                  {format.shape(tracks.shape) !== format.shape(shape) && format.shape(tracks.shape)}
                </p>
              )}
              <div class="plots">
                {(both ? (['value', 'grad'] as const) : (['value'] as const)).map((kind) => (
                  <PlotView
                    key={kind}
                    history={history}
                    track={tracks[kind]}
                    kind={kind}
                    name={[`${title} ${name}`, ...tags, ...(evaluation ? ['eval'] : [])].join(', ')}
                    width={both ? half : whole}
                    height={height}
                    range={
                      rows.length > 1
                        ? commonExtent(rows.flatMap((row) => (row.owner === owner && row.tracks[kind]) || []))
                        : null
                    }
                  />
                ))}
              </div>
            </div>
          )
        })}
      </div>
    </div>
  )
}

interface TensorRow {
  readonly key: string
  /** The call whose tensor it is; rows of one owner share a value axis. */
  readonly owner: string
  readonly tags: readonly string[]
  readonly history: History
  readonly tracks: TensorTracks
}

interface TensorRows {
  readonly name: string
  readonly shape: TensorTracks['shape']
  readonly rows: readonly TensorRow[]
}

interface TensorGroup {
  readonly title: string
  readonly tensors: readonly TensorRows[]
}

/** No room is left for what can't be there. */
function lacksGradient({ tracks }: Pick<TensorRow, 'tracks'>): boolean {
  return tracks.phase === 'eval' && tracks.grad === null
}

/** The tensors of all histories, those of the same name together, training before evaluation. */
export function groupsOf(loaded: readonly Loaded[]): TensorGroup[] {
  const groups = new Map<string, Map<string, TensorRow[]>>()
  const several = loaded.some(({ node }) => node !== loaded[0]?.node)
  for (const { run, tags, node, history } of loaded) {
    for (const { group, title, tensors } of tensorsOf(history)) {
      const rowsOf = groups.get(title) ?? new Map<string, TensorRow[]>()
      groups.set(title, rowsOf)
      // The calls of a module share its parameters: once is enough.
      const owner = group === 'param' ? node.replace(/#\d+$/, '') : node
      for (const tracks of tensors) {
        const name = format.visible(tracks.name)
        const rows = rowsOf.get(name) ?? []
        const key = JSON.stringify([run, owner, tracks.phase])
        if (rows.some((row) => row.key === key)) continue
        const words = several ? [titleOf(owner, history.level), ...tags] : tags
        rowsOf.set(name, [...rows, { key, owner, tags: words, history, tracks }])
      }
    }
  }
  const late = ({ tracks }: TensorRow): number => Number(tracks.phase === 'eval')
  return [...groups].map(([title, tensors]) => ({
    title,
    tensors: [...tensors].map(([name, rows]) => ({
      name,
      shape: rows[0]?.tracks.shape ?? null,
      rows: rows.sort((one, other) => late(one) - late(other)),
    })),
  }))
}
