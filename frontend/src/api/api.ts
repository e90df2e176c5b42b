/** What the tab asks of whoever has the records: a TensorBoard server, or data inside a report file. */
import type { Health, Level, Matches, Runs, Steps } from '../schema.ts'
import type { History } from './decode.ts'

/** A watched model of a run. */
export interface Place {
  readonly run: string
  readonly model: string
}

/** Every call may be given up through its signal, and rejects with an `ApiError` where the answer is no. */
export interface Api {
  runs(signal: AbortSignal): Promise<Runs>
  steps(place: Place, signal: AbortSignal): Promise<Steps>
  /** The level of the invocation `node`. */
  level(place: Place, node: string, signal: AbortSignal): Promise<Level>
  /** All histories of the invocation `node`, at most `limit` steps. */
  history(place: Place, node: string, limit: number, signal: AbortSignal): Promise<History>
  /** The statistic `stat` of all nodes; without `step` at the last logged step. */
  health(place: Place, stat: string, step: number | null, signal: AbortSignal): Promise<Health>
  search(place: Place, query: string, signal: AbortSignal): Promise<Matches>
}

export class ApiError extends Error {
  /** HTTP status, 0 where no answer came at all. */
  readonly status: number

  constructor(status: number, text: string) {
    super(text)
    this.name = 'ApiError'
    this.status = status
  }
}

export function samePlace(one: Place | null, other: Place | null): boolean {
  return one === other || (one?.run === other?.run && one?.model === other?.model)
}
