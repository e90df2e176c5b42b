/** How this user likes to see things: kept in this browser, where it lets us. */
import { effect, type Signal, signal } from '@preact/signals'
import type { AxisKind } from '../heatmap/axis.ts'
import type { Intensity, Normal } from '../heatmap/grid.ts'
import type { TimeAxis } from '../heatmap/time.ts'

export interface Preferences {
  /** Share of the width that the graph takes, 0..1. */
  readonly graphShare: number
  readonly axis: AxisKind
  readonly intensity: Intensity
  readonly normal: Normal
  readonly timeAxis: TimeAxis
  /** All panels' series of the same kind on one value axis. */
  readonly lockAxis: boolean
  /** Lines of the mean and of one standard deviation around it. */
  readonly lines: boolean
  readonly gradients: boolean
  readonly dataEdges: boolean
  readonly shapes: boolean
}

export const USUAL: Preferences = {
  graphShare: 0.38,
  axis: 'linear',
  intensity: 'root',
  normal: 'all',
  timeAxis: 'step',
  lockAxis: false,
  lines: false,
  gradients: true,
  dataEdges: true,
  shapes: false,
}

const KEY = 'torchexplorer.preferences'

type Shelf = Pick<Storage, 'getItem' | 'setItem'>

/** A signal that is read from and written to `shelf`; third-party frames may have none. */
export function storedPreferences(shelf: () => Shelf = () => localStorage): Signal<Preferences> {
  const preferences = signal(read(shelf))
  effect(() => {
    const text = JSON.stringify(preferences.value)
    try {
      shelf().setItem(KEY, text)
    } catch {
      // Blocked or full: the choice lasts as long as the page.
    }
  })
  return preferences
}

/** Unknown keys and values of another type are left out: an older or newer tab may have written them. */
function read(shelf: () => Shelf): Preferences {
  let stored: Record<string, unknown> = {}
  try {
    const found: unknown = JSON.parse(shelf().getItem(KEY) ?? '{}')
    if (typeof found === 'object' && found !== null) stored = found as Record<string, unknown>
  } catch {
    // Blocked, or not JSON: the usual ones.
  }
  const known = Object.entries(USUAL).filter(([key, usual]) =>
    valid(key as keyof Preferences, stored[key], usual),
  )
  return { ...USUAL, ...Object.fromEntries(known.map(([key]) => [key, stored[key]])) }
}

const CHOICES: Partial<Record<keyof Preferences, readonly string[]>> = {
  axis: ['linear', 'symlog'] satisfies AxisKind[],
  intensity: ['root', 'linear', 'log'] satisfies Intensity[],
  normal: ['all', 'step'] satisfies Normal[],
  timeAxis: ['step', 'time', 'wall'] satisfies TimeAxis[],
}

function valid(key: keyof Preferences, value: unknown, usual: unknown): boolean {
  if (typeof value !== typeof usual) return false
  if (typeof value === 'number') return value > 0 && value < 1
  return CHOICES[key]?.includes(String(value)) ?? true
}
