/** The rows of a node's tooltip. Pure. */
import * as format from '../format.ts'
import type { LevelNode, Port } from '../schema.ts'
import type { Box } from './scene.ts'

/** A row with an empty `name` is drawn with a dash. */
export interface DetailRow {
  readonly name: string
  readonly value: string
}

export interface DetailGroup {
  readonly title: string
  readonly rows: readonly DetailRow[]
}

/** Shapes of the first pass, arguments, then `extra_repr` and size. Groups without rows are left out. */
export function detailsOf({ node, stack, port, title }: Box): DetailGroup[] {
  if (stack !== null) return [group('', stackRows(stack))]
  if (node === null) {
    if (port === null)
      return [group('', [{ name: '', value: 'a tensor from an attribute, a closure or a global' }])]
    return [group('', [{ name: port.name || title, value: portText(port) }])]
  }
  return [
    group('Inputs', portRows(node.inputs, 'input')),
    group('Outputs', portRows(node.outputs, 'output')),
    group('Arguments', node.arguments.map(pairRow)),
    group('Module', [...node.extra.map(pairRow), ...sizeRows(node.size)]),
  ].filter(({ rows }) => rows.length > 0)
}

function stackRows(stack: readonly LevelNode[]): DetailRow[] {
  const sizes = new Map(stack.map((node) => [node.path, node.size]))
  const size = [...sizes.values()].reduce((sum, one) => sum + one, 0)
  const [first, last] = [stack[0], stack.at(-1)] as [LevelNode, LevelNode]
  return [
    { name: 'calls', value: `${format.whole(stack.length)}, folded together` },
    { name: 'first', value: format.visible(first.path) },
    { name: 'last', value: format.visible(last.path) },
    ...(first.container === '' ? [] : [{ name: 'held in', value: format.visible(first.container) }]),
    ...sizeRows(size),
  ]
}

function group(title: string, rows: readonly DetailRow[]): DetailGroup {
  return { title, rows }
}

function portRows(ports: readonly Port[], word: string): DetailRow[] {
  return ports.map((port, index) => ({
    name: portName(port.name, word, ports.length > 1 ? index : null),
    value: portText(port),
  }))
}

/** The only tensor that a module returns has no name of its own: `output`, or `output 1` beside others. */
export function portName(name: string, word: string, index: number | null): string {
  if (name !== '') return format.visible(name)
  return index === null ? word : `${word} ${index}`
}

/** A dim that varied between passes is `?`; the usual dtype goes without saying. */
function portText(port: Port): string {
  const dtype = port.dtype === 'float32' ? '' : ` ${port.dtype}`
  return `${format.shape(port.shape)}${dtype}${port.requires_grad ? '' : ' (no gradient)'}`
}

function pairRow([name = '', value = '']: readonly string[]): DetailRow {
  return { name: format.visible(name), value: format.shorten(format.visible(value), 200) }
}

function sizeRows(size: number): DetailRow[] {
  return size === 0 ? [] : [{ name: 'parameters', value: format.count(size) }]
}
