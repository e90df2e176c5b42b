import { expect, it } from 'vitest'
import { latest, resource } from './resource.ts'

/** A promise together with what settles it. */
function deferred<T>(): { promise: Promise<T>; resolve: (value: T) => void; reject: (error: Error) => void } {
  let resolve: (value: T) => void = () => undefined
  let reject: (error: Error) => void = () => undefined
  const promise = new Promise<T>((yes, no) => {
    resolve = yes
    reject = no
  })
  return { promise, resolve, reject }
}

it('a later request wins, in whatever order the answers come', async () => {
  const things = resource<string>()
  const [first, second] = [deferred<string>(), deferred<string>()]
  const one = things.load('a', () => first.promise)
  const two = things.load('b', () => second.promise)
  second.resolve('B')
  await two
  first.resolve('A')
  await one

  expect(things.state.value).toEqual({ kind: 'ready', value: 'B' })
})

it('gives the earlier request up', async () => {
  const things = resource<string>()
  let given: AbortSignal | undefined
  const one = things.load('a', (signal) => {
    given = signal
    return new Promise((_, reject) => signal.addEventListener('abort', () => reject(new Error('aborted'))))
  })
  await Promise.all([one, things.load('b', async () => 'B')])

  expect(given?.aborted).toBe(true)
  expect(things.state.value).toEqual({ kind: 'ready', value: 'B' })
})

it('keeps the last answer about the same subject while reloading and after a failure', async () => {
  const things = resource<string>()
  await things.load('a', async () => 'old')
  const next = deferred<string>()
  const loading = things.load('a', () => next.promise)

  expect(things.state.value).toEqual({ kind: 'loading', stale: 'old' })
  next.reject(new Error('server gone'))
  await loading
  expect(things.state.value).toEqual({ kind: 'failed', text: 'server gone', stale: 'old' })
  expect(latest(things.state.value)).toBe('old')
})

it('drops the last answer for another subject', async () => {
  const things = resource<string>()
  await things.load('a', async () => 'old')
  const loading = things.load('b', async () => 'new')

  expect(things.state.value).toEqual({ kind: 'loading', stale: undefined })
  await loading
})

it('clear gives up and forgets', async () => {
  const things = resource<string>()
  const next = deferred<string>()
  const loading = things.load('a', () => next.promise)
  things.clear()
  next.resolve('late')
  await loading

  expect(things.state.value).toEqual({ kind: 'idle' })
})

it('a patient one takes every answer about the same subject, and asks once more for all news since', async () => {
  const things = resource<string>(true)
  const [first, last] = [deferred<string>(), deferred<string>()]
  const asked: string[] = []
  const loading = things.load('a', () => first.promise)
  for (const name of ['second', 'third']) {
    void things.load('a', () => {
      asked.push(name)
      return last.promise
    })
  }
  first.resolve('1')
  await Promise.resolve()
  await Promise.resolve()
  expect(asked).toEqual(['third'])
  expect(things.state.value).toEqual({ kind: 'loading', stale: '1' })
  last.resolve('3')
  await loading
  expect(things.state.value).toEqual({ kind: 'ready', value: '3' })
})

it('a patient one gives up what is asked about another subject, and what should follow it', async () => {
  const things = resource<string>(true)
  const old = deferred<string>()
  const loading = things.load('a', () => old.promise)
  void things.load('a', () => Promise.reject(new Error('nobody wants it')))
  await things.load('b', async () => 'B')
  old.resolve('A')
  await loading
  expect(things.state.value).toEqual({ kind: 'ready', value: 'B' })
})
