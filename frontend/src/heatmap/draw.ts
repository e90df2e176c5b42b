/** A plot onto a canvas: the histogram's pixels with the extremes of each step, lines over them, ticks where values are
 *  not finite. */
import { COLOURS } from '../theme.ts'
import { hasValues } from './axis.ts'
import { colourTable, type Ink, type Theme } from './colours.ts'
import { entriesOf, type Intensity, type Normal } from './grid.ts'
import { dash, paint } from './pixels.ts'
import type { Drawn, Plot } from './plot.ts'

export interface PlotLook {
  readonly theme: Theme
  readonly ink: Ink
  readonly intensity: Intensity
  readonly normal: Normal
  /** Lines of the mean and of one standard deviation around it. */
  readonly lines: boolean
}

/** Draws into the whole of `context`'s canvas; `ratio` is device pixels per CSS pixel. */
export function drawPlot(context: CanvasRenderingContext2D, plot: Plot, look: PlotLook, ratio: number): void {
  const { width, height } = context.canvas
  context.setTransform(1, 0, 0, 1, 0, 0)
  context.clearRect(0, 0, width, height)
  if (plot.drawn !== null) {
    drawPixels(context, plot.drawn, look, ratio)
    drawZero(context, plot.drawn, look.theme, ratio)
    if (look.lines) drawMoments(context, plot, plot.drawn, look.theme, ratio)
  }
  drawRestarts(context, plot, look.theme, ratio)
  drawBroken(context, plot, look.theme, ratio)
}

function drawPixels(context: CanvasRenderingContext2D, drawn: Drawn, look: PlotLook, ratio: number): void {
  const { grid, lowest, highest } = drawn
  const image = imageOf(grid.width, context.canvas.height)
  const pixels = new Uint32Array(image.data.buffer)
  const entries = entriesOf(grid, look.intensity, look.normal)
  paint(pixels, grid, entries, colourTable(look.ink, look.theme))
  const { muted } = COLOURS[look.theme]
  const thick = Math.max(1, Math.round(ratio))
  for (const shares of [lowest, highest]) dash(pixels, shares, thick, muted)
  context.putImageData(image, 0, 0)
}

let shared: ImageData | null = null

/** One for all heat maps of a size. */
function imageOf(width: number, height: number): ImageData {
  if (shared?.width !== width || shared.height !== height) shared = new ImageData(width, height)
  return shared
}

function drawZero(context: CanvasRenderingContext2D, { zero }: Drawn, theme: Theme, ratio: number): void {
  if (zero === null) return
  const { width, height } = context.canvas
  const y = Math.min(height - ratio / 2, Math.max(ratio / 2, (1 - zero) * height))
  context.strokeStyle = COLOURS[theme].text
  context.globalAlpha = 0.6
  context.lineWidth = ratio
  context.setLineDash([4 * ratio, 3 * ratio])
  context.beginPath()
  context.moveTo(0, y)
  context.lineTo(width, y)
  context.stroke()
  context.setLineDash([])
  context.globalAlpha = 1
}

function drawMoments(
  context: CanvasRenderingContext2D,
  plot: Plot,
  drawn: Drawn,
  theme: Theme,
  ratio: number,
): void {
  const { mean, std } = plot.track.rows
  context.strokeStyle = COLOURS[theme].text
  for (const [factor, thickness] of [
    [-1, 1],
    [1, 1],
    [0, 1.75],
  ] as const) {
    context.lineWidth = thickness * ratio
    context.setLineDash(factor === 0 ? [] : [2 * ratio, 2 * ratio])
    context.beginPath()
    let down = false
    plot.chosen.forEach((step, position) => {
      const value = (mean[step] as number) + factor * (std[step] as number)
      const shown = hasValues(plot.track, step) && Number.isFinite(value)
      const x = (plot.places[position] as number) * context.canvas.width
      const y = (1 - Math.min(1, Math.max(0, drawn.axis.place(value)))) * context.canvas.height
      if (shown && down) context.lineTo(x, y)
      else if (shown) context.moveTo(x, y)
      down = shown
    })
    context.stroke()
  }
  context.setLineDash([])
}

function drawRestarts(context: CanvasRenderingContext2D, plot: Plot, theme: Theme, ratio: number): void {
  const { width, height } = context.canvas
  context.fillStyle = COLOURS[theme].text
  const thick = Math.round(ratio)
  for (const share of plot.restarts)
    for (let y = 0; y < height; y += 4 * ratio)
      context.fillRect(Math.round(share * width - thick / 2), y, thick, 2 * ratio)
}

/** A red tick at the top of every step that holds NaN or Inf. */
function drawBroken(context: CanvasRenderingContext2D, plot: Plot, theme: Theme, ratio: number): void {
  context.fillStyle = COLOURS[theme].danger
  const size = 2 * ratio
  for (const position of plot.broken.at) {
    const x = (plot.places[position] as number) * context.canvas.width
    context.fillRect(Math.min(context.canvas.width - size, Math.max(0, x - size / 2)), 0, size, 6 * ratio)
  }
}
