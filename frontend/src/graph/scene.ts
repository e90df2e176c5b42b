/** A level to what is drawn of it: boxes with their words and sizes, and the edges between. Pure. */
import * as format from '../format.ts'
import type { End, Level, LevelNode, Port } from '../schema.ts'
import { type Family, familyOf } from './family.ts'

/** A box of the graph. `node` is the call it stands for, `stack` the calls it stands for together, `port` the
 *  tensor of an input or output placeholder; the others are null. */
export interface Box {
  readonly key: string
  readonly kind: 'input' | 'output' | 'node'
  readonly title: string
  readonly subtitle: string
  readonly badges: readonly Badge[]
  readonly family: Family
  readonly node: LevelNode | null
  readonly stack: readonly LevelNode[] | null
  readonly port: Port | null
  readonly width: number
  readonly height: number
}

export interface Badge {
  readonly text: string
  readonly meaning: string
  readonly warning: boolean
}

/** `shape` is that of the tensor that flows, empty where it can't be told. */
export interface Wire {
  readonly source: string
  readonly target: string
  readonly kind: 'gradient' | 'data'
  readonly implicit: boolean
  readonly shape: string
}

export interface Scene {
  readonly boxes: readonly Box[]
  readonly wires: readonly Wire[]
  /** What could be drawn as one box and is not. */
  readonly open: readonly OpenFold[]
}

/** Boxes that can be folded into one; `boxes` are the keys of those that are drawn. */
export interface OpenFold {
  readonly id: string
  readonly title: string
  readonly boxes: readonly string[]
}

/** Width in pixels of `text` in the tab's font at a size and weight. */
export type Measure = (text: string, size: number, weight: number) => number

export const TITLE = { size: 13, weight: 600 } as const
export const SUBTITLE = { size: 12, weight: 400 } as const
export const BADGE = { size: 10.5, weight: 500 } as const

const SIDE = 14
const CHEVRON = 18
const [LEAST, MOST, MOST_OF_STACK] = [92, 232, 264]
const BADGE_ROOM = 15

export function sceneOf(level: Level, measure: Measure): Scene {
  const boxes = [
    ...level.node.inputs.map((port, index) =>
      placeholder('input', port, index, level.node.inputs.length, measure),
    ),
    ...(level.edges.some(({ source }) => source[0] === 'outside') ? [outside(measure)] : []),
    ...level.nodes.map((node) => box(node, level.steps, measure)),
    ...level.node.outputs.map((port, index) =>
      placeholder('output', port, index, level.node.outputs.length, measure),
    ),
  ]
  const known = new Map(boxes.map((item) => [item.key, item]))
  const wires = level.edges.flatMap(({ source, target, kind, implicit }) => {
    const [from, to] = [known.get(keyOf(source)), known.get(keyOf(target))]
    if (from === undefined || to === undefined) return []
    return [{ source: from.key, target: to.key, kind, implicit, shape: flowing(from, to) }]
  })
  return { boxes, wires, open: [] }
}

/** Unique among all boxes of a level. */
export function keyOf([kind, index]: End): string {
  return `${kind}:${index}`
}

function box(node: LevelNode, steps: number, measure: Measure): Box {
  const badges = badgesOf(node, steps)
  const opens = node.children > 0
  const room = MOST - 2 * SIDE - (opens ? CHEVRON : 0)
  const fitted = (text: string, { size, weight }: { size: number; weight: number }): string =>
    format.fit(format.visible(text), room, (shown) => measure(shown, size, weight))
  return {
    key: keyOf(['node', node.index]),
    kind: 'node',
    // Measuring ten thousand names takes longer than all else; what is folded away never asks for its words.
    get title() {
      return fitted(node.name, TITLE)
    },
    get subtitle() {
      return fitted(node.class_name, SUBTITLE)
    },
    badges,
    family: familyOf(node.class_name, node.children),
    node,
    stack: null,
    port: null,
    get width() {
      const badgesWidth = badges.reduce(
        (sum, { text }) => sum + measure(text, BADGE.size, BADGE.weight) + BADGE_ROOM,
        0,
      )
      return Math.max(
        widthOf(this.title, this.subtitle, opens, measure),
        even(Math.min(MOST, badgesWidth + 2 * SIDE + (opens ? CHEVRON : 0))),
      )
    },
    height: badges.length > 0 ? 66 : 46,
  }
}

/** One box for several calls. */
export function stackBox(
  key: string,
  title: string,
  subtitle: string,
  members: readonly LevelNode[],
  measure: Measure,
): Box {
  const families = new Set(members.map((node) => familyOf(node.class_name, node.children)))
  const [family = 'group'] = families
  return {
    key,
    kind: 'node',
    title,
    subtitle,
    badges: [],
    family: families.size === 1 ? family : 'group',
    node: null,
    stack: members,
    port: null,
    width: widthOf(title, subtitle, true, measure, MOST_OF_STACK),
    height: 46,
  }
}

function widthOf(title: string, subtitle: string, opens: boolean, measure: Measure, most = MOST): number {
  const text = Math.max(
    measure(title, TITLE.size, TITLE.weight),
    measure(subtitle, SUBTITLE.size, SUBTITLE.weight),
  )
  return even(Math.min(most, Math.max(LEAST, text + 2 * SIDE + (opens ? CHEVRON : 0))))
}

function placeholder(kind: 'input' | 'output', port: Port, index: number, of: number, measure: Measure): Box {
  const word = kind === 'input' ? 'Input' : 'Output'
  if (of === 1) return { ...pill(word, '', measure), key: keyOf([kind, index]), kind, port }
  // Several are told apart by their names as well: `Input 1 attention_mask`.
  const name = format.shorten(format.visible(port.name), 22)
  return { ...pill(`${word} ${index}`, name, measure), key: keyOf([kind, index]), kind, port }
}

function outside(measure: Measure): Box {
  return { ...pill('Outside', '', measure), key: keyOf(['outside', 0]), kind: 'input', port: null }
}

function pill(title: string, subtitle: string, measure: Measure): Omit<Box, 'key' | 'kind' | 'port'> {
  const name = subtitle === '' ? 0 : measure(subtitle, SUBTITLE.size, SUBTITLE.weight) + 6
  const width = even(measure(title, TITLE.size, 500) + name + 2 * SIDE + 4)
  return { title, subtitle, badges: [], family: 'other', node: null, stack: null, width, height: 30 }
}

/** What sets this call apart, in few words; the meaning is for the tooltip. */
export function badgesOf(node: LevelNode, steps: number): Badge[] {
  const badges: Badge[] = []
  const add = (text: string, meaning: string, warning = false): void =>
    void badges.push({ text: format.shorten(format.visible(text), 22), meaning, warning })
  if (node.calls > 1) {
    add(
      `#${node.call + 1}`,
      `call ${node.call + 1} of ${node.calls} of this module here; the calls share its parameters`,
    )
  }
  const owners = [...new Set(node.parameters.flatMap(({ shared }) => (shared === '' ? [] : [shared])))]
  if (owners.length > 0) add('shared', `shares parameters with ${owners.map(format.visible).join(', ')}`)
  for (const flag of node.flags) add(flag, FLAGS[flag] ?? flag, flag === 'unregistered')
  for (const note of node.notes) add(note, note)
  if (node.ran < steps)
    add(`ran ${node.ran} of ${steps}`, `it ran in ${node.ran} of ${format.plural(steps, 'logged step')}`)
  return badges
}

const FLAGS: Readonly<Record<string, string>> = {
  unregistered: 'not a registered submodule: the optimizer and state_dict can’t see it',
  excluded: 'excluded by the watch options: nothing is recorded',
  scripted: 'a TorchScript module: its inside can’t be observed',
}

/** The shape on an edge: what a placeholder holds, else the only output of the source or input of the target. */
function flowing(from: Box, to: Box): string {
  const port = from.port ?? to.port ?? only(from.node?.outputs) ?? only(to.node?.inputs)
  return port === undefined ? '' : format.shape(port.shape)
}

function only<T>(items: readonly T[] | undefined): T | undefined {
  return items?.length === 1 ? items[0] : undefined
}

/** Even sizes keep centres on whole pixels, and lines sharp. */
function even(size: number): number {
  return Math.ceil(size / 2) * 2
}
