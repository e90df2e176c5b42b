/** A plot onto a canvas: the histogram pixels, thin lines over them, ticks where values are not finite. */
import { COLOURS } from '../theme.ts'
import { hasValues } from './axis.ts'
import { colourTable, type Ink, type Theme } from './colours.ts'
import { type Intensity, type Normal, paint } from './grid.ts'
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
    drawPixels(context, plot.drawn, look)
    drawZero(context, plot.drawn, look.theme, ratio)
    drawExtremes(context, plot, plot.drawn, look.theme, ratio)
    if (look.lines) drawMoments(context, plot, plot.drawn, look.theme, ratio)
  }
  drawRestarts(context, plot, look.theme, ratio)
  drawBroken(context, plot, look.theme, ratio)
}

function drawPixels(context: CanvasRenderingContext2D, { grid }: Drawn, look: PlotLook): void {
  const pixels = paint(grid, colourTable(look.ink, look.theme), look.intensity, look.normal)
  const image = new ImageData(new Uint8ClampedArray(pixels.buffer as ArrayBuffer), grid.width, grid.rows)
  const small = scratch(grid.width, grid.rows)
  small.putImageData(image, 0, 0)
  context.imageSmoothingEnabled = false
  context.drawImage(
    small.canvas,
    0,
    0,
    grid.width,
    grid.rows,
    0,
    0,
    context.canvas.width,
    context.canvas.height,
  )
}

let shared: OffscreenCanvasRenderingContext2D | null = null

/** One small canvas for all plots; it is emptied, since assigning a size does that. */
function scratch(width: number, height: number): OffscreenCanvasRenderingContext2D {
  shared ??= new OffscreenCanvas(1, 1).getContext('2d')
  if (shared === null) throw new Error('this browser has no 2D canvas')
  shared.canvas.width = width
  shared.canvas.height = height
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

/** The exact smallest and largest value of each step, as small dashes; those beyond the axis lie at its end. */
function drawExtremes(
  context: CanvasRenderingContext2D,
  plot: Plot,
  drawn: Drawn,
  theme: Theme,
  ratio: number,
): void {
  const { rows } = plot.track
  const thick = Math.max(1, Math.round(ratio))
  context.fillStyle = COLOURS[theme].muted
  context.globalAlpha = 0.5
  for (let x = 0; x < plot.columns.width; x++) {
    const amount = plot.columns.amount[x] as number
    let [min, max] = [Infinity, -Infinity]
    for (let part = 0; part < amount; part++) {
      const step = plot.chosen[(plot.columns.first[x] as number) + part]
      if (step === undefined || !hasValues(plot.track, step)) continue
      min = Math.min(min, rows.min[step] as number)
      max = Math.max(max, rows.max[step] as number)
    }
    if (min > max) continue
    const left = Math.floor((x / plot.columns.width) * context.canvas.width)
    const right = Math.ceil(((x + 1) / plot.columns.width) * context.canvas.width)
    for (const value of [min, max]) {
      const share = Math.min(1, Math.max(0, drawn.axis.place(value)))
      const y = Math.round((1 - share) * (context.canvas.height - thick))
      context.fillRect(left, y, right - left, thick)
    }
  }
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
