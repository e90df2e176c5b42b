import { describe, expect, it } from 'vitest'
import { decodeSeries } from '../api/decode.ts'
import { encodeSeries, seriesHead } from '../api/fixture.ts'
import { Status } from '../schema.ts'
import { csvCell, historiesCsv } from './csv.ts'

it('a history becomes one row per tensor and step, with reasons for blank ones', () => {
  const rows = [
    { size: 8, min: -1, max: 2, counts: [3, 5] },
    { status: Status.FROZEN, counts: [0, 0] },
  ]
  const history = decodeSeries(encodeSeries([seriesHead({ name: 'x,y' })], [0, 10], [rows]))
  const [head, first, second, third] = historiesCsv([
    { run: 'a', history },
    { run: '=b', history: { ...history, node: 'relu#1' } },
  ]).split('\r\n')

  expect(head).toMatch(/^run,call,group,kind,tensor,phase,step,wall,time,reason,size,.*,bin_0,bin_1$/)
  expect(first).toBe('a,conv1,output,value,"x,y",train,0,1700000000,,,8,0,0,0,0,-1,2,0,0,0,0,0,3,5')
  expect(second).toBe('a,conv1,output,value,"x,y",train,10,1700000010,,frozen: requires_grad is False')
  expect(third).toMatch(/^'=b,relu#1,output,/)
})

describe('a cell', () => {
  it.each([
    ['plain', 'plain'],
    ['say "no"', '"say ""no"""'],
    ['=HYPERLINK("x")', `"'=HYPERLINK(""x"")"`],
    [-1.5, '-1.5'],
  ])('%j is written %s', (value, text) => {
    expect(csvCell(value)).toBe(text)
  })
})
