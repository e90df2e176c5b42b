import { describe, expect, it } from 'vitest'
import { ApiError } from './api.ts'
import { encodeSeries, seriesHead } from './fixture.ts'
import { httpApi } from './http.ts'

const PLACE = { run: 'a b/c#1…', model: 'm&m' }
const SIGNAL = new AbortController().signal

/** An api whose every request is answered by `response`; the addresses asked for are collected. */
function answering(response: () => Response | Error): { api: ReturnType<typeof httpApi>; asked: string[] } {
  const asked: string[] = []
  const api = httpApi(async (address) => {
    asked.push(address)
    const answer = response()
    if (answer instanceof Error) throw answer
    return answer
  })
  return { api, asked }
}

describe('addresses', () => {
  it('are relative and carry odd names through', async () => {
    const { api, asked } = answering(() => Response.json({ version: 1 }))
    await api.level(PLACE, 'layer%2F1/0#1', SIGNAL)
    await api.health(PLACE, 'zeros', null, SIGNAL)
    await api.health(PLACE, 'zeros', 0, SIGNAL)

    const query = new URL(asked[0] as string, 'http://host/prefix/').searchParams
    expect(Object.fromEntries(query)).toEqual({ ...PLACE, node: 'layer%2F1/0#1' })
    expect(asked.every((address) => /^[a-z]+\?/.test(address))).toBe(true)
    expect(asked[1]).not.toContain('step=')
    expect(asked[2]).toContain('step=0')
  })
})

describe('refusals', () => {
  it('carry the words of the backend', async () => {
    const { api } = answering(
      () =>
        new Response("run 'x' has no model 'y'", { status: 404, headers: { 'content-type': 'text/plain' } }),
    )
    await expect(api.steps(PLACE, SIGNAL)).rejects.toEqual(new ApiError(404, "run 'x' has no model 'y'"))
  })

  it('do not show a page of markup', async () => {
    const { api } = answering(
      () =>
        new Response('<html>…', {
          status: 500,
          statusText: 'Server Error',
          headers: { 'content-type': 'text/html' },
        }),
    )
    await expect(api.steps(PLACE, SIGNAL)).rejects.toThrow('TensorBoard answered 500 Server Error')
  })

  it('say so when nobody answers', async () => {
    const { api } = answering(() => new TypeError('Failed to fetch'))
    await expect(api.runs(SIGNAL)).rejects.toThrow('TensorBoard does not answer')
  })

  it('say so when the server goes away in the midst of an answer', async () => {
    const cut = (): Response =>
      new Response(new ReadableStream({ start: (stream) => stream.error(new TypeError('network error')) }))
    const { api } = answering(cut)
    await expect(api.runs(SIGNAL)).rejects.toThrow('TensorBoard does not answer')
    await expect(api.history(PLACE, 'conv1', 400, SIGNAL)).rejects.toThrow('TensorBoard does not answer')
  })

  it('name a proxy that answers in place of TensorBoard', async () => {
    const { api } = answering(() => new Response('<!doctype html><form>…', { status: 200 }))
    await expect(api.runs(SIGNAL)).rejects.toThrow('Does a proxy want you to log in again?')
  })

  it('of newer records give advice', async () => {
    const { api } = answering(() => Response.json({ version: 99 }))
    await expect(api.runs(SIGNAL)).rejects.toThrow('format version 99')
  })
})

it('series come decoded', async () => {
  const { api, asked } = answering(
    () => new Response(encodeSeries([seriesHead()], [3], [[{ counts: [1, 2] }]])),
  )
  const history = await api.history(PLACE, 'conv1', 400, SIGNAL)

  expect(history.tracks[0]?.head.group).toBe('output')
  expect(asked[0]).toContain('limit=400')
})
