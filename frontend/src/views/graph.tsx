/** The left pane: the graph of one level. Wires lie on a canvas, nodes in view are buttons over it. */
import { effect, type ReadonlySignal, type Signal, useComputed, useSignal } from '@preact/signals'
import type { JSX } from 'preact'
import { useEffect, useLayoutEffect, useMemo, useRef } from 'preact/hooks'
import { drawGraph, type Look } from '../graph/draw.ts'
import { measureText } from '../graph/measure.ts'
import { boxesInView, neighbour, type Picture, type PlacedBox, pictureOf } from '../graph/picture.ts'
import { keyOf, sceneOf } from '../graph/scene.ts'
import { foldScene } from '../graph/stacks.ts'
import { boxValue, fillOf, type Tint, tintOf } from '../graph/tint.ts'
import {
  centreOn,
  fitAll,
  fitFirst,
  pan,
  reveal,
  type Size,
  TEXT_SCALE,
  toWorld,
  type View,
  zoomAt,
} from '../graph/viewport.ts'
import type { Level } from '../schema.ts'
import { latest } from '../state/resource.ts'
import { useStore } from './context.ts'
import { IconButton } from './controls.tsx'
import { Details } from './details.tsx'
import { emptiestColumn, followDrag } from './drag.ts'
import { Minimap } from './minimap.tsx'
import { type NodeActions, NodeView } from './node.tsx'
import { listenPanZoom } from './pointer.ts'
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

/** The view of each level that was open, so that going back finds it as it was left. */
const views = new Map<string, View>()

function Graph({ level }: { level: Level }): JSX.Element {
  const store = useStore()
  const { dataEdges, shapes } = store.preferences.value
  const theme = store.host.theme.value
  const unfolded = useSignal<ReadonlySet<string>>(new Set())
  const selected = level.nodes.find((node) => node.id === store.selected.value)
  const picture = useMemo(() => {
    const shown = new Set(selected === undefined ? [] : [keyOf(['node', selected.index])])
    return pictureOf(foldScene(sceneOf(level, measureText), unfolded.value, shown, measureText), dataEdges)
  }, [level, dataEdges, unfolded.value, selected?.index])
  const health = latest(store.health.state.value)
  const tint = useMemo(
    () => (health === undefined || store.stat.value === null ? null : tintOf(health)),
    [health, store.stat.value],
  )
  const key = `${level.model}\n${level.node.id}`
  const graph = useGraph(key, picture)

  const hovered = useSignal<string | null>(null)
  const focused = useSignal<string | null>(null)
  const tip = useTip(hovered)
  const selectedBox = picture.boxes.find((box) => box.node !== null && box.node.id === store.selected.value)
  const lit = hovered.value ?? focused.value ?? selectedBox?.key ?? null
  const look: Look = {
    theme,
    lit,
    shapes,
    fill: fillOf(tint, theme),
  }
  useDrawing(graph, picture, look)

  const model = level.model
  const addPanel = (box: PlacedBox): void => {
    if (box.node !== null) store.panels.add(model, box.node.id, emptiestColumn())
  }
  const open = (box: PlacedBox): void => {
    if (box.node !== null) store.openLevel(box.node.id)
  }
  const openParent = (): void => {
    const [parent] = level.ancestors.at(-1) ?? []
    if (parent !== undefined) store.openLevel(parent, level.node.id)
  }
  const actions: NodeActions = {
    activate(box) {
      if (box.stack !== null) unfolded.value = new Set([...unfolded.value, box.key])
      else if (box.node !== null && box.node.children > 0) open(box)
      else if (box.node !== null)
        store.selected.value = store.selected.value === box.node.id ? null : box.node.id
    },
    addPanel,
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
      if (box.node !== null) followDrag(event, store, model, box.node.id, box.title)
    },
  }

  const currentKey = picture.box(graph.current.value)?.key ?? selectedBox?.key ?? picture.boxes[0]?.key
  const shown = withKeys(picture, graph.shown.value, [focused.value, graph.ready.value ? currentKey : null])
  const detailed = picture.box(hovered.value ?? focused.value ?? selectedBox?.key ?? '')
  // What was chosen by a search or from a panel may lie outside of what is shown.
  useLayoutEffect(() => {
    if (selectedBox !== undefined) graph.show(selectedBox)
  }, [selectedBox?.key, key, graph.ready.value])
  const panels = store.panels.list.value.filter((panel) => panel.model === model)

  const keys = (event: KeyboardEvent): void => {
    const box = picture.box(graph.current.value) ?? picture.box(currentKey ?? '')
    const arrows = { ArrowUp: 'up', ArrowDown: 'down', ArrowLeft: 'left', ArrowRight: 'right' } as const
    const arrow = arrows[event.key as keyof typeof arrows]
    if (event.altKey && event.key === 'ArrowUp') openParent()
    else if (event.ctrlKey || event.metaKey || event.altKey) return
    else if (arrow !== undefined && box !== undefined) graph.focus(neighbour(picture, box, arrow))
    else if (event.key === 'Home') graph.focus(picture.boxes[0])
    else if (event.key === 'End') graph.focus(picture.boxes.at(-1))
    else if (event.key.toLowerCase() === 'p' && box !== undefined) addPanel(box)
    else if (event.key === 'Backspace') openParent()
    else if (event.key.toLowerCase() === 'f' && box !== undefined) graph.centre(box)
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
        aria-label={`Modules called by ${level.node.path || level.node.class_name}`}
      >
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
      {level.nodes.length === 0 && <p class="graph-note">{level.node.class_name} calls no other module.</p>}
      <div class="graph-tools">
        <IconButton icon="add" label="Zoom in" keys="+" onClick={() => graph.zoom(1.25)} />
        <IconButton icon="minus" label="Zoom out" keys="−" onClick={() => graph.zoom(0.8)} />
        <IconButton icon="fit" label="Fit the whole graph" keys="0" onClick={graph.fit} />
        {unfolded.value.size > 0 && (
          <IconButton
            icon="fold"
            label="Fold repeated modules again"
            onClick={() => {
              unfolded.value = new Set()
              store.selected.value = null
            }}
          />
        )}
      </div>
      <Minimap picture={picture} view={graph.view} pane={graph.size} look={look} />
      <Tip
        box={detailed}
        graph={graph}
        tint={tint}
        pinned={detailed !== undefined && detailed === selectedBox}
        tip={tip}
        addPanel={addPanel}
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

export interface GraphView {
  /** It changes with every frame of a move: read it in effects, not while rendering the whole graph. */
  readonly view: Signal<View | null>
  /** Whether there is a view yet. */
  readonly ready: ReadonlySignal<boolean>
  readonly size: Signal<Size>
  readonly shown: Signal<readonly PlacedBox[]>
  /** Key of the box that is the tab stop. */
  readonly current: Signal<string>
  readonly pane: { readonly current: HTMLDivElement | null }
  readonly canvas: { readonly current: HTMLCanvasElement | null }
  readonly world: { readonly current: HTMLDivElement | null }
  zoom(factor: number): void
  fit(): void
  centre(box: PlacedBox): void
  /** Moves no further than is needed to see the box. */
  show(box: PlacedBox): void
  focus(box: PlacedBox | undefined): void
}

/** Size, pan and zoom of the pane; `key` names the level. */
function useGraph(key: string, picture: Picture): GraphView {
  const pane = useRef<HTMLDivElement>(null)
  const canvas = useRef<HTMLCanvasElement>(null)
  const world = useRef<HTMLDivElement>(null)
  const size = useSignal<Size>({ width: 0, height: 0 })
  const view = useSignal<View | null>(null)
  const shown = useSignal<readonly PlacedBox[]>([])
  const current = useSignal('')
  const ready = useComputed(() => view.value !== null)
  const newest = useRef(picture)
  newest.current = picture

  useLayoutEffect(() => {
    const element = pane.current as HTMLDivElement
    const observer = new ResizeObserver(() => {
      const { clientWidth: width, clientHeight: height } = element
      // TensorBoard hides our frame by a height of 0; the view must survive that.
      if (width === 0 || height === 0) return
      const before = size.peek()
      size.value = { width, height }
      const now = view.peek()
      if (now !== null && before.width > 0) view.value = { ...now, x: now.x + (width - before.width) / 2 }
    })
    observer.observe(element)
    const stop = listenPanZoom(element, {
      pan(dx, dy) {
        const now = view.peek()
        if (now !== null) view.value = pan(now, dx, dy, newest.current, size.peek())
      },
      zoom(factor, at) {
        const now = view.peek()
        if (now !== null) view.value = zoomAt(now, factor, at)
      },
      tap(at) {
        const now = view.peek()
        if (now === null || now.scale >= TEXT_SCALE) return
        view.value = centreOn({ ...now, scale: 1 }, toWorld(now, at), size.peek())
      },
    })
    return () => {
      observer.disconnect()
      stop()
    }
  }, [])

  const known = size.value.width > 0
  useLayoutEffect(() => {
    if (!known) return
    const first = newest.current.boxes.find((box) => box.kind === 'input') ?? newest.current.boxes[0]
    view.value = views.get(key) ?? fitFirst(newest.current, size.peek(), first?.x ?? 0)
    current.value = ''
  }, [key, known])

  useLayoutEffect(
    () =>
      effect(() => {
        const now = view.value
        if (now === null || world.current === null) return
        views.set(key, now)
        world.current.style.transform = `translate(${now.x}px, ${now.y}px) scale(${now.scale})`
        const next = now.scale < TEXT_SCALE ? [] : boxesInView(picture, now, size.value)
        const before = shown.peek()
        const same = next.length === before.length && next.every((box, position) => box === before[position])
        if (!same) shown.value = next
      }),
    [key, picture],
  )

  return useMemo(() => {
    const change = (next: (now: View) => View): void => {
      const now = view.peek()
      if (now !== null) view.value = next(now)
    }
    const show = (box: PlacedBox): void =>
      change((now) => reveal(now.scale < TEXT_SCALE ? { ...now, scale: 0.85 } : now, box, size.peek()))
    const middle = (): { x: number; y: number } => ({ x: size.peek().width / 2, y: size.peek().height / 2 })
    return {
      view,
      ready,
      size,
      shown,
      current,
      pane,
      canvas,
      world,
      zoom: (factor) => change((now) => zoomAt(now, factor, middle())),
      fit: () => change(() => fitAll(newest.current, size.peek())),
      centre: (box) =>
        change((now) => centreOn({ ...now, scale: Math.max(now.scale, 0.85) }, box, size.peek())),
      show,
      focus(box) {
        if (box === undefined) return
        current.value = box.key
        show(box)
        const selector = `[data-key="${CSS.escape(box.key)}"] .node-main`
        const button = pane.current?.querySelector<HTMLElement>(selector)
        if (button) button.focus({ preventScroll: true })
        // It comes into the document with the next rendering.
        else
          requestAnimationFrame(() =>
            pane.current?.querySelector<HTMLElement>(selector)?.focus({ preventScroll: true }),
          )
      },
    }
  }, [])
}

/** Draws at most once a frame, whenever the view, the pane or the look changes. */
function useDrawing(graph: GraphView, picture: Picture, look: Look): void {
  const now = useRef({ picture, look })
  now.current = { picture, look }
  const frame = useRef(0)
  const draw = useComputed(() => () => {
    const view = graph.view.peek()
    const canvas = graph.canvas.current
    const context = canvas?.getContext('2d')
    if (view === null || !canvas || !context) return
    const { width, height } = graph.size.peek()
    const ratio = devicePixelRatio
    const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)]
    if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high]
    drawGraph(context, now.current.picture, view, { width, height }, ratio, now.current.look)
  }).value
  const ask = (): void => {
    cancelAnimationFrame(frame.current)
    frame.current = requestAnimationFrame(draw)
  }
  useLayoutEffect(
    () =>
      effect(() => {
        graph.view.value
        graph.size.value
        ask()
      }),
    [],
  )
  useLayoutEffect(ask)
  useEffect(() => () => cancelAnimationFrame(frame.current), [])
}
