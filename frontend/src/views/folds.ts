/** What the user has folded and unfolded, on each level that was open. It lasts as long as the page. */
import { signal } from '@preact/signals'
import type { FoldChoices } from '../graph/stacks.ts'
import type { Level } from '../schema.ts'

const all = signal<ReadonlyMap<string, FoldChoices>>(new Map())
const NONE: FoldChoices = new Map()

/** Names a level among those of all models. */
export function levelKey({ model, node }: Level): string {
  return `${model}\n${node.id}`
}

export function foldChoices(level: Level): FoldChoices {
  return all.value.get(levelKey(level)) ?? NONE
}

/** `open` is undefined for "as at first". */
export function chooseFolds(level: Level, ids: readonly string[], open: boolean | undefined): void {
  const choices = new Map(foldChoices(level))
  for (const id of ids) {
    if (open === undefined) choices.delete(id)
    else choices.set(id, open)
  }
  all.value = new Map([...all.value, [levelKey(level), choices]])
}
