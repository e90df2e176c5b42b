/** An Api over the golden levels of tests/golden and the sample graphs of the layout, with made-up histories. */
import { type Api, ApiError, type Place } from '../src/api/api.ts'
import { decodeSeries, type History } from '../src/api/decode.ts'
import { encodeSeries, levelNode, port, type Row, seriesHead } from '../src/api/fixture.ts'
import { largeGraphs, modelGraphs, type SampleGraph } from '../src/layout/graphs.ts'
import { type Edge, type Level, Status, VERSION } from '../src/schema.ts'

const STEPS = Array.from({ length: 200 }, (_, position) => position * 50)
const BINS = 30

const GOLDEN = import.meta.glob<Level>('../../tests/golden/*.json', { eager: true, import: 'default' })

export function sampleApi(): Api {
  const runs = new Map([
    ['golden graphs', new Map(Object.entries(GOLDEN).map(([file, level]) => [nameOf(file), level]))],
    [
      'layout samples',
      new Map([...modelGraphs(), ...largeGraphs()].map((graph) => [graph.name, levelOf(graph)])),
    ],
  ])
  const find = ({ run, model }: Place): Level => {
    const level = runs.get(run)?.get(model)
    if (level === undefined) throw new ApiError(404, `there is no graph ${model} in ${run}`)
    return level
  }
  return {
    async runs() {
      const entry = { token: 'still', steps: STEPS.length, first: 0, last: STEPS.at(-1) ?? 0, problem: '' }
      const all = [...runs].map(([name, models]) => ({
        name,
        models: [...models.keys()].map((model) => ({ name: model, ...entry })),
      }))
      return { runs: all.filter(({ models }) => models.length > 0), version: VERSION }
    },
    async steps() {
      const wall = STEPS.map((step) => 1_700_000_000 + step)
      const none = { skipped: [], restarts: [], faults: [], dropped: 0, ranks: [], version: VERSION }
      return { train: STEPS, eval: [], wall, time: STEPS.map(() => null), unit: '', ...none }
    },
    async level(place, node) {
      const level = find(place)
      if (node !== '.' && node !== level.node.id)
        throw new ApiError(404, 'the gallery has this one level only')
      return level
    },
    async history(_, node): Promise<History> {
      return decodeSeries(historyOf(node))
    },
    async health(place, stat, step) {
      const nodes = find(place).nodes.map(({ index }) => index)
      const at = step ?? STEPS.at(-1) ?? 0
      const own = nodes.map((index) => Math.exp(-((index * 7) % 10) - at / 5000))
      return { stat, step: at, nodes, own, worst: own, low: Math.exp(-12), high: 1, version: VERSION }
    },
    async search(place, query) {
      const matches = find(place)
        .nodes.filter(({ path, class_name }) =>
          `${path} ${class_name}`.toLowerCase().includes(query.toLowerCase()),
        )
        .map(({ id, path, class_name }) => ({ id, level: '.', path, class_name, shape: '' }))
      return { matches: matches.slice(0, 50), total: matches.length, version: VERSION }
    },
  }
}

function nameOf(file: string): string {
  return file.replace(/^.*\//, '').replace(/\.json$/, '')
}

function levelOf({ name, nodes, edges }: SampleGraph): Level {
  const of = (kind: string): readonly SampleGraph['nodes'][number][] =>
    nodes.filter((node) => node.kind === kind)
  const ends = new Map(
    (['input', 'output', 'node'] as const).flatMap((kind) =>
      of(kind).map(({ id }, index): [string, Edge['source']] => [id, [kind, index]]),
    ),
  )
  const end = (id: string): Edge['source'] => ends.get(id) ?? ['outside', 0]
  return {
    model: name,
    node: levelNode({
      id: '.',
      class_name: name,
      inputs: of('input').map(({ label }) => port(label)),
      outputs: of('output').map(({ label }) => port(label)),
    }),
    ancestors: [],
    nodes: of('node').map(({ id, label, className }, index) =>
      levelNode({
        index,
        id,
        name: label,
        path: id,
        class_name: className,
        ran: STEPS.length,
        children: inner(className),
      }),
    ),
    edges: edges.map(({ source, target, kind }) => ({
      level: 0,
      source: end(source),
      target: end(target),
      kind,
      implicit: false,
    })),
    steps: STEPS.length,
    bins: BINS,
    version: VERSION,
  }
}

/** Classes that usually hold others. */
function inner(className: string): number {
  return /Sequential|Block|Layer$|Attention|MLP|Encoder|Decoder/.test(className) ? 4 : 0
}

/** A history with values that spread, gradients that shrink, a gap, some NaN, and a frozen parameter. */
function historyOf(node: string): ArrayBuffer {
  const seed = [...node].reduce((sum, letter) => sum + letter.charCodeAt(0), 0) % 7
  const heads = [
    seriesHead({ group: 'input', name: 'input' }),
    seriesHead({ group: 'input', name: 'input', kind: 'grad' }),
    seriesHead({ group: 'output', name: '' }),
    seriesHead({ group: 'output', name: '', kind: 'grad' }),
    seriesHead({ group: 'param', name: 'weight' }),
    seriesHead({ group: 'param', name: 'weight', kind: 'grad' }),
    seriesHead({ group: 'param', name: 'bias', index: 1 }),
    seriesHead({ group: 'param', name: 'bias', index: 1, kind: 'grad' }),
  ]
  const rows = heads.map(({ kind, group, index }) =>
    STEPS.map((_, position): Row => {
      const progress = position / STEPS.length
      if (group === 'param' && index === 1 && kind === 'grad') return blank(Status.FROZEN)
      if (position > 120 && position < 132) return blank(Status.NOT_RUN)
      const spread = kind === 'grad' ? 0.1 * Math.exp(-3 * progress) : 1 + progress * (seed + 1)
      const row = bell(kind === 'grad' ? spread : progress * seed * 0.3, spread, kind === 'grad')
      return group === 'output' && seed === 3 && position > 170 ? { ...row, nan: position } : row
    }),
  )
  return encodeSeries(heads, STEPS, rows, { node })
}

function blank(status: number): Row {
  return { status, counts: new Array<number>(BINS).fill(0) }
}

/** 90 values around `middle`, none below zero where `norm`. */
function bell(middle: number, spread: number, norm: boolean): Row {
  const low = norm ? Math.max(0, middle - 1.5 * spread) : middle - 1.8 * spread
  const high = middle + 1.8 * spread
  const weights = Array.from({ length: BINS }, (_, bin) => {
    const value = low + ((bin + 0.5) / BINS) * (high - low)
    return Math.exp(-(((value - middle) / spread) ** 2)) * (0.7 + 0.6 * Math.random())
  })
  const total = weights.reduce((sum, weight) => sum + weight, 0)
  const counts = weights.map((weight) => Math.round((weight / total) * 90))
  return {
    low,
    high,
    min: low - spread / 3,
    max: high + spread / 2,
    mean: middle,
    std: spread * 0.7,
    size: 5000,
    sampled: 100,
    counts,
  }
}
