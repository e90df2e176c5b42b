/** The whole graph in a corner, with a frame around what the pane shows; press or drag to go there.
 *  It is for the pointer only: keys reach every node anyway. */
import { effect, type Signal } from '@preact/signals'
import type { JSX, TargetedPointerEvent } from 'preact'
import { useLayoutEffect, useRef } from 'preact/hooks'
import { drawMinimap, type Look, minimapFrame, minimapView } from '../graph/draw.ts'
import type { Picture } from '../graph/picture.ts'
import { centreOn, type Size, toWorld, type View } from '../graph/viewport.ts'

const MAP: Size = { width: 116, height: 148 }
/** In a narrower pane it would lie over the nodes. */
const LEAST_PANE = 400

export interface MinimapProps {
  readonly picture: Picture
  readonly view: Signal<View | null>
  readonly pane: Signal<Size>
  readonly look: Look
}

export function Minimap({ picture, view, pane, look }: MinimapProps): JSX.Element {
  const map = useRef<HTMLDivElement>(null)
  const canvas = useRef<HTMLCanvasElement>(null)
  const frame = useRef<HTMLSpanElement>(null)
  useLayoutEffect(() => {
    const context = canvas.current?.getContext('2d')
    if (context) drawMinimap(context, picture, MAP, devicePixelRatio, look)
  }, [picture, look.theme, look.fill])
  // Only the frame moves with the view.
  useLayoutEffect(
    () =>
      effect(() => {
        const [now, size] = [view.value, pane.value]
        if (map.current === null || frame.current === null || now === null) return
        // Where everything is in view it would only be in the way.
        const whole =
          now.x > -8 &&
          now.y > -8 &&
          now.x + picture.width * now.scale < size.width + 8 &&
          now.y + picture.height * now.scale < size.height + 8
        map.current.hidden = whole || size.width < LEAST_PANE
        const { x, y, width, height } = minimapFrame(picture, now, size, MAP)
        Object.assign(frame.current.style, {
          transform: `translate(${x}px, ${y}px)`,
          width: `${width}px`,
          height: `${height}px`,
        })
      }),
    [picture],
  )
  const go = (event: TargetedPointerEvent<HTMLDivElement>): void => {
    const now = view.peek()
    if (now === null || event.buttons === 0) return
    const { left, top } = event.currentTarget.getBoundingClientRect()
    const spot = { x: event.clientX - left, y: event.clientY - top }
    view.value = centreOn(now, toWorld(minimapView(picture, MAP), spot), pane.peek())
  }
  return (
    <div
      ref={map}
      class="minimap"
      onPointerDown={(event) => {
        event.currentTarget.setPointerCapture(event.pointerId)
        go(event)
      }}
      onPointerMove={go}
    >
      <canvas
        ref={canvas}
        width={MAP.width * devicePixelRatio}
        height={MAP.height * devicePixelRatio}
        style={{ width: `${MAP.width}px`, height: `${MAP.height}px` }}
      />
      <span ref={frame} />
    </div>
  )
}
