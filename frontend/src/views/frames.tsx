/** Frames around what could be folded, each with a button that does it. */
import type { JSX } from 'preact'
import type { Frame } from '../graph/picture.ts'
import { Icon } from './icons.tsx'

export interface FramesProps {
  readonly frames: readonly Frame[]
  readonly far: boolean
  readonly close: (frame: Frame) => void
}

/** Buttons of nested frames stand one below the other. */
const BUTTON_STEP = 28

export function Frames({ frames, far, close }: FramesProps): JSX.Element | null {
  if (far) return null
  return (
    <>
      {frames.map((frame) => {
        const { fold, left, top, width, height, depth, whole } = frame
        const label = `Fold ${fold.title}`
        return (
          <div
            key={fold.id}
            class={whole ? 'frame whole' : 'frame'}
            style={{ left: `${left}px`, top: `${top}px`, width: `${width}px`, height: `${height}px` }}
          >
            <button
              type="button"
              class="round-button"
              style={{ top: `${depth * BUTTON_STEP - 12}px` }}
              tabIndex={-1}
              aria-label={label}
              title={`${label} (G)`}
              onClick={() => close(frame)}
            >
              <Icon name="fold" />
            </button>
          </div>
        )
      })}
    </>
  )
}
