import { deflateSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { HEALTH, type ReportHead, type Searchable, VERSION } from '../schema.ts'
import { encodeSeries, seriesHead } from './fixture.ts'
import { matches, reportApi } from './report.ts'

const PLACE = { run: '</script><b>', model: '__proto__' }
const SIGNAL = new AbortController().signal

function searchable(path: string, className: string, ...shapes: string[]): Searchable {
  const match = { id: path, level: '.', path, class_name: className, shape: shapes.at(-1) ?? '' }
  return { match, forms: [path.toLowerCase(), className.toLowerCase()], shapes }
}

const ENTRIES = [
  searchable('encoder.Conv', 'Conv2d', '8×3×64×64', '8×64×56×56'),
  searchable('head', 'Linear', '8×512'),
]

/** The text of a report with one model of two nodes; `change` may spoil its head. */
function report(change: (head: ReportHead) => ReportHead = (head) => head, cut = 0): string {
  const answers: (ArrayBuffer | string)[] = [
    JSON.stringify({ train: [0, 5] }),
    JSON.stringify(ENTRIES),
    JSON.stringify([
      { stat: 'gradient', step: 0, own: [1] },
      { stat: 'gradient', step: 5, own: [2] },
    ]),
    JSON.stringify({ model: 'root' }),
    JSON.stringify({ model: 'toString' }),
    encodeSeries([seriesHead()], [0, 5], [[{ counts: [1, 2] }, { counts: [3, 4] }]]),
  ]
  const parts = answers.map((answer) =>
    deflateSync(typeof answer === 'string' ? answer : new Uint8Array(answer)),
  )
  const entry = { name: PLACE.model, token: 't', steps: 2, first: 0, last: 5, problem: '' }
  const broken = { ...entry, name: 'broken', problem: 'a record is damaged' }
  const head = change({
    runs: { runs: [{ name: PLACE.run, models: [entry, broken] }], version: VERSION },
    models: [
      {
        ...PLACE,
        steps: 0,
        search: 1,
        health: HEALTH.map(() => 2),
        ids: ['.', 'toString'],
        levels: [3, 4],
        series: [5, 5],
      },
    ],
    parts: parts.map((part) => part.length),
    version: VERSION,
  })
  const packed = deflateSync(JSON.stringify(head))
  const length = Buffer.alloc(4)
  length.writeUInt32LE(packed.length)
  const whole = Buffer.concat([length, packed, ...parts])
  return whole.subarray(0, whole.length - cut).toString('base64')
}

describe('a report', () => {
  it('gives every answer under the names it has', async () => {
    const api = await reportApi(report())
    const history = await api.history(PLACE, 'toString', 400, SIGNAL)

    expect((await api.runs(SIGNAL)).runs[0]?.name).toBe(PLACE.run)
    expect(await api.steps(PLACE, SIGNAL)).toEqual({ train: [0, 5] })
    expect(await api.level(PLACE, 'toString', SIGNAL)).toEqual({ model: 'toString' })
    expect([...(history.tracks[0]?.counts ?? [])]).toEqual([1, 2, 3, 4])
    expect((await api.search(PLACE, 'head', SIGNAL)).total).toBe(1)
  })

  it('gives the statistic of the last logged step that is not after the one wanted', async () => {
    const api = await reportApi(report())
    const at = async (step: number | null): Promise<number> =>
      (await api.health(PLACE, 'gradient', step, SIGNAL)).step

    expect([await at(null), await at(0), await at(4), await at(99)]).toEqual([5, 0, 0, 5])
    await expect(at(-1)).rejects.toMatchObject({ status: 404 })
  })

  it('refuses what it does not hold as the backend does', async () => {
    const api = await reportApi(report())

    await expect(api.level(PLACE, 'constructor', SIGNAL)).rejects.toMatchObject({ status: 404 })
    await expect(api.steps({ ...PLACE, run: 'x' }, SIGNAL)).rejects.toMatchObject({ status: 404 })
    await expect(api.steps({ ...PLACE, model: 'broken' }, SIGNAL)).rejects.toMatchObject({
      status: 422,
      message: 'a record is damaged',
    })
  })

  it('that is newer gives advice', async () => {
    const newer = report((head) => ({ ...head, version: VERSION + 1 }))
    await expect(reportApi(newer)).rejects.toThrow(/format version 2.*Update/)
  })

  it('that was cut says so, wherever it was cut', async () => {
    const tail = await reportApi(report(undefined, 5))
    await expect(tail.history(PLACE, '.', 400, SIGNAL)).rejects.toThrow('ends too early')
    await expect(reportApi('')).rejects.toThrow('holds no records')
    await expect(reportApi(report().slice(0, 40))).rejects.toThrow('ends inside its head')
  })
})

// By the rule of GraphView.search in graphs.py.
describe('the search', () => {
  it.each([
    ['conv', ['encoder.Conv']],
    ['LINEAR', ['head']],
    ['8x512', ['head']],
    ['8, 512', ['head']],
    [' 64×56 ', ['encoder.Conv']],
    ['nothing', []],
    ['', ['encoder.Conv', 'head']],
  ])('for %j finds %j', (query, paths) => {
    expect(matches(ENTRIES, query).matches.map(({ path }) => path)).toEqual(paths)
  })

  it('says which shape it found, and how many more there are', () => {
    const many = Array.from({ length: 250 }, (_, index) => searchable(`block.${index}`, 'Block', '3×3', '9'))

    expect(matches(ENTRIES, '3×64').matches[0]?.shape).toBe('8×3×64×64')
    expect(matches(many, '3x3').matches[0]?.shape).toBe('3×3')
    expect(matches(many, 'block').matches[0]?.shape).toBe('9')
    expect(matches(many, 'block')).toMatchObject({ total: 250, matches: { length: 200 } })
  })
})
