/** The tooltip of a node: shapes of the first pass, arguments, `extra_repr`. It can be pointed at, and Escape
 *  closes it; that of the selected node stays. */
import type { JSX } from 'preact'
import { useLayoutEffect, useRef } from 'preact/hooks'
import * as format from '../format.ts'
import { detailsOf } from '../graph/details.ts'
import type { PlacedBox } from '../graph/picture.ts'

export interface DetailsProps {
  readonly box: PlacedBox
  /** The node on screen, in pixels of the window. */
  readonly anchor: DOMRect
  readonly statLine: string
  readonly pinned: boolean
  readonly onEnter: () => void
  readonly onLeave: () => void
  readonly onAdd: () => void
  readonly onOpen: () => void
}

const GAP = 10

export function Details({
  box,
  anchor,
  statLine,
  pinned,
  onEnter,
  onLeave,
  onAdd,
  onOpen,
}: DetailsProps): JSX.Element {
  const card = useRef<HTMLDivElement>(null)
  useLayoutEffect(() => {
    if (card.current !== null) place(card.current, anchor)
  })
  const { node } = box
  return (
    // biome-ignore lint/a11y/useAriaPropsSupportedByRole: the label goes with the role "group"
    <div
      id="details"
      role={pinned ? 'group' : 'tooltip'}
      aria-label={pinned ? `Details of ${box.title}` : undefined}
      class={pinned ? 'details pinned' : 'details'}
      ref={card}
      onPointerEnter={onEnter}
      onPointerLeave={onLeave}
    >
      <p class="details-head">
        <strong>{box.title}</strong>
        {node !== null && <span class="muted"> {format.shorten(format.visible(node.class_name), 60)}</span>}
      </p>
      {node !== null && node.path !== node.name && (
        <p class="details-path">{format.shorten(format.visible(node.path), 90)}</p>
      )}
      {statLine !== '' && <p class="details-stat">{statLine}</p>}
      {box.badges.map(({ text, meaning, warning }) => (
        <p key={text} class={warning ? 'details-badge warning' : 'details-badge'}>
          <span class="badge">{text}</span> {format.shorten(format.visible(meaning), 160)}
        </p>
      ))}
      {detailsOf(box).map(({ title, rows }) => (
        <div key={title} class="details-group">
          {title !== '' && <p class="details-title">{title}</p>}
          <dl>
            {rows.map(({ name, value }, position) => (
              <div key={position}>
                <dt>{name === '' ? '–' : format.shorten(name, 40)}</dt>
                <dd>{value}</dd>
              </div>
            ))}
          </dl>
        </div>
      ))}
      {pinned && node !== null && (
        <p class="details-actions">
          <button type="button" class="button primary" onClick={onAdd}>
            Add panel <kbd>P</kbd>
          </button>
          {node.children > 0 && (
            <button type="button" class="button" onClick={onOpen}>
              Open
            </button>
          )}
        </p>
      )}
    </div>
  )
}

/** To the right of the node if there is room, else to the left, else below it; never off screen. */
function place(card: HTMLElement, anchor: DOMRect): void {
  const { offsetWidth: width, offsetHeight: height } = card
  const fitsRight = anchor.right + GAP + width <= innerWidth
  const fitsLeft = anchor.left - GAP - width >= 0
  const left = fitsRight
    ? anchor.right + GAP
    : fitsLeft
      ? anchor.left - GAP - width
      : (innerWidth - width) / 2
  const top = fitsRight || fitsLeft ? anchor.top - 4 : anchor.bottom + GAP
  card.style.left = `${Math.max(4, left)}px`
  card.style.top = `${Math.max(4, Math.min(innerHeight - height - 4, top))}px`
}
