/** The store, for every view. */
import { createContext } from 'preact'
import { useContext } from 'preact/hooks'
import type { Store } from '../state/store.ts'

export const StoreContext = createContext<Store | null>(null)

export function useStore(): Store {
  const store = useContext(StoreContext)
  if (store === null) throw new Error('a view was rendered outside of the app')
  return store
}
