/** The tracks of a history in the order of a panel: grouped, value and gradient of a tensor side by side. Pure. */
import type { History, Track } from '../api/decode.ts'
import { GROUPS, type Group, type Phase } from '../schema.ts'
import { type Extent, extent, union } from './axis.ts'

/** One tensor in one phase. A kind that is not logged is null. The only tensor that a module returns has no
 *  name of its own and is called after its group. */
export interface TensorTracks {
  readonly group: Group
  readonly name: string
  readonly phase: Phase
  readonly shape: readonly (number | null)[] | null
  readonly value: Track | null
  readonly grad: Track | null
}

export interface TensorGroup {
  readonly group: Group
  readonly title: string
  readonly tensors: readonly TensorTracks[]
}

export const GROUP_TITLES: Readonly<Record<Group, string>> = {
  input: 'Input',
  output: 'Output',
  param: 'Params',
}

/** Groups without tensors are left out; within a group the order is that of the history. */
export function tensorsOf(history: History): TensorGroup[] {
  return GROUPS.flatMap((group) => {
    const tensors = new Map<string, TensorTracks>()
    for (const track of history.tracks) {
      if (track.head.group !== group) continue
      const { index, name, phase, shape, kind } = track.head
      const key = JSON.stringify([index, name, phase])
      const before = tensors.get(key) ?? { group, name: name || group, phase, shape, value: null, grad: null }
      tensors.set(key, { ...before, [kind]: track })
    }
    return tensors.size === 0 ? [] : [{ group, title: GROUP_TITLES[group], tensors: [...tensors.values()] }]
  })
}

/** Whether any tensor has a gradient track: if none has, panels need no column for it. */
export function hasGradients(history: History): boolean {
  return history.tracks.some(({ head }) => head.kind === 'grad')
}

/** The common extent of tracks, null if none has a value. */
export function commonExtent(tracks: readonly Track[]): Extent | null {
  return tracks
    .map(extent)
    .reduce((sum, next) => (sum === null || next === null ? (sum ?? next) : union(sum, next)), null)
}
