/** A backend and a host for tests of the store. */
import { signal } from '@preact/signals'
import { type Api, ApiError } from '../api/api.ts'
import { decodeSeries } from '../api/decode.ts'
import { encodeSeries, levelNode, seriesHead } from '../api/fixture.ts'
import type { Host } from '../host.ts'
import { type Level, type RunEntry, VERSION } from '../schema.ts'
import { parseHash, writeHash } from './link.ts'

/** A backend with these levels in each model, and a log of what was asked. */
export function fakeApi(runs: RunEntry[], levels: readonly string[]): { api: Api; asked: string[] } {
  const asked: string[] = []
  const level = (id: string): Level => ({
    model: 'm',
    node: levelNode({ id }),
    ancestors: [],
    nodes: [],
    edges: [],
    steps: 3,
    bins: 1,
    version: VERSION,
  })
  const api: Api = {
    async runs() {
      return { runs, version: VERSION }
    },
    async steps() {
      asked.push('steps')
      const none = {
        unit: '',
        skipped: [],
        restarts: [],
        faults: [],
        dropped: 0,
        ranks: [],
        version: VERSION,
      }
      return { train: [0, 20], eval: [10], wall: [], time: [], ...none }
    },
    async level(place, node) {
      asked.push(`level ${place.run} ${node}`)
      if (!levels.includes(node)) throw new ApiError(404, 'no such node')
      return level(node)
    },
    async history(place, node) {
      asked.push(`history ${place.run} ${node}`)
      return decodeSeries(encodeSeries([seriesHead()], [0], [[{ counts: [1] }]]))
    },
    async health(_, stat, step) {
      asked.push(`health ${stat} ${step}`)
      return {
        stat,
        step: step ?? 20,
        nodes: [],
        own: [],
        worst: [],
        low: null,
        high: null,
        version: VERSION,
      }
    },
    async search() {
      return { matches: [], total: 0, version: VERSION }
    },
  }
  return { api, asked }
}

export interface FakeHost extends Host {
  readonly hash: () => string
  readonly pushed: string[]
  readonly back: () => void
  readonly go: (hash: string) => void
}

export function fakeHost(hash = ''): FakeHost {
  let now = hash
  const [pushed, listeners]: [string[], (() => void)[]] = [[], []]
  return {
    theme: signal('light'),
    visible: signal(true),
    readLink: () => parseHash(now, 'torchexplorer').link,
    writeLink(link, how) {
      const next = writeHash(now, 'torchexplorer', link)
      if (how === 'push' && next !== now) pushed.push(now)
      now = next
    },
    onLink: (listener) => void listeners.push(listener),
    onReload: () => undefined,
    address: () => now,
    hash: () => now,
    pushed,
    back() {
      this.go(pushed.pop() ?? '')
    },
    go(hash) {
      now = hash
      for (const listener of listeners) listener()
    },
  }
}

/** An entry with one model. */
export function run(name: string, token = 't1', model = 'm'): RunEntry {
  return { name, models: [{ name: model, token, steps: 3, first: 0, last: 20, problem: '' }] }
}
