/** What the user chose <-> the key/value pairs in the address. Pure; unknown parts are ignored here and
 *  unknown runs, models and nodes are noticed by the store once it knows the real ones. */
import type { Place } from '../api/api.ts'
import { HEALTH, ROOT_ID } from '../schema.ts'

/** A panel shows one invocation of a model, in a column (counted from 0, taken modulo those there are). With an empty
 *  model, of that which is open. */
export interface PanelChoice {
  readonly model: string
  readonly node: string
  /** Further invocations, laid over `node`. */
  readonly also: readonly string[]
  readonly column: number
}

export interface Choice {
  /** With an empty model, any of the run; with an empty run, any that has the model. */
  readonly place: Place | null
  /** Further runs whose histories the panels show below those of `place.run`. */
  readonly compare: readonly string[]
  /** Id of the invocation whose level is shown. */
  readonly level: string
  readonly panels: readonly PanelChoice[]
  /** Logged step of the scrubber; null follows the latest. */
  readonly step: number | null
  /** Statistic that colours the nodes; null colours by kind of module. */
  readonly stat: Stat | null
}

export type Stat = (typeof HEALTH)[number]

export const FIRST_CHOICE: Choice = {
  place: null,
  compare: [],
  level: ROOT_ID,
  panels: [],
  step: null,
  stat: null,
}

/** Only what differs from the first choice is written. */
export function toLink({ place, compare, level, panels, step, stat }: Choice): Map<string, string> {
  const link = new Map<string, string>()
  if (place !== null) {
    if (place.run !== '') link.set('run', place.run)
    if (place.model !== '') link.set('model', place.model)
  }
  if (compare.length > 0) link.set('compare', compare.map(part).join(','))
  if (level !== ROOT_ID) link.set('node', level)
  if (panels.length > 0) link.set('panels', panels.map((panel) => panelText(panel, place)).join(','))
  if (step !== null) link.set('step', String(step))
  if (stat !== null) link.set('color', stat)
  return link
}

export function fromLink(link: ReadonlyMap<string, string>): Choice {
  const [run, model] = [link.get('run') ?? '', link.get('model') ?? '']
  const place = run === '' && model === '' ? null : { run, model }
  const step = Number(link.get('step') ?? 'none')
  return {
    place,
    compare: list(link.get('compare')).map(unpart),
    level: link.get('node') || ROOT_ID,
    panels: list(link.get('panels')).flatMap((text) => panelOf(text, place) ?? []),
    step: Number.isInteger(step) && step >= 0 ? step : null,
    stat: HEALTH.find((stat) => stat === link.get('color')) ?? null,
  }
}

/** `column:node`, `+node` for each further one, and `:model` behind them where that is not the link's. */
function panelText({ model, node, also, column }: PanelChoice, place: Place | null): string {
  const parts = [String(column), [node, ...also].map(part).join('+')]
  if (model !== (place?.model ?? '')) parts.push(part(model))
  return parts.join(':')
}

function panelOf(text: string, place: Place | null): PanelChoice | null {
  const [column, nodes = '', model] = text.split(':')
  const [node, ...also] = nodes.split('+').map(unpart)
  if (!node) return null
  const number = Number(column)
  const of = model === undefined ? (place?.model ?? '') : unpart(model)
  return { model: of, node, also, column: Number.isInteger(number) && number >= 0 ? number : 0 }
}

function list(text: string | undefined): string[] {
  return (text ?? '').split(',').filter((item) => item !== '')
}

/** Keeps `/` readable and hides the characters that separate. */
function part(text: string): string {
  return text.replace(/[%:,+]/g, encodeURIComponent)
}

function unpart(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

/** The pairs in a hash like `#torchexplorer&p.torchexplorer.run=a`, and whether it is that of `plugin`.
 *  An empty hash counts as ours: TensorBoard shows its first tab without one. */
export function parseHash(hash: string, plugin: string): { ours: boolean; link: Map<string, string> } {
  const [tab = '', ...pairs] = hash.replace(/^#/, '').split('&')
  const link = new Map<string, string>()
  const prefix = `p.${plugin}.`
  for (const pair of pairs) {
    const [key = '', ...value] = pair.split('=')
    if (key.startsWith(prefix)) link.set(key.slice(prefix.length), unpart(value.join('=')))
  }
  return { ours: tab === '' || tab === plugin, link }
}

/** The hash for `link`; pairs of other plugins that are in `before` stay. */
export function writeHash(before: string, plugin: string, link: ReadonlyMap<string, string>): string {
  const prefix = `p.${plugin}.`
  const others = before
    .replace(/^#/, '')
    .split('&')
    .slice(1)
    .filter((pair) => pair !== '' && !pair.startsWith(prefix))
  const ours = [...link].map(([key, value]) => `${prefix}${key}=${hashPart(value)}`)
  return `#${[plugin, ...others, ...ours].join('&')}`
}

/** Escapes what ends a value or a hash in some reader, and leaves paths legible. */
function hashPart(value: string): string {
  return encodeURIComponent(value).replace(/%(2F|3A|2C|40)/gi, (escaped) => decodeURIComponent(escaped))
}
