/** A scene with runs of identical siblings drawn as one box each: `DecoderLayer ×48`. Pure. */
import { fold, type Stack } from '../layout/index.ts'
import type { LevelNode } from '../schema.ts'
import { familyOf } from './family.ts'
import { type Box, type Measure, type Scene, stackBox, type Wire } from './scene.ts'

/** Stacks whose key is in `open` stay unfolded, and so do those that hold a box of `shown`. */
export function foldScene(
  scene: Scene,
  open: ReadonlySet<string>,
  shown: ReadonlySet<string>,
  measure: Measure,
): Scene {
  const siblings = scene.boxes.map((box) => ({ id: box.key, signature: signatureOf(box), name: box.title }))
  const edges = scene.wires.map(({ source, target, kind }) => ({ source, target, kind }))
  const needed = fold(siblings, edges, open).stacks.filter(({ members }) =>
    members.some((key) => shown.has(key)),
  )
  const { stacks, nodes } = fold(siblings, edges, new Set([...open, ...needed.map(({ id }) => id)]))
  if (stacks.length === 0) return scene

  const boxes = new Map(scene.boxes.map((box) => [box.key, box]))
  for (const stack of stacks) boxes.set(stack.id, boxOf(stack, boxes, measure))
  const inside = new Map(stacks.flatMap(({ id, members }) => members.map((key) => [key, id])))
  return {
    boxes: nodes.flatMap(({ id }) => boxes.get(id) ?? []),
    wires: wiresOf(scene.wires, (key) => inside.get(key) ?? key),
  }
}

/** Equal for calls of the same class with the same options, size and number of calls inside. */
function signatureOf({ key, node }: Box): string {
  if (node === null || node.class_name === '') return key
  const { class_name, children, size, extra, parameters } = node
  return JSON.stringify([
    class_name,
    children,
    size,
    extra,
    parameters.map(({ name, shape }) => [name, shape]),
  ])
}

function boxOf(stack: Stack, boxes: ReadonlyMap<string, Box>, measure: Measure): Box {
  const members = stack.members.flatMap((key): LevelNode[] => {
    const node = boxes.get(key)?.node
    return node === null || node === undefined ? [] : [node]
  })
  const [first] = members
  if (first === undefined) throw new Error(`the stack ${stack.id} has no members`)
  return stackBox(stack.id, members, familyOf(first.class_name, first.children), measure)
}

/** Wires between members of one stack are left out; of several between the same two boxes one is drawn. */
function wiresOf(wires: readonly Wire[], boxFor: (key: string) => string): Wire[] {
  const kept = new Map<string, Wire>()
  for (const wire of wires) {
    const [source, target] = [boxFor(wire.source), boxFor(wire.target)]
    if (source === target && source !== wire.source) continue
    const key = JSON.stringify([source, target])
    const before = kept.get(key)
    if (before === undefined || (before.kind === 'data' && wire.kind === 'gradient')) {
      kept.set(key, { ...wire, source, target })
    }
  }
  return [...kept.values()]
}
