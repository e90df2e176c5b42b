import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { HEALTH } from '../schema.ts'
import { type Choice, FIRST_CHOICE, fromLink, parseHash, toLink, writeHash } from './link.ts'

const PLACE = { run: 'lr=0.1/seed 3', model: 'ResNet' }
const CHOICE: Choice = {
  place: PLACE,
  compare: ['seed 4', 'a,b'],
  level: 'layer1/0',
  panels: [
    { model: 'ResNet', node: 'layer1/0/conv1', also: [], column: 0 },
    { model: 'teacher', node: 'a,b:c%', also: ['d+e', 'relu#1'], column: 1 },
  ],
  step: 400,
  stat: 'gradient',
}

function roundTrip(choice: Choice): Choice {
  return fromLink(parseHash(writeHash('', 'torchexplorer', toLink(choice)), 'torchexplorer').link)
}

it('a choice survives the address', () => {
  expect(roundTrip(CHOICE)).toEqual(CHOICE)
  expect(roundTrip(FIRST_CHOICE)).toEqual(FIRST_CHOICE)
})

it('so does one with any names whatever', () => {
  const name = fc.string({ unit: 'binary', minLength: 1 })
  const place = fc.record({ run: name, model: name })
  const panel = fc.record({
    model: name,
    node: name,
    also: fc.array(name, { maxLength: 2 }),
    column: fc.nat(9),
  })
  const choice = fc.record({
    place,
    compare: fc.array(name, { maxLength: 2 }),
    level: name,
    panels: fc.array(panel, { maxLength: 3 }),
    step: fc.option(fc.nat()),
    stat: fc.option(fc.constantFrom(...HEALTH)),
  })
  fc.assert(
    fc.property(choice, (chosen) => {
      expect(roundTrip(chosen)).toEqual(chosen)
    }),
  )
})

it('the address is readable', () => {
  expect(
    writeHash(
      '',
      'torchexplorer',
      toLink({ ...CHOICE, place: { run: 'a', model: 'm' }, compare: [], panels: [] }),
    ),
  ).toBe(
    '#torchexplorer&p.torchexplorer.run=a&p.torchexplorer.model=m&p.torchexplorer.node=layer1/0' +
      '&p.torchexplorer.step=400&p.torchexplorer.color=gradient',
  )
})

it('what an address leaves open is left open, and the rest stays', () => {
  const panels = [{ model: '', node: 'fc', also: [], column: 2 }]
  for (const place of [null, { run: 'a', model: '' }, { run: '', model: 'm' }])
    expect(roundTrip({ ...CHOICE, place }).place).toEqual(place)
  expect(roundTrip({ ...CHOICE, place: null, panels })).toEqual({ ...CHOICE, place: null, panels })
  expect(
    fromLink(
      new Map([
        ['panels', '2:fc'],
        ['run', 'a'],
      ]),
    ).panels,
  ).toEqual(panels)
})

it('nonsense in an address is left out', () => {
  const link = new Map([
    ['run', 'a'],
    ['model', 'm'],
    ['step', 'soon'],
    ['color', 'constructor'],
    ['panels', ',:,x:conv1,1:bn1:%E0%A4%A'],
  ])
  expect(fromLink(link)).toEqual({
    place: { run: 'a', model: 'm' },
    compare: [],
    level: '.',
    panels: [
      { model: 'm', node: 'conv1', also: [], column: 0 },
      { model: '%E0%A4%A', node: 'bn1', also: [], column: 1 },
    ],
    step: null,
    stat: null,
  })
})

describe('the hash', () => {
  it('belongs to the tab it names first', () => {
    expect(parseHash('#scalars&p.torchexplorer.run=a', 'torchexplorer').ours).toBe(false)
    expect(parseHash('#torchexplorer', 'torchexplorer').ours).toBe(true)
    expect(parseHash('', 'torchexplorer').ours).toBe(true)
  })

  it('keeps the pairs of other plugins', () => {
    expect(writeHash('#torchexplorer&p.other.x=1&p.torchexplorer.run=a', 'torchexplorer', new Map())).toBe(
      '#torchexplorer&p.other.x=1',
    )
  })
})
