/** The left pane: the graph of one level. Wires lie on a canvas, nodes in view are buttons over it. */
import { type Signal, useSignal } from '@preact/signals'
import type { JSX } from 'preact'
import { useEffect, useLayoutEffect, useMemo, useRef } from 'preact/hooks'
import * as format from '../format.ts'
import type { Look } from '../graph/draw.ts'
import { measureText } from '../graph/measure.ts'
import {
  boxesInView,
  type Frame,
  neighbour,
  type Picture,
  type PlacedBox,
  pictureOf,
} from '../graph/picture.ts'
import { keyOf, sceneOf } from '../graph/scene.ts'
import { foldScene } from '../graph/stacks.ts'
import { boxValue, fillOf, type Tint, tintOf } from '../graph/tint.ts'
import type { Level } from '../schema.ts'
import { titleOf } from '../state/panels.ts'
import { latest } from '../state/resource.ts'
import { useStore } from './context.ts'
import { IconButton } from './controls.tsx'
import { FoldButtons } from './corners.tsx'
import { Details } from './details.tsx'
import { emptiestColumn, followDrag } from './drag.ts'
import { chooseFolds, foldChoices, levelKey } from './folds.ts'
import { Minimap } from './minimap.tsx'
import { type GraphView, useDrawing, useGraph } from './navigation.ts'
import { type NodeActions, NodeView } from './node.tsx'
import { Failure, GraphSkeleton } from './states.tsx'

export function GraphPane(): JSX.Element {
  const store = useStore()
  const loadable = store.level.state.value
  const level = latest(loadable)
  return (
    <section class="graph" aria-label="Module graph">
      {level !== undefined && <Graph level={level} />}
      {level === undefined && loadable.kind !== 'failed' && <GraphSkeleton />}
      {loadable.kind === 'failed' && (
        <Failure
          what="The graph could not be loaded"
          text={loadable.text}
          retry={store.retry}
          floating={level !== undefined}
        />
      )}
    </section>
  )
}

/** Key of the level that was drawn last. */
let lastLevel = ''

function Graph({ level }: { level: Level }): JSX.Element {
  const store = useStore()
  const { dataEdges, shapes } = store.preferences.value
  const theme = store.host.theme.value
  const choices = foldChoices(level)
  const selected = level.nodes.find((node) => node.id === store.selected.value)
  const picture = useMemo(() => {
    const shown = new Set(selected === undefined ? [] : [keyOf(['node', selected.index])])
    return pictureOf(foldScene(sceneOf(level, measureText), level, choices, shown, measureText), dataEdges)
  }, [level, dataEdges, choices, selected?.index])
  const health = latest(store.health.state.value)
  const tint = useMemo(
    () => (health === undefined || store.stat.value === null ? null : tintOf(health)),
    [health, store.stat.value],
  )
  const key = levelKey(level)
  const graph = useGraph(key, picture)

  const hovered = useSignal<string | null>(null)
  const focused = useSignal<string | null>(null)
  const tip = useTip(hovered)
  const selectedBox = picture.boxes.find((box) => box.node !== null && box.node.id === store.selected.value)
  const lit = hovered.value ?? focused.value ?? selectedBox?.key ?? null
  const fill = useMemo(() => fillOf(tint, theme), [tint, theme])
  const look: Look = {
    theme,
    lit,
    shapes,
    fill,
  }
  useDrawing(graph, picture, look)

  const model = level.model
  // The tensors of an input or output are those of the module whose level this is.
  const panelOf = ({ node, port }: PlacedBox): string | undefined =>
    node?.id ?? (port === null ? undefined : level.node.id)
  const addPanel = (id: string | undefined): void => {
    if (id !== undefined) store.panels.add(model, id, emptiestColumn())
  }
  const open = (box: PlacedBox): void => {
    if (box.node !== null) store.openLevel(box.node.id)
  }
  const openParent = (): void => {
    const [parent] = level.ancestors.at(-1) ?? []
    if (parent !== undefined) store.openLevel(parent, level.node.id)
  }
  const unfold = (box: PlacedBox): void => {
    const first = box.stack?.[0]?.index ?? 0
    graph.follow(box, keyOf(['node', first]), first)
    chooseFolds(level, [box.key], true)
  }
  const close = ({ fold }: Frame): void => {
    const box = picture.box(fold.boxes[0] ?? '')
    if (box !== undefined) graph.follow(box, fold.id)
    if (selected !== undefined) store.selected.value = null
    chooseFolds(level, [fold.id], false)
  }
  const unfoldAll = (): void => {
    const folded = picture.boxes.flatMap(({ key, stack }) => (stack === null ? [] : [key]))
    chooseFolds(level, folded, true)
  }
  const foldAgain = (): void => {
    store.selected.value = null
    chooseFolds(level, [...choices.keys()], undefined)
  }
  const actions: NodeActions = {
    activate(box) {
      if (box.stack !== null) unfold(box)
      else if (box.node !== null && box.node.children > 0) open(box)
      else if (box.node !== null)
        store.selected.value = store.selected.value === box.node.id ? null : box.node.id
    },
    addPanel: (box) => addPanel(panelOf(box)),
    enter: (box) => tip.enter(box.key),
    leave: tip.leave,
    focus(box, visible) {
      graph.current.value = box.key
      if (!visible) return
      tip.close()
      focused.value = box.key
    },
    blur() {
      focused.value = null
    },
    press(box, event) {
      const id = panelOf(box)
      if (id !== undefined) followDrag(event, store, model, id, box.title)
    },
  }

  const currentKey = picture.box(graph.current.value)?.key ?? selectedBox?.key ?? picture.boxes[0]?.key
  const shown = withKeys(picture, graph.shown.value, [focused.value, graph.ready.value ? currentKey : null])
  const detailed = picture.box(hovered.value ?? focused.value ?? selectedBox?.key ?? '')
  // What was chosen by a search or from a panel may lie outside of what is shown.
  useLayoutEffect(() => {
    if (selectedBox !== undefined) graph.show(selectedBox)
  }, [selectedBox?.key, key, graph.ready.value])
  // The button that led to another level is gone, and the focus with it.
  useEffect(() => {
    if (!graph.ready.value) return
    const moved = lastLevel !== '' && lastLevel !== key
    lastLevel = key
    if (moved && document.hasFocus() && document.activeElement === document.body)
      graph.pane.current
        ?.querySelector<HTMLElement>('.node-main[tabindex="0"]')
        ?.focus({ preventScroll: true })
  }, [key, graph.ready.value])
  const panels = store.panels.list.value.filter((panel) => panel.model === model)
  const className = format.shorten(format.visible(level.node.class_name), 36)

  const keys = (event: KeyboardEvent): void => {
    const box = picture.box(graph.current.value) ?? picture.box(currentKey ?? '')
    const arrows = { ArrowUp: 'up', ArrowDown: 'down', ArrowLeft: 'left', ArrowRight: 'right' } as const
    const arrow = arrows[event.key as keyof typeof arrows]
    if (event.altKey && event.key === 'ArrowUp') openParent()
    else if (event.ctrlKey || event.metaKey || event.altKey) return
    else if (arrow !== undefined && box !== undefined) graph.focus(neighbour(picture, box, arrow))
    else if (event.key === 'Home') graph.focus(picture.boxes[0])
    else if (event.key === 'End') graph.focus(picture.boxes.at(-1))
    else if (event.key.toLowerCase() === 'p')
      addPanel(event.shiftKey || box === undefined ? level.node.id : panelOf(box))
    else if (event.key === 'Backspace') openParent()
    else if (event.key.toLowerCase() === 'g' && box !== undefined) {
      const frame = picture.frames.find(({ fold }) => fold.boxes.includes(box.key))
      if (box.stack !== null) unfold(box)
      else if (frame !== undefined) close(frame)
    } else if (event.key.toLowerCase() === 'f' && box !== undefined) graph.centre(box)
    else if (event.key === '+' || event.key === '=') graph.zoom(1.25)
    else if (event.key === '-') graph.zoom(0.8)
    else if (event.key === '0') graph.fit()
    else if (
      event.key === 'Escape' &&
      (hovered.value !== null || store.selected.value !== null || focused.value !== null)
    ) {
      tip.close()
      store.selected.value = null
      focused.value = null
    } else return
    event.preventDefault()
    event.stopPropagation()
  }

  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: keys of the buttons inside
    <div class="pane" ref={graph.pane} onKeyDown={keys}>
      <canvas ref={graph.canvas} class="wires" />
      {/* biome-ignore lint/a11y/useSemanticElements: a fieldset is for forms */}
      <div
        class="world"
        ref={graph.world}
        role="group"
        aria-label={`Modules called by ${titleOf(level.node.id)}`}
      >
        <FoldButtons frames={graph.frames.value} close={close} />
        {shown.map((box) => (
          <NodeView
            key={box.key}
            box={box}
            theme={theme}
            tint={tint}
            panels={panels}
            current={box.key === currentKey}
            selected={box === selectedBox}
            described={box === detailed}
            actions={actions}
          />
        ))}
      </div>
      {level.nodes.length === 0 && <p class="graph-note">{className} calls no other module.</p>}
      <div class="graph-tools">
        <IconButton icon="add" label="Zoom in" keys="+" onClick={() => graph.zoom(1.25)} />
        <IconButton icon="minus" label="Zoom out" keys="−" onClick={() => graph.zoom(0.8)} />
        <IconButton icon="fit" label="Fit the whole graph" keys="0" onClick={graph.fit} />
        {picture.boxes.some(({ stack }) => stack !== null) && (
          <IconButton icon="unfold" label="Unfold all groups" onClick={unfoldAll} />
        )}
        {choices.size > 0 && <IconButton icon="fold" label="Fold groups as at first" onClick={foldAgain} />}
      </div>
      <Minimap picture={picture} view={graph.view} pane={graph.size} look={look} />
      <Tip
        box={detailed}
        graph={graph}
        tint={tint}
        pinned={detailed !== undefined && detailed === selectedBox}
        tip={tip}
        addPanel={(box) => addPanel(panelOf(box))}
        open={open}
      />
    </div>
  )
}

/** Boxes in view, and those that must stay in the document: the focused one and the tab stop. */
function withKeys(
  picture: Picture,
  shown: readonly PlacedBox[],
  keys: readonly (string | null | undefined)[],
): PlacedBox[] {
  const all = new Map(shown.map((box) => [box.key, box]))
  for (const key of keys) {
    const box = key ? picture.box(key) : undefined
    if (box !== undefined) all.set(box.key, box)
  }
  return [...all.values()]
}

interface TipState {
  readonly enter: (key: string) => void
  readonly leave: () => void
  readonly stay: () => void
  readonly close: () => void
}

const [SHOW_MS, HIDE_MS] = [90, 160]

/** The pointer may travel from a node to its tooltip without losing it. */
function useTip(hovered: Signal<string | null>): TipState {
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined)
  const later = (key: string | null, wait: number): void => {
    clearTimeout(timer.current)
    timer.current = setTimeout(() => {
      hovered.value = key
    }, wait)
  }
  useEffect(() => () => clearTimeout(timer.current), [])
  return {
    enter: (key) => later(key, hovered.peek() === null ? SHOW_MS : 0),
    leave: () => later(null, HIDE_MS),
    stay: () => clearTimeout(timer.current),
    close: () => later(null, 0),
  }
}

interface TipProps {
  readonly box: PlacedBox | undefined
  readonly graph: GraphView
  readonly tint: Tint | null
  readonly pinned: boolean
  readonly tip: TipState
  readonly addPanel: (box: PlacedBox) => void
  readonly open: (box: PlacedBox) => void
}

function Tip({ box, graph, tint, pinned, tip, addPanel, open }: TipProps): JSX.Element | null {
  const view = graph.view.value
  const pane = graph.pane.current
  if (box === undefined || view === null || pane === null) return null
  if (!boxesInView({ boxes: [box] }, view, graph.size.value).length) return null
  const { left, top } = pane.getBoundingClientRect()
  const anchor = new DOMRect(
    left + view.x + (box.x - box.width / 2) * view.scale,
    top + view.y + (box.y - box.height / 2) * view.scale,
    box.width * view.scale,
    box.height * view.scale,
  )
  const value = tint === null ? undefined : boxValue(box, tint)
  const statLine = tint === null || value === undefined ? '' : `${tint.words.title}: ${tint.text(value)}`
  return (
    <Details
      key={box.key}
      box={box}
      anchor={anchor}
      statLine={statLine}
      pinned={pinned}
      onEnter={tip.stay}
      onLeave={tip.leave}
      onAdd={() => addPanel(box)}
      onOpen={() => open(box)}
    />
  )
}
