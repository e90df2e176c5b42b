/** The right side: columns of panels. More columns as the window widens. */
import { useSignal } from '@preact/signals'
import type { JSX } from 'preact'
import { useLayoutEffect, useRef } from 'preact/hooks'
import { panelKey } from '../state/panels.ts'
import { useStore } from './context.ts'
import { dragged } from './drag.ts'
import { PanelView } from './panel.tsx'

const LEAST_COLUMN = 372
const GAP = 12

export function Board(): JSX.Element {
  const store = useStore()
  const root = useRef<HTMLDivElement>(null)
  const width = useSignal(0)
  useLayoutEffect(() => {
    const element = root.current as HTMLDivElement
    const observer = new ResizeObserver(() => {
      if (element.clientWidth > 0) width.value = element.clientWidth
    })
    observer.observe(element)
    return () => observer.disconnect()
  }, [])

  const panels = store.panels.list.value
  const columns = Math.max(1, Math.floor((width.value - GAP) / (LEAST_COLUMN + GAP)))
  const columnWidth = Math.floor((width.value - GAP * (columns + 1)) / columns)
  const target = dragged.value?.target ?? null
  return (
    <section class="board" aria-label="Panels" ref={root} data-dragging={dragged.value !== null}>
      {panels.length === 0 && <EmptyBoard />}
      <div class="columns">
        {Array.from({ length: width.value > 0 ? columns : 0 }, (_, column) => {
          const own = panels.filter((panel) => panel.column % columns === column)
          const line = target?.column === column ? target.position : null
          return (
            <div key={column} class="column" data-column={column} style={{ width: `${columnWidth}px` }}>
              {own.map((panel, position) => (
                <div key={panelKey(panel)} data-panel>
                  {line === position && <div class="drop-line" />}
                  <PanelView
                    panel={panel}
                    width={columnWidth}
                    columns={columns}
                    above={position > 0}
                    below={position < own.length - 1}
                  />
                </div>
              ))}
              {line !== null && line >= own.length && <div class="drop-line" />}
            </div>
          )
        })}
      </div>
    </section>
  )
}

function EmptyBoard(): JSX.Element {
  return (
    <div class="empty-board">
      <h2>No panels yet</h2>
      <p>
        Click a module with an arrow (›) to look inside it. Drag any module here, or point at it and press its{' '}
        <b>+</b>. With the keyboard: move to it with the arrow keys and press <kbd>P</kbd>.
      </p>
      <p class="muted">
        A panel shows how the inputs, outputs, parameters and gradients of a module change over time.
      </p>
    </div>
  )
}
