import { expect, it } from 'vitest'
import { counterpart, parentId } from './places.ts'

it('the parent of a call is the path before its last part', () => {
  expect(['layer1/0/conv1', 'conv1', '^a.b/x'].map(parentId)).toEqual(['layer1/0', '.', '^a.b'])
})

it.each([
  [['a', 'ResNet'], 'ResNet', 'ResNet'],
  [['teacher'], 'ResNet', 'teacher'],
  [['a', 'ResNet 2'], 'ResNet', 'ResNet 2'],
  [['a', 'b'], 'ResNet', undefined],
  [[], 'ResNet', undefined],
])('of the models %j, %s is stood for by %s', (models, model, expected) => {
  expect(counterpart(models, model)).toBe(expected)
})
