/** Search, help, tables and files to save: what the first view does not need, and may be fetched with its first use. */
import { signal } from '@preact/signals'
import { message } from '../state/resource.ts'
import type { Store } from '../state/store.ts'

export type Extras = typeof import('./extras.ts')

/** Null until the first use. */
export const extras = signal<Extras | null>(null)

let load: () => Promise<Extras>

/** Says where they come from. */
export function extrasFrom(source: () => Promise<Extras>): void {
  load = source
}

/** Calls `use`, and tells the user what went wrong with it, or why it can't. */
export async function withExtras(store: Store, use: (extras: Extras) => unknown): Promise<void> {
  try {
    extras.value ??= await load()
  } catch (error) {
    store.notice.value = `This part of the tab could not be loaded; reload the page to try again. (${message(error)})`
    return
  }
  try {
    await use(extras.value)
  } catch (error) {
    store.notice.value = `That did not work: ${message(error)}`
  }
}
