/** Where the graph lies in its pane, and its drawing: size, pan, zoom, focus. */
import { effect, type ReadonlySignal, type Signal, useComputed, useSignal } from '@preact/signals'
import { useEffect, useLayoutEffect, useMemo, useRef } from 'preact/hooks'
import { drawGraph, type Look } from '../graph/draw.ts'
import { boxesInView, type Frame, framesInView, type Picture, type PlacedBox } from '../graph/picture.ts'
import {
  centreOn,
  fitAll,
  fitFirst,
  pan,
  reveal,
  type Size,
  type Spot,
  TEXT_SCALE,
  toWorld,
  type View,
  zoomAt,
} from '../graph/viewport.ts'
import { listenPanZoom } from './pointer.ts'

export interface GraphView {
  /** It changes with every frame of a move: read it in effects, not while rendering the whole graph. */
  readonly view: Signal<View | null>
  /** Whether there is a view yet. */
  readonly ready: ReadonlySignal<boolean>
  readonly size: Signal<Size>
  readonly shown: Signal<readonly PlacedBox[]>
  /** Those of which the upper left corner is in view. */
  readonly frames: Signal<readonly Frame[]>
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
  /** In the next picture the box `key`, or the one that node `index` is folded into, is to stand where `box` stands
   *  now, and to have the focus. */
  follow(box: PlacedBox, key: string, index?: number): void
}

/** The view of each level that was open, so that going back finds it as it was left. */
const views = new Map<string, View>()

/** Size, pan and zoom of the pane; `key` names the level. */
export function useGraph(key: string, picture: Picture): GraphView {
  const pane = useRef<HTMLDivElement>(null)
  const canvas = useRef<HTMLCanvasElement>(null)
  const world = useRef<HTMLDivElement>(null)
  const size = useSignal<Size>({ width: 0, height: 0 })
  const view = useSignal<View | null>(null)
  const shown = useSignal<readonly PlacedBox[]>([])
  const current = useSignal('')
  const ready = useComputed(() => view.value !== null)
  const frames = useSignal<readonly Frame[]>([])
  const followed = useRef<{
    readonly key: string
    readonly index: number | undefined
    readonly at: Spot
  } | null>(null)
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
        const far = now.scale < TEXT_SCALE
        keep(shown, far ? [] : boxesInView(picture, now, size.value))
        keep(frames, far ? [] : framesInView(picture, now, size.value))
      }),
    [key, picture],
  )

  const graph = useMemo((): GraphView => {
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
      frames,
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
      follow(box, key, index) {
        const now = view.peek()
        if (now !== null) followed.current = { key, index, at: topOf(box, now) }
      },
    }
  }, [])

  useLayoutEffect(() => {
    const [wanted, now] = [followed.current, view.peek()]
    followed.current = null
    if (wanted === null || now === null) return
    const { key, index } = wanted
    const box =
      picture.box(key) ?? picture.boxes.find(({ stack }) => stack?.some((node) => node.index === index))
    if (box === undefined) return
    const at = topOf(box, now)
    view.value = { ...now, x: now.x + wanted.at.x - at.x, y: now.y + wanted.at.y - at.y }
    graph.focus(box)
  }, [picture])
  return graph
}

/** Sets a list only if it has changed, so that nothing is drawn again for the same. */
function keep<T>(kept: Signal<readonly T[]>, next: readonly T[]): void {
  const before = kept.peek()
  if (next.length !== before.length || next.some((item, position) => item !== before[position]))
    kept.value = next
}

/** The middle of the upper edge, in pane space. */
function topOf({ x, y, height }: PlacedBox, view: View): Spot {
  return { x: view.x + x * view.scale, y: view.y + (y - height / 2) * view.scale }
}

/** Draws at most once a frame, whenever the view, the pane or the look changes. */
export function useDrawing(graph: GraphView, picture: Picture, look: Look): void {
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
