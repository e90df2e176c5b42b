/** One box of the graph: a real button over the canvas of wires, with a small one that adds a panel. */
import type { JSX } from 'preact'
import { stripeOf } from '../graph/family.ts'
import type { PlacedBox } from '../graph/picture.ts'
import { boxValue, type Tint } from '../graph/tint.ts'
import { panelMark, type Theme } from '../heatmap/colours.ts'
import type { Panel } from '../state/panels.ts'
import { Icon } from './icons.tsx'

export interface NodeActions {
  readonly activate: (box: PlacedBox) => void
  readonly addPanel: (box: PlacedBox) => void
  readonly enter: (box: PlacedBox) => void
  readonly leave: () => void
  /** `visible`: by keyboard, so that its tooltip shows. */
  readonly focus: (box: PlacedBox, visible: boolean) => void
  readonly blur: () => void
  readonly press: (box: PlacedBox, event: PointerEvent) => void
}

export interface NodeViewProps {
  readonly box: PlacedBox
  readonly theme: Theme
  readonly tint: Tint | null
  readonly panels: readonly Panel[]
  readonly current: boolean
  readonly selected: boolean
  readonly described: boolean
  readonly actions: NodeActions
}

export function NodeView({
  box,
  theme,
  tint,
  panels,
  current,
  selected,
  described,
  actions,
}: NodeViewProps): JSX.Element {
  const { node, stack } = box
  const opens = stack !== null || (node !== null && node.children > 0)
  const value = tint === null ? undefined : boxValue(box, tint)
  const excluded = node?.flags.includes('excluded') ?? false
  const style = {
    left: `${box.x - box.width / 2}px`,
    top: `${box.y - box.height / 2}px`,
    width: `${box.width}px`,
    height: `${box.height}px`,
    '--stripe': stripeOf(box.family, theme),
    ...(value === undefined || tint === null ? {} : { '--fill': tint.fill(value, theme) }),
  }
  const names = [
    'node',
    `node-${box.kind}`,
    opens && 'opens',
    selected && 'selected',
    excluded && 'excluded',
    stack && 'stack',
  ]
  return (
    <div class={names.filter(Boolean).join(' ')} style={style} data-key={box.key}>
      <button
        type="button"
        class="node-main"
        tabIndex={current ? 0 : -1}
        aria-describedby={described ? 'details' : undefined}
        onClick={() => actions.activate(box)}
        onPointerDown={(event) => actions.press(box, event)}
        onPointerEnter={() => actions.enter(box)}
        onPointerLeave={() => actions.leave()}
        onFocus={(event) => actions.focus(box, event.currentTarget.matches(':focus-visible'))}
        onBlur={() => actions.blur()}
      >
        <span class="node-title">{box.title}</span>
        {box.kind !== 'node' && box.subtitle !== '' && <span class="node-name"> {box.subtitle}</span>}
        {box.kind === 'node' && (
          <span class="node-class">
            {tint === null ? box.subtitle : value === undefined ? 'unknown' : tint.text(value)}
          </span>
        )}
        {box.badges.length > 0 && (
          <span class="badges">
            {box.badges.map(({ text, warning }) => (
              <span key={text} class={warning ? 'badge warning' : 'badge'}>
                {text}
              </span>
            ))}
          </span>
        )}
        {opens && <span class="hidden">{stack === null ? ', opens' : ', unfolds'}</span>}
        {opens && <Icon name={stack === null ? 'right' : 'down'} />}
      </button>
      {(node !== null || box.port !== null) && (
        <button
          type="button"
          class="round-button node-add"
          tabIndex={-1}
          aria-label={`Add panel for ${node === null ? 'the module of ' : ''}${box.title}`}
          title="Add panel (P)"
          onClick={() => actions.addPanel(box)}
        >
          <Icon name="add" />
        </button>
      )}
      <Marks box={box} panels={panels} />
    </div>
  )
}

/** Letters of the panels that show this node, dots for those of nodes inside it. */
function Marks({ box, panels }: { box: PlacedBox; panels: readonly Panel[] }): JSX.Element | null {
  const nodes = box.node !== null ? [box.node] : (box.stack ?? [])
  const shown = ({ node, also }: Panel): string[] => [node, ...also]
  const own = panels.filter((panel) => shown(panel).some((id) => id === box.node?.id))
  const inside = panels.filter(
    (panel) =>
      !own.includes(panel) &&
      nodes.some(({ id }) => shown(panel).some((other) => `${other}/`.startsWith(`${id}/`))),
  )
  if (own.length + inside.length === 0) return null
  return (
    <span class="marks">
      {own.map(({ slot }) => (
        <span
          key={slot}
          class="mark"
          style={{ background: panelMark(slot).colour }}
          title={`Panel ${panelMark(slot).letter}`}
        >
          {panelMark(slot).letter}
        </span>
      ))}
      {inside.slice(0, 5).map(({ slot }) => (
        <span
          key={slot}
          class="mark inside"
          style={{ background: panelMark(slot).colour }}
          title={`Panel ${panelMark(slot).letter} shows a module inside`}
        />
      ))}
    </span>
  )
}
