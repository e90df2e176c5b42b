import { signal } from '@preact/signals'
import { describe, expect, it } from 'vitest'
import { createPanels, type Panels, titleOf } from './panels.ts'

function board(...nodes: readonly [node: string, column: number][]): Panels {
  const panels = createPanels([], signal(''))
  for (const [node, column] of nodes) panels.add('m', node, column)
  return panels
}

function columns(panels: Panels, amount = 3): string[][] {
  return Array.from({ length: amount }, (_, column) =>
    panels.list.value.filter((panel) => panel.column % amount === column).map((panel) => panel.node),
  )
}

function find(panels: Panels, node: string): NonNullable<ReturnType<Panels['find']>> {
  const panel = panels.find('m', node)
  if (panel === undefined) throw new Error(`no panel ${node}`)
  return panel
}

describe('add', () => {
  it('puts a panel at the place of the drop', () => {
    const panels = board(['a', 0], ['b', 1], ['c', 0])
    panels.add('m', 'd', 0, 1)
    expect(columns(panels)).toEqual([['a', 'd', 'c'], ['b'], []])
  })

  it('moves a panel that is open already and keeps its mark', () => {
    const panels = board(['a', 0], ['b', 1])
    panels.add('m', 'a', 1, 0)
    expect(columns(panels)).toEqual([[], ['a', 'b'], []])
    expect(find(panels, 'a').slot).toBe(0)
  })

  it('gives a closed panel’s mark to the next one', () => {
    const panels = board(['a', 0], ['b', 0])
    panels.close(find(panels, 'a'))
    panels.add('m', 'c', 0)
    expect(panels.list.value.map(({ node, slot }) => [node, slot])).toEqual([
      ['b', 1],
      ['c', 0],
    ])
  })
})

describe('move', () => {
  it('goes to the neighbouring column and stops at the last', () => {
    const panels = board(['a', 0], ['b', 0])
    panels.move(find(panels, 'a'), 1, 0, 2)
    panels.move(find(panels, 'a'), 1, 0, 2)
    expect(columns(panels, 2)).toEqual([['b'], ['a']])
  })

  it('goes up and down in its column', () => {
    const panels = board(['a', 0], ['b', 0], ['c', 0])
    panels.move(find(panels, 'a'), 0, 1, 3)
    expect(columns(panels)[0]).toEqual(['b', 'a', 'c'])
    panels.move(find(panels, 'c'), 0, -2, 3)
    expect(columns(panels)[0]).toEqual(['c', 'b', 'a'])
  })
})

it.each([
  ['layer1/0/conv1', 'layer1.0.conv1'],
  ['block#2/relu#1', 'block #3.relu #2'],
  ['a%2Fb%25/^c.d', 'a/b%.c.d'],
  ['.', 'the whole model'],
])('the call %s is titled %s', (node, title) => {
  expect(titleOf(node)).toBe(title)
})

it('undo brings the last closed panel back, once', () => {
  const panels = board(['a', 0], ['b', 2])
  panels.close(find(panels, 'b'))
  panels.undo()
  panels.undo()
  expect(columns(panels)).toEqual([['a'], [], ['b']])
  panels.close(find(panels, 'a'))
  panels.undo()
  expect(panels.list.value.map(({ node }) => node)).toEqual(['a', 'b'])
  expect(panels.closed.value).toBeNull()
})

it('reset keeps the marks of panels that stay open', () => {
  const panels = board(['a', 0], ['b', 0])
  panels.reset([
    { model: 'm', node: 'b', also: [], column: 0 },
    { model: 'm', node: 'b', also: [], column: 1 },
    { model: 'm', node: 'c', also: [], column: 0 },
  ])
  expect(panels.list.value.map(({ node, slot }) => [node, slot])).toEqual([
    ['b', 1],
    ['c', 2],
  ])
})
