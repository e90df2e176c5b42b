import { expect, it } from 'vitest'
import { levelNode, port } from '../api/fixture.ts'
import { pictureOf } from '../graph/picture.ts'
import { sceneOf } from '../graph/scene.ts'
import { VERSION } from '../schema.ts'
import { graphSvg, xmlText } from './svg.ts'

const SCENE = sceneOf(
  {
    model: 'm',
    node: levelNode({ id: '.', index: 0, inputs: [port('x')], outputs: [port('y')] }),
    ancestors: [],
    nodes: [levelNode({ index: 1, id: 'a', name: '<b onload="x">&', children: 2 })],
    edges: [
      { level: 0, source: ['input', 0], target: ['node', 1], kind: 'gradient', implicit: false },
      { level: 0, source: ['node', 1], target: ['output', 0], kind: 'data', implicit: false },
    ],
    steps: 3,
    bins: 30,
    version: VERSION,
  },
  (text, size) => text.length * size * 0.6,
)

it('every box and wire is in the drawing, names as text', () => {
  const svg = graphSvg(pictureOf(SCENE, true), 'light', () => undefined)

  expect(svg.match(/marker-end/g)).toHaveLength(2)
  expect(svg.match(/stroke-dasharray/g)).toHaveLength(1)
  expect(svg).toContain('>&#60;b onload=&#34;x&#34;&#62;&#38;</text>')
  expect(svg).toContain('>Input</text>')
})

it('data edges can be left out', () => {
  expect(graphSvg(pictureOf(SCENE, false), 'dark', () => '#123456').match(/marker-end/g)).toHaveLength(1)
})

it('what XML forbids is replaced', () => {
  expect(xmlText('a\u0000\u001bb')).toBe('a\ufffd\ufffdb')
})
