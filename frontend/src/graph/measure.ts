/** Widths of words in the tab's font, measured by the browser and remembered. */
import { FONT } from '../theme.ts'
import type { Measure } from './scene.ts'

let context: CanvasRenderingContext2D | null = null
const known = new Map<string, number>()

export const measureText: Measure = (text, size, weight) => {
  const font = `${weight} ${FONT.replace('13px', `${size}px`)}`
  const key = `${font}\n${text}`
  let width = known.get(key)
  if (width === undefined) {
    context ??= document.createElement('canvas').getContext('2d')
    if (context === null) throw new Error('this browser has no 2D canvas')
    context.font = font
    width = context.measureText(text).width
    known.set(key, width)
  }
  return width
}
