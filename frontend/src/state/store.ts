/** What the user chose and what was fetched for it. Choices are stored, the rest is derived from them:
 *  effects fetch whatever the current choice needs and fetch again when a run's change token moves. */
import { batch, computed, effect, type ReadonlySignal, type Signal, signal, untracked } from '@preact/signals'
import { type Api, ApiError, type Place, samePlace } from '../api/api.ts'
import type { Extent } from '../heatmap/axis.ts'
import { type Domain, domain } from '../heatmap/columns.ts'
import { commonExtent } from '../heatmap/tensors.ts'
import { placesOf, type TimeAxis } from '../heatmap/time.ts'
import type { Host } from '../host.ts'
import {
  type Health,
  type Kind,
  type Level,
  type ModelEntry,
  ROOT_ID,
  type Runs,
  type Steps,
} from '../schema.ts'
import { createHistories, type Histories } from './histories.ts'
import { type Choice, fromLink, type Stat, toLink } from './link.ts'
import { createPanels, type Panels, titleOf } from './panels.ts'
import { entryOf, key, nearestPlace, parentId } from './places.ts'
import { type Preferences, storedPreferences } from './preferences.ts'
import { latest, type Resource, resource } from './resource.ts'

const POLL_MS = 3000
/** Browsers allow some 200 changes of the address in 10 seconds, fewer than a scrubber makes. */
const ADDRESS_MS = 200
/** While the scrubber moves, wait this long for it to rest before asking for colours. */
const SETTLE_MS = 60

export interface Store {
  readonly api: Api
  readonly host: Host
  readonly preferences: Signal<Preferences>
  readonly runs: Resource<Runs>
  readonly steps: Resource<Steps>
  readonly level: Resource<Level>
  readonly health: Resource<Health>
  readonly histories: Histories
  readonly panels: Panels

  readonly place: Signal<Place | null>
  readonly compare: Signal<readonly string[]>
  readonly levelId: ReadonlySignal<string>
  readonly stat: Signal<Stat | null>
  /** Step chosen with the scrubber; null follows the latest. */
  readonly step: Signal<number | null>
  /** Step under the pointer in a heat map; it moves the line in all of them. */
  readonly hovered: Signal<number | null>
  readonly selected: Signal<string | null>
  /** Last thing worth telling, also to a screen reader. */
  readonly notice: Signal<string>

  /** The names of the models of each run; the same object while none appears or goes. */
  readonly models: ReadonlySignal<ReadonlyMap<string, readonly string[]>>
  /** Entry of the shown model; undefined while unknown. */
  readonly entry: ReadonlySignal<ModelEntry | undefined>
  /** All logged steps, ascending. */
  readonly allSteps: ReadonlySignal<readonly number[]>
  /** Of how many ranks a step holds samples, and which it lacks; undefined where there is only one. */
  ranksOf(step: number): { readonly held: number; readonly missing: readonly number[] } | undefined
  /** What the heat maps extend over from left to right: what the user prefers, or steps where that is not an
   *  axis for all of them. */
  readonly timeAxis: ReadonlySignal<TimeAxis>
  /** Its ends in the heat maps of all panels. */
  readonly domain: ReadonlySignal<Domain>
  /** The step that has a line in all heat maps; null: there is none. */
  readonly cursor: ReadonlySignal<number | null>
  /** What all open tracks of a kind span together, for panels with locked axes. */
  readonly ranges: ReadonlySignal<Readonly<Record<Kind, Extent | null>>>
  /** The step that colours and cursor stand for: the chosen one, else the last. */
  readonly shownStep: ReadonlySignal<number | null>

  /** Shows the level of the invocation `id`; the browser's Back returns from it. */
  openLevel(id: string, select?: string): void
  openPlace(place: Place): void
  poll(): Promise<void>
  /** Fetches again what failed. */
  retry(): void
  /** Ends polling and effects. */
  dispose(): void
}

export function createStore(api: Api, host: Host): Store {
  const first = fromLink(host.readLink())
  const place = signal<Place | null>(first.place)
  const compare = signal<readonly string[]>(first.compare)
  const levelId = signal(first.level)
  const stat = signal<Stat | null>(first.stat)
  const step = signal<number | null>(first.step)
  const hovered = signal<number | null>(null)
  const selected = signal<string | null>(null)
  const notice = signal('')
  const attempt = signal(0)
  /** What was asked for and is not there, since TensorBoard may still be loading it; and what is shown
   *  meanwhile. */
  const awaited = signal<Choice | null>(null)
  let meanwhile: Choice | null = null
  /** Whether the runs could not be had the last time. */
  let failed = false
  const preferences = storedPreferences()

  const [runs, steps, level, health] = [
    resource<Runs>(),
    resource<Steps>(true),
    resource<Level>(true),
    resource<Health>(),
  ]
  const panels = createPanels(first.panels, notice)
  const entry = computed(() => entryOf(latest(runs.state.value), place.value))
  const names = computed(() =>
    JSON.stringify(
      latest(runs.state.value)?.runs.map(({ name, models }) => [name, models.map((model) => model.name)]) ??
        [],
    ),
  )
  const models = computed(() => new Map(JSON.parse(names.value) as [string, string[]][]))
  const token = computed(() => (entry.value?.problem === '' ? entry.value.token : null))
  const allSteps = computed(() => {
    const known = latest(steps.state.value)
    return known === undefined ? [] : merged(known.train, known.eval)
  })
  const shownStep = computed(() => step.value ?? allSteps.value.at(-1) ?? null)
  const histories = createHistories(api, (at) => entryOf(latest(runs.state.value), at)?.token, attempt)

  let kept: Domain = domain([])
  const timeAxis = computed<TimeAxis>(() => {
    const { timeAxis: wanted } = preferences.value
    return histories.ready.value.every((history) => placesOf(history, wanted) !== null) ? wanted : 'step'
  })
  const shownDomain = computed(() => {
    const next = domain(histories.ready.value.map((history) => placesOf(history, timeAxis.value) ?? []))
    // The same object while nothing moved, so that heat maps need not be drawn again.
    if (next.first !== kept.first || next.last !== kept.last) kept = next
    return kept
  })

  const cursor = computed(() => hovered.value ?? step.value)
  const ranges = computed(() => {
    const tracks = histories.ready.value.flatMap((history) => history.tracks)
    const of = (kind: Kind): Extent | null => commonExtent(tracks.filter(({ head }) => head.kind === kind))
    return { value: of('value'), grad: of('grad') }
  })

  /** How the next change of the address is written. */
  let writing: 'replace' | 'push' = 'replace'
  const choice = computed<Choice>(() => ({
    place: place.value,
    compare: compare.value,
    level: levelId.value,
    panels: panels.choices.value,
    step: step.value,
    stat: stat.value,
  }))

  function apply(chosen: Choice): void {
    batch(() => {
      awaited.value = null
      // An address without a run means the one that is open: a bare "#torchexplorer" is TensorBoard's.
      if (chosen.place !== null && !samePlace(chosen.place, place.value)) place.value = chosen.place
      compare.value = chosen.compare
      levelId.value = chosen.level
      panels.reset(chosen.panels)
      step.value = chosen.step
      stat.value = chosen.stat
    })
  }

  /** Makes the choice one that exists. What is awaited is shown as soon as it is there, unless the user has
   *  gone on with what was shown instead. */
  function settle(known: Runs): void {
    if (meanwhile !== null && !sameBoard(choice.value, meanwhile)) awaited.value = null
    const wanted = awaited.value ?? choice.value
    const { place: found, exact } = nearestPlace(known, wanted.place)
    const there = new Set(known.runs.map((run) => run.name))
    const compared = wanted.compare.filter((run) => there.has(run))
    const whole = exact && compared.length === wanted.compare.length
    batch(() => {
      if (whole && awaited.value !== null) {
        apply(wanted)
        notice.value = ''
      } else if (!whole && awaited.value === null) {
        awaited.value = wanted
        if (!exact && wanted.place !== null && found !== null) {
          const { run, model } = wanted.place
          const what = [model && `model “${model}”`, run && `run “${run}”`].filter(Boolean).join(' in ')
          notice.value = `There is no ${what} yet; showing “${found.model}” of “${found.run}”.`
        }
      }
      if (found !== null) {
        if (!samePlace(found, place.value)) place.value = found
        panels.adopt(found.model)
      }
      if (compared.length !== compare.value.length) compare.value = compared
    })
    meanwhile = awaited.value === null ? null : choice.value
  }

  const poll = (quiet = false): Promise<void> => runs.load('runs', (signal) => api.runs(signal), quiet)

  /** Polls until the returned function is called; never anew while an answer is on its way, since one that takes
   *  longer than the pause would never come. */
  function keepPolling(): () => void {
    let timer: ReturnType<typeof setTimeout> | undefined
    let ended = false
    const next = async (): Promise<void> => {
      await poll(true)
      if (!ended) timer = setTimeout(next, POLL_MS)
    }
    void next()
    return () => {
      ended = true
      clearTimeout(timer)
    }
  }

  /** Runs `load` for the model that is shown, and again when that has news or what failed is asked for anew. A
   *  model that can't be shown is not asked about. */
  function keep(held: { clear(): void }, load: (at: Place) => (() => void) | undefined): () => void {
    return effect(() => {
      const at = place.value
      attempt.value
      if (at !== null && token.value !== null) return load(at)
      untracked(held.clear)
      return undefined
    })
  }

  const ends = [
    effect(() => {
      if (!host.visible.value) return
      return untracked(keepPolling)
    }),
    effect(() => {
      const known = runs.state.value
      if (known.kind === 'failed') failed = true
      if (known.kind !== 'ready') return
      untracked(() => {
        settle(known.value)
        // What else failed meanwhile may be had now.
        if (failed) attempt.value++
      })
      failed = false
    }),
    keep(steps, (at) => {
      void untracked(() => steps.load(key(at), (signal) => api.steps(at, signal)))
      return undefined
    }),
    keep(level, (at) => {
      const id = levelId.value
      void untracked(() => level.load(`${key(at)} ${id}`, (signal) => nearestLevel(at, id, signal)))
      return undefined
    }),
    keep(health, (at) => {
      const [wanted, chosen] = [stat.value, step.value]
      if (wanted === null) {
        untracked(health.clear)
        return undefined
      }
      const timer = setTimeout(() => {
        void health.load(`${key(at)} ${wanted}`, (signal) => api.health(at, wanted, chosen, signal))
      }, SETTLE_MS)
      return () => clearTimeout(timer)
    }),
    effect(() => {
      if (!host.visible.value) return
      const link = toLink(awaited.value ?? choice.value)
      if (writing === 'push') {
        writing = 'replace'
        host.writeLink(link, 'push')
        return
      }
      const timer = setTimeout(() => host.writeLink(link, 'replace'), ADDRESS_MS)
      return () => clearTimeout(timer)
    }),
  ]
  /** What the address leaves open is chosen at once where the runs are known. */
  function openLink(): void {
    const known = latest(runs.state.value)
    batch(() => {
      apply(fromLink(host.readLink()))
      if (known !== undefined) settle(known)
    })
  }
  host.onLink(openLink)
  host.onReload(() => void poll())

  /** The level of `id`, or of its nearest ancestor that exists: a link may come from another run. */
  async function nearestLevel(at: Place, id: string, wanted: AbortSignal, asked = id): Promise<Level> {
    try {
      return await api.level(at, id, wanted)
    } catch (error) {
      const missing = error instanceof ApiError && error.status === 404 && id !== ROOT_ID
      if (!missing || wanted.aborted) throw error
      notice.value = `This run has no module call “${titleOf(asked)}”; showing its nearest parent.`
      const found = await nearestLevel(at, parentId(id), wanted, asked)
      if (!wanted.aborted) levelId.value = found.node.id
      return found
    }
  }

  return {
    api,
    host,
    preferences,
    runs,
    steps,
    level,
    health,
    histories,
    panels,
    place,
    compare,
    levelId,
    stat,
    step,
    hovered,
    selected,
    notice,
    models,
    entry,
    allSteps,
    timeAxis,
    domain: shownDomain,
    cursor,
    ranges,
    shownStep,
    ranksOf(step) {
      const found = latest(steps.state.value)?.ranks.find(([at]) => at === step)
      if (found === undefined) return undefined
      const [, held = 1, ...missing] = found
      return { held, missing }
    },
    openLevel(id, select) {
      batch(() => {
        if (id !== levelId.value) writing = 'push'
        awaited.value = null
        levelId.value = id
        selected.value = select ?? null
      })
    },
    openPlace(chosen) {
      batch(() => {
        awaited.value = null
        if (chosen.model !== place.value?.model) levelId.value = ROOT_ID
        compare.value = compare.value.filter((run) => run !== chosen.run)
        place.value = chosen
      })
    },
    poll,
    retry() {
      attempt.value++
      void poll()
    },
    dispose() {
      for (const end of [...ends, histories.dispose]) end()
    },
  }
}

/** Whether both show the same, but for the level, which may move by itself. */
function sameBoard(one: Choice, other: Choice): boolean {
  const { place, compare, panels, step, stat } = other
  return (
    one.place === place &&
    one.compare === compare &&
    one.panels === panels &&
    one.step === step &&
    one.stat === stat
  )
}

function merged(one: readonly number[], other: readonly number[]): number[] {
  return [...new Set([...one, ...other])].sort((a, b) => a - b)
}
