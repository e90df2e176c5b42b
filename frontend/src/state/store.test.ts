import type { signal } from '@preact/signals'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { ApiError } from '../api/api.ts'
import { decodeSeries } from '../api/decode.ts'
import { encodeSeries, seriesHead } from '../api/fixture.ts'
import type { RunEntry } from '../schema.ts'
import { fakeApi, fakeHost, run } from './fixture.ts'
import { createStore, type Store } from './store.ts'

let store: Store
const rest = (ms = 0): Promise<unknown> => vi.advanceTimersByTimeAsync(ms)
beforeEach(() => void vi.useFakeTimers())
afterEach(() => {
  store.dispose()
  vi.useRealTimers()
})

it('without an address it opens the first model and its root', async () => {
  const { api, asked } = fakeApi([run('a'), run('b')], ['.'])
  store = createStore(api, fakeHost())
  await rest()

  expect(store.place.value).toEqual({ run: 'a', model: 'm' })
  expect(asked).toContain('level a .')
  expect(store.allSteps.value).toEqual([0, 10, 20])
  expect(store.shownStep.value).toBe(20)
})

describe('an address', () => {
  const ADDRESS = '#torchexplorer&p.torchexplorer.run=b&p.torchexplorer.model=m'

  it('opens what it names', async () => {
    const { api } = fakeApi([run('a'), run('b')], ['.', 'layer1'])
    store = createStore(
      api,
      fakeHost(`${ADDRESS}&p.torchexplorer.node=layer1&p.torchexplorer.panels=1:conv1`),
    )
    await rest()

    expect(store.place.value?.run).toBe('b')
    expect(store.levelId.value).toBe('layer1')
    expect(store.panels.list.value).toEqual([{ model: 'm', node: 'conv1', also: [], column: 1, slot: 0 }])
  })

  it('of a level that is not there opens its nearest parent and says so', async () => {
    const { api } = fakeApi([run('b')], ['.', 'layer1'])
    store = createStore(api, fakeHost(`${ADDRESS}&p.torchexplorer.node=layer1/9/conv1`))
    await rest()

    expect(store.levelId.value).toBe('layer1')
    expect(store.notice.value).toBe(
      'This run has no module call “layer1.9.conv1”; showing its nearest parent.',
    )
  })

  it('of a run that is not there opens another with the same model and says so', async () => {
    const { api } = fakeApi([run('x', 't', 'other'), run('c')], ['.'])
    store = createStore(api, fakeHost(ADDRESS))
    await rest()

    expect(store.place.value).toEqual({ run: 'c', model: 'm' })
    expect(store.notice.value).toContain('no model “m” in run “b”')
  })

  describe('of a run that TensorBoard has not loaded yet', () => {
    const LATER = `${ADDRESS}&p.torchexplorer.node=layer1&p.torchexplorer.panels=0:conv1&p.torchexplorer.step=10`

    async function opened(): Promise<{ runs: RunEntry[]; host: ReturnType<typeof fakeHost> }> {
      const runs = [run('a')]
      const host = fakeHost(LATER)
      store = createStore(fakeApi(runs, ['.', 'layer1']).api, host)
      await rest(300)
      expect(store.place.value?.run).toBe('a')
      return { runs, host }
    }

    it('keeps the address, and opens the run when it is there', async () => {
      const { runs, host } = await opened()
      expect(host.hash()).toBe(LATER)

      runs.push(run('b'))
      await store.poll()
      await rest(300)

      expect(store.place.value).toEqual({ run: 'b', model: 'm' })
      expect(store.levelId.value).toBe('layer1')
      expect(store.step.value).toBe(10)
      expect(store.panels.list.value.map(({ node }) => node)).toEqual(['conv1'])
      expect(store.notice.value).toBe('')
    })

    it.each<[string, (store: Store) => void]>([
      ['a level', (store) => store.openLevel('.')],
      ['a run', (store) => store.openPlace({ run: 'a', model: 'm' })],
      [
        'a step',
        (store) => {
          store.step.value = 20
        },
      ],
      ['a panel', (store) => store.panels.add('m', 'fc', 1)],
    ])('leaves a user alone who has opened %s meanwhile', async (_what, open) => {
      const { runs } = await opened()
      open(store)

      runs.push(run('b'))
      await store.poll()
      await rest(300)

      expect(store.place.value?.run).toBe('a')
    })

    it('waits for the runs to compare with, too', async () => {
      const runs = [run('b')]
      store = createStore(fakeApi(runs, ['.']).api, fakeHost(`${ADDRESS}&p.torchexplorer.compare=c`))
      await rest()
      expect(store.compare.value).toEqual([])

      runs.push(run('c'))
      await store.poll()
      expect(store.compare.value).toEqual(['c'])
    })
  })

  it('of a run alone opens its first model', async () => {
    const { api } = fakeApi([run('a'), run('b', 't', 'other')], ['.'])
    store = createStore(api, fakeHost('#torchexplorer&p.torchexplorer.run=b'))
    await rest()

    expect(store.place.value).toEqual({ run: 'b', model: 'other' })
    expect(store.notice.value).toBe('')
  })

  it.each([
    ['a run alone', 'run=b', 'b', 'other'],
    ['a model alone', 'model=m', 'c', 'm'],
    ['neither', '', 'a', 'first'],
  ])('of %s keeps the rest, which is of the model that is opened', async (_what, named, wanted, model) => {
    const { api } = fakeApi([run('a', 't', 'first'), run('b', 't', 'other'), run('c')], ['.', 'layer1'])
    const pairs = ['node=layer1', 'panels=1:conv1+conv2', 'step=10', 'color=zeros'].map(
      (pair) => `&p.torchexplorer.${pair}`,
    )
    const hash = `#torchexplorer${named && `&p.torchexplorer.${named}`}${pairs.join('')}`
    const host = fakeHost(hash)
    store = createStore(api, host)
    const opened = () => {
      expect(store.place.value).toEqual({ run: wanted, model })
      expect(store.levelId.value).toBe('layer1')
      expect(store.panels.choices.value).toEqual([{ model, node: 'conv1', also: ['conv2'], column: 1 }])
      expect(store.panels.list.value[0]?.slot).toBe(0)
      expect([store.step.value, store.stat.value, store.notice.value]).toEqual([10, 'zeros', ''])
    }
    await rest(300)
    opened()
    expect(host.hash()).toContain('panels=1:conv1%2Bconv2')

    store.panels.reset([])
    store.openPlace({ run: 'c', model: 'm' })
    host.go(hash)
    if (named === '') expect(store.place.value).toEqual({ run: 'c', model: 'm' })
    else opened()
  })

  it('follows every choice, and going back returns from a level', async () => {
    const { api } = fakeApi([run('a')], ['.', 'layer1'])
    const host = fakeHost('#torchexplorer')
    store = createStore(api, host)
    await rest()
    store.step.value = 10
    await rest(300)
    store.openLevel('layer1')
    await rest()
    expect(host.hash()).toContain('node=layer1')
    expect(host.pushed).toHaveLength(1)

    host.back()
    expect(store.levelId.value).toBe('.')
    expect(store.step.value).toBe(10)
  })
})

it('asks again only when the token of the run moves', async () => {
  const runs = [run('a')]
  const { api, asked } = fakeApi(runs, ['.'])
  store = createStore(api, fakeHost())
  const held = store.histories.hold({ run: 'a', model: 'm' }, 'conv1', 400)
  await rest(7000)
  expect([...asked].sort()).toEqual(['history a conv1', 'level a .', 'steps'])

  runs[0] = run('a', 't2')
  await rest(3000)
  expect(asked.slice(3).sort()).toEqual(['history a conv1', 'level a .', 'steps'])

  held.release()
  await rest(3000)
  runs[0] = run('a', 't3')
  await rest(3000)
  expect(asked.filter((call) => call.startsWith('history'))).toHaveLength(2)
})

it('does not poll while another tab is in front', async () => {
  const { api } = fakeApi([run('a')], ['.'])
  const host = fakeHost()
  const polled = vi.spyOn(api, 'runs')
  store = createStore(api, host)
  await rest(4000)
  const before = polled.mock.calls.length
  ;(host.visible as ReturnType<typeof signal<boolean>>).value = false
  await rest(60_000)

  expect(polled.mock.calls.length).toBe(before)
})

it('waits for a server that answers more slowly than it is polled', async () => {
  const { api } = fakeApi([run('a')], ['.'])
  const { runs } = api
  api.runs = async (signal) => {
    await new Promise((resolve) => setTimeout(resolve, 5000))
    if (signal.aborted) throw new Error('aborted')
    return runs(signal)
  }
  store = createStore(api, fakeHost())
  await rest(5000)
  expect(store.runs.state.value.kind).toBe('ready')
  expect(store.level.state.value.kind).toBe('ready')
})

it('says that the server is gone until it is back, and then asks for what it missed', async () => {
  const { api, asked } = fakeApi([run('a')], ['.', 'layer1'])
  const { level, runs } = api
  const gone = async (): Promise<never> => {
    throw new ApiError(0, 'gone')
  }
  store = createStore(api, fakeHost())
  await rest()
  Object.assign(api, { level: gone, runs: gone })
  store.openLevel('layer1')
  await rest(3000)
  const seen = new Set<string>()
  const end = store.runs.state.subscribe(({ kind }) => void seen.add(kind))
  await rest(9000)
  end()
  expect([...seen]).toEqual(['failed'])
  expect(store.level.state.value.kind).toBe('failed')

  Object.assign(api, { level, runs })
  await rest(3000)
  expect(store.runs.state.value.kind).toBe('ready')
  expect(store.level.state.value).toMatchObject({ kind: 'ready', value: { node: { id: 'layer1' } } })

  asked.length = 0
  await rest(9000)
  expect(asked).toEqual([])
})

it('asks for colours only once the scrubber rests', async () => {
  const { api, asked } = fakeApi([run('a')], ['.'])
  store = createStore(api, fakeHost())
  await rest()
  store.stat.value = 'zeros'
  for (const step of [0, 10, 20]) {
    store.step.value = step
    await rest(20)
  }
  await rest(100)

  expect(asked.filter((call) => call.startsWith('health'))).toEqual(['health zeros 20'])
})

it('retry asks again for what failed', async () => {
  const { api, asked } = fakeApi([run('a')], [])
  store = createStore(api, fakeHost())
  await rest()
  expect(store.level.state.value).toMatchObject({ kind: 'failed', text: 'no such node' })

  store.retry()
  await rest()
  expect(asked.filter((call) => call === 'level a .')).toHaveLength(2)
})

it('where a run has no time of the user’s, all heat maps extend over steps', async () => {
  const { api } = fakeApi([run('a'), run('b')], ['.'])
  const timed = (time: (number | null)[]) =>
    decodeSeries(encodeSeries([seriesHead()], [0, 10], [[{ counts: [1] }, { counts: [1] }]], { time }))
  api.history = async ({ run }) => timed(run === 'a' ? [3, 4] : [null, null])
  store = createStore(api, fakeHost())
  store.preferences.value = { ...store.preferences.value, timeAxis: 'time' }
  await rest()
  store.histories.hold({ run: 'a', model: 'm' }, 'conv1', 9)
  await rest()
  expect(store.timeAxis.value).toBe('time')
  expect(store.domain.value).toEqual({ first: 2.5, last: 4.5 })

  store.histories.hold({ run: 'b', model: 'm' }, 'conv1', 9)
  await rest()
  expect(store.timeAxis.value).toBe('step')
  expect(store.domain.value).toEqual({ first: -5, last: 15 })
})

it('nothing is asked about a model that can’t be shown', async () => {
  const newer = run('b')
  const models = newer.models.map((model) => ({ ...model, problem: 'a newer version' }))
  const { api, asked } = fakeApi([run('a'), { ...newer, models }], ['.'])
  store = createStore(api, fakeHost())
  await rest()
  expect(store.level.state.value.kind).toBe('ready')
  asked.length = 0
  store.openPlace({ run: 'b', model: 'm' })
  await rest()
  expect(asked).toEqual([])
  expect(store.level.state.value.kind).toBe('idle')
})
