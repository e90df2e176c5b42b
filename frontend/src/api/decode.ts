/** The bytes of a `series` answer in, a `History` out. Pure. See `SeriesAnswer` in schema.ts for the format. */
import { type Block, ROW_FIELDS, type SeriesAnswer, type SeriesHead, VERSION } from '../schema.ts'

export type RowField = (typeof ROW_FIELDS)[number][0]
export type Numbers = Uint8Array | Uint32Array | Float32Array | Float64Array

/** The history of one tensor: for each field one number per step, `counts` `bins` numbers per step. */
export interface Track {
  readonly head: SeriesHead
  readonly rows: Readonly<Record<RowField, Numbers>>
  readonly counts: Numbers
}

/** The histories of one invocation. `steps`, `wall` and `time` describe the columns that all tracks share;
 *  `total` is how many logged steps there are, of which these are an even choice. */
export interface History {
  readonly node: string
  /** The invocation that made this one, and that one's calls of the same class, this one among them. */
  readonly level: string
  readonly peers: readonly string[]
  readonly tracks: readonly Track[]
  readonly steps: readonly number[]
  readonly wall: readonly number[]
  readonly time: readonly (number | null)[]
  readonly unit: string
  /** The steps at which a new process went on. */
  readonly restarts: readonly number[]
  readonly total: number
  readonly bins: number
}

const HEAD_BYTES = 4

/** Throws an Error that says what is wrong with the bytes: cut short, newer version, a block missing. */
export function decodeSeries(body: ArrayBuffer): History {
  const { head, start } = readHead(body)
  if (head.version > VERSION) throw new Error(newerVersion(head.version))
  const blocks = new Map(head.blocks.map((block) => [block.name, readBlock(body, start, block)]))
  const steps = head.steps.length
  const tracks = head.series.map((series, position) => ({
    head: series,
    rows: Object.fromEntries(
      ROW_FIELDS.map(([name]) => [name, slice(blocks, name, position, steps)]),
    ) as Record<RowField, Numbers>,
    counts: slice(blocks, 'counts', position, steps * head.bins),
  }))
  const { node, level, peers, wall, time, unit, restarts, total, bins } = head
  return { node, level, peers, tracks, steps: head.steps, wall, time, unit, restarts, total, bins }
}

export function newerVersion(version: number): string {
  return (
    `These records have format version ${version}; this tab knows up to ${VERSION}. ` +
    'Update tensorboard-torchexplorer where TensorBoard runs.'
  )
}

function readHead(body: ArrayBuffer): { head: SeriesAnswer; start: number } {
  if (body.byteLength < HEAD_BYTES) throw new Error(`the answer has only ${body.byteLength} bytes`)
  const length = new DataView(body).getUint32(0, true)
  const start = HEAD_BYTES + length
  if (start > body.byteLength) throw new Error(`the answer ends inside its head of ${length} bytes`)
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(body, HEAD_BYTES, length))) as SeriesAnswer
  return { head, start }
}

function readBlock(body: ArrayBuffer, start: number, block: Block): Numbers {
  const length = block.shape.reduce((product, size) => product * size, 1)
  const offset = start + block.offset
  const bytes = length * (BYTES[block.dtype] ?? 0)
  if (bytes === 0 && length > 0) throw new Error(`block ${block.name} has the unknown type ${block.dtype}`)
  if (offset + bytes > body.byteLength) throw new Error(`the answer ends inside block ${block.name}`)
  switch (block.dtype) {
    case 'u1':
      return new Uint8Array(body, offset, length)
    case 'u4':
      return new Uint32Array(body, offset, length)
    case 'f4':
      return new Float32Array(body, offset, length)
    default:
      return new Float64Array(body, offset, length)
  }
}

const BYTES: Readonly<Record<string, number>> = { u1: 1, u4: 4, f4: 4, f8: 8 }

function slice(blocks: Map<string, Numbers>, name: string, position: number, length: number): Numbers {
  const block = blocks.get(name)
  if (block === undefined) throw new Error(`the answer has no block ${name}`)
  return block.subarray(position * length, (position + 1) * length)
}
