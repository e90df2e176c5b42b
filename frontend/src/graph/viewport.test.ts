import { describe, expect, it } from 'vitest'
import { centreOn, fitAll, fitFirst, pan, reveal, toWorld, zoomAt } from './viewport.ts'

const PANE = { width: 500, height: 800 }

describe('the first view', () => {
  it('shows a small graph whole and no larger than life', () => {
    const view = fitFirst({ width: 200, height: 400 }, PANE, 100)
    expect(view).toEqual({ scale: 1, x: 150, y: 48 })
  })

  it('starts a long graph at its top, readable', () => {
    const view = fitFirst({ width: 200, height: 9000 }, PANE, 100)
    expect(view).toEqual({ scale: 1, x: 150, y: 24 })
  })

  it('puts the input of a wide graph in the middle', () => {
    const view = fitFirst({ width: 5000, height: 9000 }, PANE, 700)
    expect(view.scale).toBe(0.6)
    expect(700 * view.scale + view.x).toBe(250)
  })
})

it('what is as wide as the pane stays clear of the buttons in its corner', () => {
  // 28 px wide, 10 px from the edge; the picture's own margin is 16.
  for (const view of [fitAll, (graph: typeof PANE) => fitFirst(graph, PANE, 0)]) {
    const { x, scale } = view({ width: 600, height: 1000 }, PANE)
    expect(x + (600 - 16) * scale).toBeLessThanOrEqual(500 - 38)
  }
})

it('fitAll shows every corner', () => {
  const view = fitAll({ width: 5000, height: 300 }, PANE)
  expect(view.x).toBeGreaterThan(0)
  expect(5000 * view.scale + view.x).toBeLessThan(500)
})

it('zooming keeps the point under the pointer, also at the limits', () => {
  const start = { x: 30, y: -70, scale: 0.7 }
  const spot = { x: 120, y: 333 }
  for (const factor of [1.3, 0.2, 1000, 1e-9]) {
    const [before, after] = [toWorld(start, spot), toWorld(zoomAt(start, factor, spot), spot)]
    expect(after.x).toBeCloseTo(before.x)
    expect(after.y).toBeCloseTo(before.y)
  }
})

it('the graph can’t be lost by panning', () => {
  const graph = { width: 200, height: 400 }
  const far = pan({ x: 0, y: 0, scale: 1 }, -1e6, 1e6, graph, PANE)
  expect(far.x + graph.width).toBeGreaterThan(0)
  expect(far.y).toBeLessThan(PANE.height)
})

it('reveal moves no further than it must', () => {
  const view = { x: 0, y: 0, scale: 1 }
  expect(reveal(view, { x: 250, y: 400, width: 100, height: 40 }, PANE)).toEqual(view)
  expect(reveal(view, { x: 250, y: 900, width: 100, height: 40 }, PANE)).toEqual({ x: 0, y: -144, scale: 1 })
})

it('centreOn puts a point in the middle', () => {
  expect(toWorld(centreOn({ x: 0, y: 0, scale: 2 }, { x: 70, y: 90 }, PANE), { x: 250, y: 400 })).toEqual({
    x: 70,
    y: 90,
  })
})
