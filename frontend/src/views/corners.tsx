/** Buttons that fold what is unfolded, in the corners of the frames around it. */
import type { JSX } from 'preact'
import type { Frame } from '../graph/picture.ts'
import { Icon } from './icons.tsx'

export interface FoldButtonsProps {
  readonly frames: readonly Frame[]
  readonly close: (frame: Frame) => void
}

const SIZE = 24
/** Those of nested frames stand one below the other. */
const STEP = 28

export function FoldButtons({ frames, close }: FoldButtonsProps): JSX.Element {
  return (
    <>
      {frames.map((frame) => {
        const { fold, left, top, depth } = frame
        const label = `Fold ${fold.title}`
        return (
          <button
            key={fold.id}
            type="button"
            class="round-button"
            style={{ left: `${left - SIZE / 2}px`, top: `${top + depth * STEP - SIZE / 2}px` }}
            tabIndex={-1}
            aria-label={label}
            title={`${label} (G)`}
            onClick={() => close(frame)}
          >
            <Icon name="fold" />
          </button>
        )
      })}
    </>
  )
}
