/** A picture of the graph as an SVG document, made from the layout and not from the page. Pure. */
import { RADIUS } from '../graph/draw.ts'
import { stripeOf } from '../graph/family.ts'
import type { Picture, PlacedBox, PlacedWire } from '../graph/picture.ts'
import { BADGE, SUBTITLE, TITLE } from '../graph/scene.ts'
import type { Theme } from '../heatmap/colours.ts'
import { roundedPath } from '../layout/index.ts'
import { COLOURS, FONT } from '../theme.ts'

/** `fill` colours a box by a statistic, or is undefined for the usual colour. */
export function graphSvg(
  picture: Picture,
  theme: Theme,
  fill: (box: PlacedBox) => string | undefined,
): string {
  const colours = COLOURS[theme]
  const { width, height } = picture
  const family = xmlText(FONT.replace('13px ', ''))
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="${family}">`,
    `<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8z" fill="${colours.edge}"/></marker></defs>`,
    `<rect width="${width}" height="${height}" fill="${colours.paper}"/>`,
    ...picture.wires.map((wire) => wireSvg(wire, colours.edge)),
    ...picture.boxes.map((box) => boxSvg(box, theme, fill(box))),
    '</svg>',
  ].join('\n')
}

function wireSvg({ points, kind }: PlacedWire, colour: string): string {
  const dash = kind === 'data' ? ' stroke-dasharray="5 4"' : ''
  return `<path d="${roundedPath(points, RADIUS)}" fill="none" stroke="${colour}" stroke-width="1.5"${dash} marker-end="url(#arrow)"/>`
}

function boxSvg(box: PlacedBox, theme: Theme, fill: string | undefined): string {
  const colours = COLOURS[theme]
  const [left, top] = [box.x - box.width / 2, box.y - box.height / 2]
  const background =
    fill ?? (box.node !== null && box.node.children > 0 ? colours.container : colours.surface)
  const radius = box.kind === 'node' ? 6 : box.height / 2
  const frame = `<rect x="${left}" y="${top}" width="${box.width}" height="${box.height}" rx="${radius}" fill="${background}" stroke="${colours.control}"/>`
  if (box.kind !== 'node') {
    const title = `${box.title} ${box.subtitle}`.trim()
    return frame + word(title, box.x, box.y + 4.5, TITLE.size, 500, colours.text, 'middle')
  }
  const badges = box.badges.map(({ text }) => text).join(' · ')
  return [
    frame,
    `<rect x="${left + 1}" y="${top + 5}" width="4" height="${box.height - 10}" rx="2" fill="${stripeOf(box.family, theme)}"/>`,
    word(box.title, left + 14, top + 20, TITLE.size, TITLE.weight, colours.text),
    word(box.subtitle, left + 14, top + 36, SUBTITLE.size, SUBTITLE.weight, colours.muted),
    badges === '' ? '' : word(badges, left + 14, top + 56, BADGE.size, BADGE.weight, colours.muted),
  ].join('')
}

function word(
  text: string,
  x: number,
  y: number,
  size: number,
  weight: number,
  colour: string,
  anchor = 'start',
): string {
  return `<text x="${x}" y="${y}" font-size="${size}" font-weight="${weight}" fill="${colour}" text-anchor="${anchor}">${xmlText(text)}</text>`
}

/** Text for SVG content and attributes; characters that XML does not allow become the replacement mark. */
export function xmlText(text: string): string {
  return (
    text
      // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is replaced
      .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, '\ufffd')
      .replace(/[&<>"']/g, (mark) => `&#${mark.charCodeAt(0)};`)
  )
}
