/** Files for the user: pictures and tables of what is on screen. */
import type { History } from '../api/decode.ts'
import { historiesCsv } from '../export/csv.ts'
import { graphSvg } from '../export/svg.ts'
import { measureText } from '../graph/measure.ts'
import { pictureOf } from '../graph/picture.ts'
import { sceneOf } from '../graph/scene.ts'
import { foldScene } from '../graph/stacks.ts'
import { fillOf, tintOf } from '../graph/tint.ts'
import { titleOf } from '../state/panels.ts'
import { latest } from '../state/resource.ts'
import type { Store } from '../state/store.ts'
import { foldChoices } from './folds.ts'

/** Larger canvases come out empty in some browsers. */
const MOST_PIXELS = 16_384

export function saveCsv(histories: readonly { run: string; history: History }[], title: string): void {
  save(new Blob([historiesCsv(histories)], { type: 'text/csv' }), `${title}.csv`)
}

/** The level that is shown, whole. */
export async function saveGraph(store: Store, kind: 'svg' | 'png'): Promise<void> {
  const level = latest(store.level.state.value)
  if (level === undefined) return
  const theme = store.host.theme.value
  const scene = foldScene(sceneOf(level, measureText), level, foldChoices(level), new Set(), measureText)
  const picture = pictureOf(scene, store.preferences.value.dataEdges)
  const health = latest(store.health.state.value)
  const fill = fillOf(health === undefined ? null : tintOf(health), theme)
  const svg = new Blob([graphSvg(picture, theme, fill)], { type: 'image/svg+xml' })
  const title = `${level.model} ${titleOf(level.node.id)}`
  if (kind === 'svg') save(svg, `${title}.svg`)
  else await saveSvgAsPng(svg, picture.width, picture.height, title)
}

/** Twice the size, unless that is too large. */
async function saveSvgAsPng(svg: Blob, width: number, height: number, title: string): Promise<void> {
  const image = new Image()
  const address = URL.createObjectURL(svg)
  try {
    image.src = address
    await image.decode()
    const scale = Math.min(2, MOST_PIXELS / Math.max(width, height))
    const canvas = canvasOf(width * scale, height * scale)
    canvas.context.drawImage(image, 0, 0, width * scale, height * scale)
    await savePng(canvas.element, title)
  } finally {
    URL.revokeObjectURL(address)
  }
}

/** The heat maps of a panel with their words, as they stand on screen, twice as large. */
export async function savePanelPicture(panel: HTMLElement | null, title: string): Promise<void> {
  if (panel === null) return
  const box = panel.getBoundingClientRect()
  const scale = Math.min(2, MOST_PIXELS / Math.max(box.width, box.height))
  const { element, context } = canvasOf(box.width * scale, box.height * scale)
  context.scale(scale, scale)
  context.fillStyle = getComputedStyle(panel).backgroundColor
  context.fillRect(0, 0, box.width, box.height)
  for (const canvas of panel.querySelectorAll('canvas')) {
    const place = canvas.getBoundingClientRect()
    context.drawImage(canvas, place.left - box.left, place.top - box.top, place.width, place.height)
    context.strokeStyle = '#828d9b'
    context.strokeRect(place.left - box.left, place.top - box.top, place.width, place.height)
  }
  for (const text of textsOf(panel)) {
    const range = document.createRange()
    range.selectNodeContents(text)
    const place = range.getBoundingClientRect()
    const style = getComputedStyle(text.parentElement as Element)
    if (place.width < 2 || style.visibility === 'hidden') continue
    context.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`
    context.fillStyle = style.color
    context.textBaseline = 'middle'
    const written = style.textTransform === 'uppercase' ? text.data.toUpperCase() : text.data
    context.fillText(written, place.left - box.left, place.top - box.top + place.height / 2, place.width + 1)
  }
  await savePng(element, title)
}

/** The pieces of text in a panel, apart from menus and hidden ones. */
function textsOf(panel: HTMLElement): Text[] {
  const walker = document.createTreeWalker(panel, NodeFilter.SHOW_TEXT, (node) =>
    node.parentElement?.closest('.sheet, .hidden') === null
      ? NodeFilter.FILTER_ACCEPT
      : NodeFilter.FILTER_REJECT,
  )
  const texts: Text[] = []
  while (walker.nextNode()) texts.push(walker.currentNode as Text)
  return texts
}

function canvasOf(
  width: number,
  height: number,
): { element: HTMLCanvasElement; context: CanvasRenderingContext2D } {
  const element = document.createElement('canvas')
  element.width = Math.max(1, Math.round(width))
  element.height = Math.max(1, Math.round(height))
  const context = element.getContext('2d')
  if (context === null) throw new Error('this browser has no 2D canvas')
  return { element, context }
}

async function savePng(canvas: HTMLCanvasElement, title: string): Promise<void> {
  const blob = await new Promise<Blob | null>((resolve) => canvas.toBlob(resolve, 'image/png'))
  if (blob === null) throw new Error('the picture is too large for this browser')
  save(blob, `${title}.png`)
}

function save(content: Blob, name: string): void {
  const address = URL.createObjectURL(content)
  const link = document.createElement('a')
  link.href = address
  link.download = name.replace(/[\\/:*?"<>|]/g, '_')
  link.click()
  setTimeout(() => URL.revokeObjectURL(address), 10_000)
}
