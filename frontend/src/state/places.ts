/** What an address names in, what there is of it out: runs, models and calls. */
import type { Place } from '../api/api.ts'
import { type ModelEntry, ROOT_ID, type Runs } from '../schema.ts'

/** The place that stands for `at`, the first model of all if nothing better does; null: there is none. `exact`
 *  says that it is what was asked for. */
export function nearestPlace({ runs }: Runs, at: Place | null): { place: Place | null; exact: boolean } {
  const sameRun = runs.find((run) => run.name === at?.run)
  const sameModel = runs.find((run) => run.models.some((model) => model.name === at?.model))
  const run = sameRun ?? sameModel ?? runs[0]
  const named = run?.models.find((entry) => entry.name === at?.model)
  const model = named ?? run?.models[0]
  if (run === undefined || model === undefined) return { place: null, exact: at === null }
  const exact = at === null || ((run === sameRun || at.run === '') && (model === named || at.model === ''))
  return { place: { run: run.name, model: model.name }, exact }
}

/** The one of the models `names` of a run that stands for `model` of another: that of its name, else the only
 *  one, else the one whose name differs in its number only (`ResNet`, `ResNet 2`). */
export function counterpart(names: readonly string[], model: string): string | undefined {
  const bare = (name: string): string => name.replace(/ \d+$/, '')
  if (names.includes(model)) return model
  return names.length === 1 ? names[0] : names.find((name) => bare(name) === bare(model))
}

export function entryOf(runs: Runs | undefined, place: Place | null): ModelEntry | undefined {
  if (place === null) return undefined
  return runs?.runs.find((run) => run.name === place.run)?.models.find((model) => model.name === place.model)
}

/** Id of the invocation that made the call `id`, or of none: a part of an id may hold slashes, and then one
 *  of its ancestors is found a few parts further up. */
export function parentId(id: string): string {
  const cut = id.lastIndexOf('/')
  return cut < 0 ? ROOT_ID : id.slice(0, cut)
}

export function key({ run, model }: Place): string {
  return JSON.stringify([run, model])
}
