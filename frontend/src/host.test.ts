import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { findHost } from './host.ts'

/** A window as far as the host looks at it. `parent` is itself unless given. */
function fakeWindow(hash: string, parent?: unknown, height = 900): Window & { fire: (name: string) => void } {
  const listeners = new Map<string, (() => void)[]>()
  const addEventListener = (name: string, listener: () => void): void => {
    listeners.set(name, [...(listeners.get(name) ?? []), listener])
  }
  const classes = new Set<string>()
  const fake = {
    innerHeight: height,
    location: { hash, href: `http://host/${hash}`, pathname: '/', search: '' },
    history: {
      state: null,
      replaceState: vi.fn((_: unknown, __: string, address: string) => {
        fake.location.hash = address.slice(address.indexOf('#'))
      }),
      pushState: vi.fn(),
    },
    document: {
      body: { classList: { contains: (name: string) => classes.has(name) }, classes },
      visibilityState: 'visible',
      addEventListener,
    },
    matchMedia: () => ({ matches: true, addEventListener }),
    addEventListener,
    postMessage: vi.fn(),
    fire: (name: string) => {
      for (const listener of listeners.get(name) ?? []) listener()
    },
  }
  return Object.assign(fake, { parent: parent ?? fake }) as unknown as ReturnType<typeof fakeWindow>
}

let observed: () => void = () => undefined
beforeEach(() => {
  vi.stubGlobal(
    'MutationObserver',
    class {
      constructor(callback: () => void) {
        observed = callback
      }
      observe(): void {}
    },
  )
})
afterEach(() => vi.unstubAllGlobals())

const LINK = new Map([['run', 'a']])

describe('inside TensorBoard', () => {
  it('reads and writes TensorBoard’s address', () => {
    const outer = fakeWindow('#torchexplorer&p.torchexplorer.run=old')
    const host = findHost(fakeWindow('', outer))
    expect([...host.readLink()]).toEqual([['run', 'old']])
    host.writeLink(LINK, 'replace')
    host.writeLink(LINK, 'replace')

    expect(outer.history.replaceState).toHaveBeenCalledTimes(1)
    expect(outer.location.hash).toBe('#torchexplorer&p.torchexplorer.run=a')
  })

  it('leaves the address of another tab alone', () => {
    const outer = fakeWindow('#scalars')
    findHost(fakeWindow('', outer)).writeLink(LINK, 'push')
    const hidden = fakeWindow('#torchexplorer')
    findHost(fakeWindow('', hidden, 0)).writeLink(LINK, 'replace')

    expect(outer.history.pushState).not.toHaveBeenCalled()
    expect(hidden.history.replaceState).not.toHaveBeenCalled()
  })

  it('follows the dark mode of its body', () => {
    const outer = fakeWindow('')
    const host = findHost(fakeWindow('', outer))
    expect(host.theme.value).toBe('light')
    ;(outer.document.body as unknown as { classes: Set<string> }).classes.add('dark-mode')
    observed()
    expect(host.theme.value).toBe('dark')
  })

  it('is not visible while the frame has no height', () => {
    const own = fakeWindow('', fakeWindow(''))
    const host = findHost(own)
    expect(host.visible.value).toBe(true)
    Object.assign(own, { innerHeight: 0 })
    own.fire('resize')
    expect(host.visible.value).toBe(false)
  })

  it('answers its messages and passes the reload button on', async () => {
    const outer = fakeWindow('')
    const host = findHost(fakeWindow('', outer))
    const reloaded = vi.fn()
    host.onReload(reloaded)
    const [, , [port]] = vi.mocked(outer.postMessage).mock.calls[0] as unknown as [
      string,
      string,
      [MessagePort],
    ]
    const reply = new Promise<{ id: number; isReply: boolean }>((resolve) => {
      port.onmessage = ({ data }) => resolve(JSON.parse(data))
    })
    port.postMessage(JSON.stringify({ type: 'experimental.DataReloaded', id: 7, isReply: false }))

    expect(await reply).toMatchObject({ id: 7, isReply: true })
    expect(reloaded).toHaveBeenCalledTimes(1)
    port.close()
  })

  it('ignores messages that are none of its protocol', async () => {
    const outer = fakeWindow('')
    const host = findHost(fakeWindow('', outer))
    const reloaded = vi.fn()
    host.onReload(reloaded)
    const [, , [port]] = vi.mocked(outer.postMessage).mock.calls[0] as unknown as [
      string,
      string,
      [MessagePort],
    ]
    port.postMessage('not json')
    port.postMessage(JSON.stringify({ type: 'experimental.DataReloaded', id: 8, isReply: false }))

    await vi.waitFor(() => expect(reloaded).toHaveBeenCalledTimes(1))
    port.close()
  })
})

describe('without TensorBoard', () => {
  it('takes its own address and the system’s wish for dark', () => {
    const own = fakeWindow('#torchexplorer&p.torchexplorer.run=b')
    const host = findHost(own)
    expect([...host.readLink()]).toEqual([['run', 'b']])
    expect(host.theme.value).toBe('dark')
    expect(own.postMessage).not.toHaveBeenCalled()
  })

  it('does so too in a frame of another origin', () => {
    const stranger = {
      get document(): never {
        throw new DOMException('blocked', 'SecurityError')
      },
    }
    expect([...findHost(fakeWindow('#torchexplorer&p.torchexplorer.run=c', stranger)).readLink()]).toEqual([
      ['run', 'c'],
    ])
  })
})
