/** What floats over all else: the tip over a heat map, and what is worth telling. While a dialog is open they are in it:
 *  whatever is outside lies behind it and is silent. */
import { signal } from '@preact/signals'
import type { JSX } from 'preact'
import { useEffect } from 'preact/hooks'
import { useStore } from './context.ts'
import { ProbeTip } from './probe.tsx'

/** How many dialogs are open. */
export const dialogs = signal(0)

export function Overlays({ inside }: { inside: boolean }): JSX.Element | null {
  if (!inside && dialogs.value > 0) return null
  return (
    <>
      <ProbeTip />
      <Notice />
    </>
  )
}

const NOTICE_MS = 6000

function Notice(): JSX.Element {
  const store = useStore()
  const text = store.notice.value
  useEffect(() => {
    if (text === '') return
    const timer = setTimeout(() => {
      store.notice.value = ''
    }, NOTICE_MS)
    return () => clearTimeout(timer)
  }, [text])
  const undo = text.startsWith('Closed panel') && store.panels.closed.value !== null
  return (
    <div class={text === '' ? 'notice' : 'notice shown'}>
      <span role="status">{text}</span>
      {undo && (
        <button
          type="button"
          class="button"
          onClick={() => {
            store.notice.value = ''
            store.panels.undo()
          }}
        >
          Undo
        </button>
      )}
    </div>
  )
}
