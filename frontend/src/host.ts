/** Who shows the tab: TensorBoard (we are a same-origin iframe), or nobody (opened directly, a report file).
 *  The rest of the tab sees only `Host`. Facts about TensorBoard in here were measured with 2.17 to 2.21. */
import { type ReadonlySignal, signal } from '@preact/signals'
import type { Theme } from './heatmap/colours.ts'
import { PLUGIN_NAME } from './schema.ts'
import { parseHash, writeHash } from './state/link.ts'

export interface Host {
  readonly theme: ReadonlySignal<Theme>
  /** False while another tab is in front; nothing is polled then. */
  readonly visible: ReadonlySignal<boolean>
  /** The pairs in the address. */
  readLink(): Map<string, string>
  /** Replaces the address, or makes a new entry in the browser's history. Does nothing while another tab
   *  is in front, whose address it is then. */
  writeLink(link: ReadonlyMap<string, string>, how: 'replace' | 'push'): void
  /** `listener` is called when the user goes back, forward, or edits the address. */
  onLink(listener: () => void): void
  /** `listener` is called when the user presses TensorBoard's reload button, or it reloads by itself. */
  onReload(listener: () => void): void
  /** The address of this very view, to copy; null where there is none that others could open. */
  address(): string | null
}

/** The host around the given window: TensorBoard, if that is there. */
export function findHost(own: Window = window): Host {
  return hostIn(own, outerWindow(own))
}

/** The window alone. A report may be shown in somebody's frame, whose address and theme are not ours. */
export function ownHost(own: Window = window): Host {
  return hostIn(own, own)
}

function hostIn(own: Window, outer: Window): Host {
  // A frame whose page was handed over as text: it has no address of its own, and none may be set.
  const nameless = outer.location.protocol === 'about:'
  const listeners = new Set<() => void>()
  if (outer !== own) listenForReload(own, () => listeners.forEach((listener) => void listener()))

  return {
    theme: themeOf(own, outer),
    visible: visibleOf(own),
    readLink: () => parseHash(outer.location.hash, PLUGIN_NAME).link,
    writeLink(link, how) {
      const before = outer.location.hash
      const after = writeHash(before, PLUGIN_NAME, link)
      if (nameless || own.innerHeight === 0 || !parseHash(before, PLUGIN_NAME).ours || after === before)
        return
      const { pathname, search } = outer.location
      const address = `${pathname}${search}${after}`
      if (how === 'push') outer.history.pushState(outer.history.state, '', address)
      else outer.history.replaceState(outer.history.state, '', address)
    },
    onLink(listener) {
      for (const event of ['popstate', 'hashchange'] as const) {
        outer.addEventListener(event, () => {
          if (parseHash(outer.location.hash, PLUGIN_NAME).ours) listener()
        })
      }
    },
    onReload: (listener) => void listeners.add(listener),
    address: () => (nameless ? null : outer.location.href),
  }
}

/** TensorBoard's window, or our own where there is none or it belongs to somebody else (another origin). */
function outerWindow(own: Window): Window {
  try {
    return own.parent.document.body !== null && own.parent.location.href !== '' ? own.parent : own
  } catch {
    return own
  }
}

/** TensorBoard marks its dark mode on the body and tells nobody; without it the system's wish counts. */
function themeOf(own: Window, outer: Window): ReadonlySignal<Theme> {
  if (outer === own) {
    const dark = own.matchMedia('(prefers-color-scheme: dark)')
    const theme = signal<Theme>(dark.matches ? 'dark' : 'light')
    dark.addEventListener('change', () => {
      theme.value = dark.matches ? 'dark' : 'light'
    })
    return theme
  }
  const { body } = outer.document
  const read = (): Theme => (body.classList.contains('dark-mode') ? 'dark' : 'light')
  const theme = signal(read())
  new MutationObserver(() => {
    theme.value = read()
  }).observe(body, { attributes: true, attributeFilter: ['class'] })
  return theme
}

/** TensorBoard hides our frame by a height of 0; `visibilityState` stays "visible" then. */
function visibleOf(own: Window): ReadonlySignal<boolean> {
  const read = (): boolean => own.innerHeight > 0 && own.document.visibilityState === 'visible'
  const visible = signal(read())
  const update = (): void => {
    visible.value = read()
  }
  own.addEventListener('resize', update)
  own.document.addEventListener('visibilitychange', update)
  return visible
}

/** TensorBoard's message protocol (its library is not on npm): JSON over a channel that we hand over;
 *  every message wants a reply. */
function listenForReload(own: Window, listener: () => void): void {
  const { port1, port2 } = new MessageChannel()
  port1.onmessage = ({ data }: MessageEvent<unknown>) => {
    const message = messageOf(data)
    if (message === null || message.isReply) return
    const { type, id } = message
    port1.postMessage(JSON.stringify({ type, id, payload: null, error: null, isReply: true }))
    if (type === 'experimental.DataReloaded') listener()
  }
  own.parent.postMessage('experimental.bootstrap', '*', [port2])
}

interface Message {
  readonly type: string
  readonly id: number
  readonly isReply: boolean
}

/** Null for anything else than a message of the protocol. */
function messageOf(data: unknown): Message | null {
  try {
    return JSON.parse(String(data)) as Message
  } catch {
    return null
  }
}
