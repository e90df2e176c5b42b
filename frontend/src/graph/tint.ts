/** A statistic to the fill of a node and the legend of all. Pure. */
import * as format from '../format.ts'
import { colourTable, cssColour, FAINTEST, type Ink, type Theme } from '../heatmap/colours.ts'
import type { Health } from '../schema.ts'
import type { Stat } from '../state/link.ts'
import { COLOURS } from '../theme.ts'
import type { Box } from './scene.ts'

/** What a statistic is called, what it says, and how its values are spread over the colours. */
export interface StatWords {
  readonly stat: Stat
  readonly title: string
  readonly meaning: string
  readonly scale: 'log' | 'share' | 'count'
  readonly ink: Ink
}

export const STATS: readonly StatWords[] = [
  {
    stat: 'gradient',
    title: 'Gradient norm',
    meaning: 'mean norm per sample of the gradient of the outputs',
    scale: 'log',
    ink: 'grad',
  },
  {
    stat: 'output_std',
    title: 'Activation std',
    meaning: 'standard deviation of the outputs',
    scale: 'log',
    ink: 'value',
  },
  {
    stat: 'zeros',
    title: 'Share of zeros',
    meaning: 'zeros among the outputs',
    scale: 'share',
    ink: 'value',
  },
  {
    stat: 'nonfinite',
    title: 'NaN and Inf',
    meaning: 'values of outputs, gradients and parameters that are not finite',
    scale: 'count',
    ink: 'grad',
  },
  {
    stat: 'parameter',
    title: 'Parameter size',
    meaning: 'root mean square of the own parameters',
    scale: 'log',
    ink: 'value',
  },
  {
    stat: 'parameter_gradient',
    title: 'Parameter gradient',
    meaning: 'root mean square of the gradients of the own parameters',
    scale: 'log',
    ink: 'grad',
  },
  {
    stat: 'update',
    title: 'Update ratio',
    meaning: 'length of the last update over that of the parameter',
    scale: 'log',
    ink: 'value',
  },
]

export interface Tint {
  readonly words: StatWords
  readonly step: number
  /** Ends of the colour scale; equal where nothing is known. */
  readonly low: number
  readonly high: number
  /** The value of a node (the worst of it and all below it), undefined where unknown. */
  value(node: number): number | undefined
  /** Fill for a value, readable under the theme's text. */
  fill(value: number, theme: Theme): string
  text(value: number): string
}

/** The value of a box: of its call, or the largest of those folded into it. */
export function boxValue({ node, stack }: Box, tint: Tint): number | undefined {
  const values = (node === null ? (stack ?? []) : [node]).flatMap(({ index }) => tint.value(index) ?? [])
  return values.length === 0 ? undefined : Math.max(...values)
}

/** What a box is filled with, undefined for the usual colour. */
export function fillOf(tint: Tint | null, theme: Theme): (box: Box) => string | undefined {
  return (box) => {
    const value = tint === null ? undefined : boxValue(box, tint)
    return value === undefined ? undefined : tint?.fill(value, theme)
  }
}

/** Text stays readable on entries up to here. */
const STRONGEST: Readonly<Record<Theme, number>> = { light: 130, dark: 78 }
/** On a logarithmic scale zero has no place; it is drawn this much below the highest value. */
const DECADES = 1e-6

export function tintOf(health: Health): Tint {
  const words = STATS.find(({ stat }) => stat === health.stat) ?? (STATS[0] as StatWords)
  const values = new Map(
    health.nodes.flatMap((node, position) => {
      const value = health.worst[position]
      return value === null || value === undefined ? [] : [[node, value] as const]
    }),
  )
  const { low, high } = rangeOf(words, health)
  return {
    words,
    step: health.step,
    low,
    high,
    value: (node) => values.get(node),
    fill: (value, theme) => {
      // None of what is counted is no tint at all: the faintest would look like a few.
      if (words.scale === 'count' && value === 0) return COLOURS[theme].surface
      const entry = FAINTEST + shareOf(words, value, low, high) * (STRONGEST[theme] - FAINTEST)
      return cssColour(colourTable(words.ink, theme)[Math.round(entry)] as number)
    },
    text: (value) => (words.scale === 'share' ? format.percent(value) : format.number(value)),
  }
}

function rangeOf({ scale }: StatWords, health: Health): { low: number; high: number } {
  if (scale === 'share') return { low: 0, high: 1 }
  const [low, high] = [health.low ?? 0, health.high ?? 0]
  if (scale === 'count') return { low: 0, high: Math.max(1, high) }
  return { low: low > 0 ? low : high * DECADES, high }
}

function shareOf({ scale }: StatWords, value: number, low: number, high: number): number {
  if (high <= low) return 0.5
  const place =
    scale === 'log'
      ? Math.log(Math.max(value, low) / low) / Math.log(high / low)
      : (value - low) / (high - low)
  return Math.min(1, Math.max(0, scale === 'count' ? Math.sqrt(place) : place))
}
