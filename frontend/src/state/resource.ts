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
  /** Fetches what `subject` names. An equal subject keeps the last answer as stale; another one drops it.
   *  Resolves when this fetch is done or was given up. */
  load(subject: string, fetch: (signal: AbortSignal) => Promise<T>): Promise<void>
  /** Back to idle, giving up what is on its way. */
  clear(): void
}

export function resource<T>(): Resource<T> {
  const state = signal<Loadable<T>>({ kind: 'idle' })
  let subject: string | null = null
  let running: AbortController | null = null

  return {
    state,
    async load(wanted, fetch) {
      running?.abort()
      const mine = new AbortController()
      running = mine
      const stale = wanted === subject ? latest(state.peek()) : undefined
      subject = wanted
      state.value = { kind: 'loading', stale }
      try {
        const value = await fetch(mine.signal)
        if (running === mine) state.value = { kind: 'ready', value }
      } catch (error) {
        if (running === mine) state.value = { kind: 'failed', text: message(error), stale }
      }
    },
    clear() {
      running?.abort()
      running = null
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
