/** The routes of the backend. Addresses are relative, so any path prefix or proxy works. */
import type { Health, Level, Matches, Runs, Steps } from '../schema.ts'
import { VERSION } from '../schema.ts'
import { type Api, ApiError, type Place } from './api.ts'
import { decodeSeries, type History, newerVersion } from './decode.ts'

type Fetch = (address: string, options: RequestInit) => Promise<Response>

/** `fetch` is given in tests only. */
export function httpApi(fetch: Fetch = (address, options) => globalThis.fetch(address, options)): Api {
  async function get<T>(
    route: string,
    query: Query,
    signal: AbortSignal,
    read: (response: Response) => Promise<T>,
  ): Promise<T> {
    try {
      const response = await fetch(address(route, query), { signal })
      if (!response.ok) throw new ApiError(response.status, await reason(response))
      return await read(response)
    } catch (error) {
      if (signal.aborted || error instanceof ApiError) throw error
      if (error instanceof SyntaxError)
        throw new ApiError(200, 'The answer is not TensorBoard’s. Does a proxy want you to log in again?')
      throw new ApiError(0, 'TensorBoard does not answer. Is it still running?')
    }
  }

  async function json<T extends { version: number }>(
    route: string,
    query: Query,
    signal: AbortSignal,
  ): Promise<T> {
    const answer = await get<T>(route, query, signal, (response) => response.json())
    if (answer.version > VERSION) throw new ApiError(200, newerVersion(answer.version))
    return answer
  }

  return {
    runs: (signal) => json<Runs>('runs', {}, signal),
    steps: (place, signal) => json<Steps>('steps', { ...of(place) }, signal),
    level: (place, node, signal) => json<Level>('graph', { ...of(place), node }, signal),
    async history(place, node, limit, signal): Promise<History> {
      const query = { ...of(place), node, limit: String(limit) }
      return decodeSeries(await get('series', query, signal, (response) => response.arrayBuffer()))
    },
    health: (place, stat, step, signal) =>
      json<Health>(
        'health',
        { ...of(place), stat, ...(step === null ? {} : { step: String(step) }) },
        signal,
      ),
    search: (place, query, signal) => json<Matches>('search', { ...of(place), q: query }, signal),
  }
}

type Query = Readonly<Record<string, string>>

function of({ run, model }: Place): Query {
  return { run, model }
}

export function address(route: string, query: Query): string {
  const text = Object.entries(query)
    .map(([key, value]) => `${key}=${encodeURIComponent(value)}`)
    .join('&')
  return text === '' ? route : `${route}?${text}`
}

/** The backend explains a refusal in plain text; a page of markup (a proxy's, a crash) is of no use. */
async function reason(response: Response): Promise<string> {
  const text = (await response.text()).trim()
  const plain = response.headers.get('content-type')?.startsWith('text/plain') ?? false
  return plain && text !== '' ? text : `TensorBoard answered ${response.status} ${response.statusText}`.trim()
}
