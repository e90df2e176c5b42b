/** A scene with several calls drawn as one box where that says more: `blocks, Block ×48`. Pure. */
import * as format from '../format.ts'
import { type Fold, fold } from '../layout/index.ts'
import type { Level, LevelNode } from '../schema.ts'
import { type Box, type Measure, type Scene, stackBox } from './scene.ts'

/** Which folds of a level the user has opened (true) and closed (false), by their ids. */
export type FoldChoices = ReadonlyMap<string, boolean>

/** Folds that hold a box of `shown` are open whatever was chosen. */
export function foldScene(
  scene: Scene,
  level: Level,
  chosen: FoldChoices,
  shown: ReadonlySet<string>,
  measure: Measure,
): Scene {
  const called = new Set(level.nodes.map(({ name }) => name))
  const siblings = scene.boxes.map((box) => {
    const containers =
      box.node === null ? [] : containersOf(box.node, level).filter((path) => !called.has(path))
    return { id: box.key, signature: signatureOf(box), containers, apart: box.node === null }
  })
  let choices = chosen
  let folded = fold(siblings, scene.wires, choices)
  // Opening a group may show another fold inside it that has to open as well.
  for (let wanted = toOpen(folded.closed, shown); wanted.length > 0; wanted = toOpen(folded.closed, shown)) {
    choices = new Map([...choices, ...wanted.map(({ id }) => [id, true] as const)])
    folded = fold(siblings, scene.wires, choices)
  }
  if (folded.closed.length + folded.open.length === 0) return scene

  const boxes = new Map(scene.boxes.map((box) => [box.key, box]))
  const nodesOf = ({ members }: Fold): LevelNode[] => members.flatMap((key) => boxes.get(key)?.node ?? [])
  const inside = new Map<string, string>()
  const stacks = folded.closed.map((closed): readonly [string, Box] => {
    for (const key of closed.members) inside.set(key, closed.id)
    const nodes = nodesOf(closed)
    return [closed.id, stackBox(closed.id, titleOf(closed, nodes), subtitleOf(closed, nodes), nodes, measure)]
  })
  const all = new Map([...boxes, ...stacks])
  const boxFor = (key: string): string => inside.get(key) ?? key
  return {
    boxes: folded.nodes.flatMap((id) => all.get(id) ?? []),
    wires: folded.edges,
    open: folded.open.map((open) => ({
      id: open.id,
      title: titleOf(open, nodesOf(open)),
      boxes: [...new Set(open.members.map(boxFor))],
    })),
  }
}

function toOpen(closed: readonly Fold[], shown: ReadonlySet<string>): Fold[] {
  return closed.filter(({ members }) => members.some((key) => shown.has(key)))
}

/** What lies between the level's module and this one, outermost first: `down`, `down.0` for `down.0.conv`. Modules
 *  from elsewhere are in none. */
function containersOf({ name, path }: LevelNode, level: Level): string[] {
  if (name === path && level.node.path !== '') return []
  return [...name.matchAll(/[.[]/g)].map(({ index }) => name.slice(0, index)).filter((above) => above !== '')
}

/** Equal for calls of the same class with the same options, size and number of calls inside. */
function signatureOf({ key, node }: Box): string {
  if (node === null || node.class_name === '') return key
  const { class_name, children, size, extra, parameters } = node
  const shapes = parameters.map(({ name, shape }) => `${name} ${shape}`)
  return [class_name, children, size, ...extra, ...shapes].join('\n')
}

function titleOf({ path }: Fold, nodes: readonly LevelNode[]): string {
  const [first, last] = [nodes[0]?.name ?? '', nodes.at(-1)?.name ?? '']
  return format.shorten(
    path !== '' ? format.visible(path) : `${format.visible(first)} … ${format.visible(last)}`,
    34,
  )
}

/** The class of its parts if they have one, those in turn of a pattern, else that of the container; and how many parts
 *  there are. */
function subtitleOf({ kind, path, parts, alike }: Fold, nodes: readonly LevelNode[]): string {
  if (kind === 'slice') return format.plural(nodes.length, 'call')
  if (kind === 'pattern') {
    const classes = nodes.slice(0, nodes.length / parts).map((node) => format.visible(node.class_name))
    // The number first: what is too long for the box is cut at its end.
    return `${parts} × (${format.shorten(classes.join(', '), 44)})`
  }
  const [first] = nodes
  const entry = nodes.find(({ name }) => name.slice(0, Math.max(name.lastIndexOf('.'), 0)) === path)
  const plain = first?.name[path.length] === '[' ? 'list' : 'group'
  const className = alike && nodes.length === parts ? first?.class_name : entry?.container || plain
  return `${format.shorten(format.visible(className ?? ''), 28)} ×${parts}`
}
