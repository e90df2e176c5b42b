/** The records inside a report file, as the same answers that a server would give. See `ReportHead` in
 *  schema.ts for the format. */
import type { Health, Level, Matches, ReportHead, ReportModel, Searchable, Steps } from '../schema.ts'
import { HEALTH, VERSION } from '../schema.ts'
import { type Api, ApiError, type Place, samePlace } from './api.ts'
import { decodeSeries, newerVersion } from './decode.ts'

const LENGTH_BYTES = 4
/** As many hits as the backend gives. */
const MAX_MATCHES = 200

/** Takes the text of the element that holds the records. Rejects with an Error that says what is wrong. */
export async function reportApi(text: string): Promise<Api> {
  const bytes = fromBase64(text)
  const head = await readHead(bytes)
  let end = LENGTH_BYTES + headLength(bytes)
  const ends = head.parts.map((length) => (end += length))
  const indices = new Map<ReportModel, Map<string, number>>()

  async function part(number: number): Promise<ArrayBuffer> {
    const [end, length] = [ends[number], head.parts[number]]
    if (end === undefined || length === undefined || end > bytes.length) {
      throw new ApiError(0, 'The report ends too early: the file is not whole.')
    }
    return inflate(bytes.subarray(end - length, end))
  }

  async function json<T>(number: number | undefined): Promise<T> {
    return JSON.parse(new TextDecoder().decode(await part(number ?? -1))) as T
  }

  function modelOf(place: Place): ReportModel {
    const found = head.models.find((model) => samePlace(model, place))
    if (found !== undefined) return found
    const entry = head.runs.runs
      .find((run) => run.name === place.run)
      ?.models.find((model) => model.name === place.model)
    if (entry !== undefined) throw new ApiError(422, entry.problem)
    throw new ApiError(404, `This report has no model “${place.model}” of run “${place.run}”.`)
  }

  function indexOf(model: ReportModel, node: string): number {
    const known = indices.get(model) ?? new Map(model.ids.map((id, index) => [id, index]))
    indices.set(model, known)
    const index = known.get(node)
    if (index === undefined) throw new ApiError(404, `Model “${model.model}” has no node “${node}”.`)
    return index
  }

  return {
    runs: async () => head.runs,
    steps: async (place) => json<Steps>(modelOf(place).steps),
    async level(place, node) {
      const model = modelOf(place)
      return json<Level>(model.levels[indexOf(model, node)])
    },
    async history(place, node) {
      const model = modelOf(place)
      return decodeSeries(await part(model.series[indexOf(model, node)] ?? -1))
    },
    async health(place, stat, step) {
      const answers = await json<readonly Health[]>(modelOf(place).health[HEALTH.indexOf(stat as never)])
      const found = answers.filter((answer) => step === null || answer.step <= step).at(-1)
      if (found === undefined) throw new ApiError(404, 'No step is logged up to here.')
      return found
    },
    search: async (place, query) => matches(await json<readonly Searchable[]>(modelOf(place).search), query),
  }
}

/** What the backend's search gives. */
export function matches(entries: readonly Searchable[], query: string): Matches {
  const wanted = searchForm(query)
  const found = entries.flatMap(({ match, forms, shapes }) => {
    const shape = shapes.find((one) => searchForm(one).includes(wanted)) ?? ''
    if (shape !== '') return { ...match, shape }
    return forms.some((form) => form.includes(wanted)) ? match : []
  })
  return { matches: found.slice(0, MAX_MATCHES), total: found.length, version: VERSION }
}

function searchForm(text: string): string {
  return text.toLowerCase().replaceAll('\u00d7', 'x').replaceAll(', ', 'x').trim()
}

async function readHead(bytes: Uint8Array<ArrayBuffer>): Promise<ReportHead> {
  const end = LENGTH_BYTES + headLength(bytes)
  if (end > bytes.length) throw new Error('The report ends inside its head: the file is not whole.')
  const text = new TextDecoder().decode(await inflate(bytes.subarray(LENGTH_BYTES, end)))
  const head = JSON.parse(text) as ReportHead
  if (head.version > VERSION) throw new Error(newerVersion(head.version))
  return head
}

function headLength(bytes: Uint8Array): number {
  if (bytes.length < LENGTH_BYTES) throw new Error('The report holds no records.')
  return new DataView(bytes.buffer).getUint32(0, true)
}

/** Not by `fetch` of a data: address, which the page's policy forbids. */
function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const binary = atob(text)
  const bytes = new Uint8Array(binary.length)
  for (let index = 0; index < binary.length; index++) bytes[index] = binary.charCodeAt(index)
  return bytes
}

async function inflate(packed: Uint8Array<ArrayBuffer>): Promise<ArrayBuffer> {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'))
  return new Response(stream).arrayBuffer()
}
