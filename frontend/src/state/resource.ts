/** Something that is fetched, as one signal; an answer that is no longer wanted is dropped. */
import { type ReadonlySignal, signal } from '@preact/signals'

/** `stale` is the last answer about the same thing; it stays on screen while a newer one is on its way. */
export type Loadable<T> =
  | { readonly kind: 'idle' }
  | { readonly kind: 'loading'; readonly stale: T | undefined }
  | { readonly kind: 'failed'; readonly text: string; readonly stale: T | undefined }
  | { readonly kind: 'ready'; readonly value: T }

export interface Resource<T> {
  readonly state: ReadonlySignal<Loadable<T>>
  /** Fetches what `subject` names. An equal subject keeps the last answer as stale; another one drops it. One that
   *  nobody asked for is `quiet`: a failure stays until it is answered. Resolves when this fetch is done, given
   *  up or put off. */
  load(subject: string, fetch: Fetch<T>, quiet?: boolean): Promise<void>
  /** Back to idle, giving up what is on its way. */
  clear(): void
}

type Fetch<T> = (signal: AbortSignal) => Promise<T>

/** A `patient` one awaits an answer about the same subject before it asks again. Where news come faster than answers,
 *  it would else never have any. */
export function resource<T>(patient = false): Resource<T> {
  const state = signal<Loadable<T>>({ kind: 'idle' })
  let subject: string | null = null
  let running: AbortController | null = null
  let next: Fetch<T> | null = null

  async function load(wanted: string, fetch: Fetch<T>, quiet = false): Promise<void> {
    if (patient && running !== null && wanted === subject) {
      next = fetch
      return
    }
    running?.abort()
    const mine = new AbortController()
    running = mine
    next = null
    const stale = wanted === subject ? latest(state.peek()) : undefined
    subject = wanted
    if (!quiet || state.peek().kind !== 'failed') state.value = { kind: 'loading', stale }
    try {
      const value = await fetch(mine.signal)
      if (running === mine) state.value = { kind: 'ready', value }
    } catch (error) {
      if (running === mine) state.value = { kind: 'failed', text: message(error), stale }
    }
    if (running !== mine) return
    running = null
    if (next !== null) await load(wanted, next)
  }

  return {
    state,
    load,
    clear() {
      running?.abort()
      running = null
      next = null
      subject = null
      state.value = { kind: 'idle' }
    },
  }
}

/** The newest answer there is, be it current or stale. */
export function latest<T>(loadable: Loadable<T>): T | undefined {
  if (loadable.kind === 'ready') return loadable.value
  return loadable.kind === 'idle' ? undefined : loadable.stale
}

export function message(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
