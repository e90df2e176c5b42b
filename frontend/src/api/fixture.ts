/** Answers made by hand, for tests and the gallery. Not part of the bundle. */
import {
  type Block,
  type LevelNode,
  type Port,
  ROW_FIELDS,
  type SeriesAnswer,
  type SeriesHead,
  VERSION,
} from '../schema.ts'
import type { RowField } from './decode.ts'

export type Row = Partial<Record<RowField, number>> & { readonly counts: readonly number[] }

/** The bytes of a `series` answer with `rows[series][step]`; fields left out are 0. */
export function encodeSeries(
  series: readonly SeriesHead[],
  steps: readonly number[],
  rows: readonly (readonly Row[])[],
  overrides: Partial<SeriesAnswer> = {},
): ArrayBuffer {
  const bins = rows[0]?.[0]?.counts.length ?? 0
  const arrays = ROW_FIELDS.map(([name, code]): [string, string, number[]] => [
    name,
    { u1: 'u1', u4: 'u4', u8: 'f8', f8: 'f8' }[code],
    rows.flatMap((track) => track.map((row) => row[name] ?? 0)),
  ])
  arrays.push(['counts', 'u4', rows.flatMap((track) => track.flatMap((row) => [...row.counts]))])
  const blocks: Block[] = []
  let offset = 0
  for (const [name, dtype, values] of arrays) {
    const shape = [series.length, steps.length, ...(name === 'counts' ? [bins] : [])]
    blocks.push({ name, dtype, shape, offset })
    offset += Math.ceil((values.length * Number(dtype.slice(1))) / 8) * 8
  }
  const answer: SeriesAnswer = {
    node: 'conv1',
    level: '.',
    peers: ['conv1'],
    series,
    steps,
    wall: steps.map((step) => 1_700_000_000 + step),
    time: steps.map(() => null),
    unit: '',
    restarts: [],
    total: steps.length,
    bins,
    blocks,
    version: VERSION,
    ...overrides,
  }
  let text = JSON.stringify(answer)
  // 4 bytes of length come before the head, and the arrays start at a multiple of 8.
  while ((4 + new TextEncoder().encode(text).length) % 8 !== 0) text += ' '
  const head = new TextEncoder().encode(text)
  const body = new ArrayBuffer(4 + head.length + offset)
  const view = new DataView(body)
  view.setUint32(0, head.length, true)
  new Uint8Array(body, 4).set(head)
  arrays.forEach(([, dtype, values], position) => {
    const start = 4 + head.length + (blocks[position]?.offset ?? 0)
    values.forEach((value, item) => {
      if (dtype === 'u1') view.setUint8(start + item, value)
      else if (dtype === 'u4') view.setUint32(start + item * 4, value, true)
      else view.setFloat64(start + item * 8, value, true)
    })
  })
  return body
}

export function seriesHead(overrides: Partial<SeriesHead> = {}): SeriesHead {
  return {
    group: 'output',
    kind: 'value',
    index: 0,
    name: 'output',
    phase: 'train',
    shape: [8, 4],
    ...overrides,
  }
}

export function port(name: string, shape: readonly (number | null)[] | null = [8, 4]): Port {
  return { name, shape, dtype: 'float32', requires_grad: true }
}

export function levelNode(overrides: Partial<LevelNode> = {}): LevelNode {
  const id = overrides.id ?? 'conv1'
  return {
    index: 1,
    id,
    name: id.split('/').at(-1) ?? id,
    path: id.replaceAll('/', '.'),
    class_name: 'Conv2d',
    call: 0,
    calls: 1,
    children: 0,
    ran: 10,
    size: 9408,
    extra: [],
    inputs: [port('input')],
    outputs: [port('output')],
    arguments: [],
    parameters: [],
    flags: [],
    notes: [],
    container: '',
    ...overrides,
  }
}
