/** Colours of the tab, once: style sheets read them as custom properties (`--text`), canvases directly.
 *  Text has 4.5:1 or more on every surface it stands on, lines and controls that mean something 3:1. */
import type { Theme } from './heatmap/colours.ts'

export interface Colours {
  /** Behind heat maps and the graph. */
  readonly paper: string
  /** Bars, panels, menus. */
  readonly surface: string
  /** Behind panels. */
  readonly sunken: string
  readonly text: string
  readonly muted: string
  /** Ornament only. */
  readonly border: string
  /** Edge of a control. */
  readonly control: string
  readonly edge: string
  readonly accent: string
  readonly accentText: string
  readonly accentTint: string
  readonly danger: string
  readonly dangerTint: string
  readonly gradient: string
  readonly value: string
  readonly container: string
  readonly plate: string
  readonly shadow: string
  readonly dots: string
}

export const COLOURS: Readonly<Record<Theme, Colours>> = {
  light: {
    paper: '#ffffff',
    surface: '#ffffff',
    sunken: '#f3f5f9',
    text: '#161b22',
    muted: '#4d5866',
    border: '#d8dde5',
    control: '#828d9b',
    edge: '#7f8a99',
    accent: '#1558c0',
    accentText: '#ffffff',
    accentTint: '#e4eefc',
    danger: '#b3261e',
    dangerTint: '#fdeceb',
    gradient: '#96390a',
    value: '#1a56b4',
    container: '#f4f1fd',
    plate: 'rgb(255 255 255 / 0.82)',
    shadow: '0 1px 3px rgb(22 27 34 / 0.12)',
    dots: '#e3e7ee',
  },
  dark: {
    paper: '#15191e',
    surface: '#1c2128',
    sunken: '#101317',
    text: '#e6e9ee',
    muted: '#a7b1be',
    border: '#333b46',
    control: '#76818f',
    edge: '#7c8795',
    accent: '#7fb2ff',
    accentText: '#0d1420',
    accentTint: '#1d2c45',
    danger: '#ff8f86',
    dangerTint: '#3a1d1d',
    gradient: '#ffae85',
    value: '#8fbcff',
    container: '#231f36',
    plate: 'rgb(21 25 30 / 0.8)',
    shadow: '0 1px 3px rgb(0 0 0 / 0.5)',
    dots: '#232930',
  },
}

/** Colours for what is drawn on a canvas, which the system can't replace by itself where the user forces colours. */
export function canvasColours(theme: Theme): Colours {
  forced ??= matchMedia('(forced-colors: active)')
  return forced.matches ? { ...COLOURS[theme], ...FORCED } : COLOURS[theme]
}

/** Asked for once: canvases ask with every frame. */
let forced: MediaQueryList | undefined

const FORCED: Partial<Colours> = {
  surface: 'Canvas',
  container: 'Canvas',
  plate: 'Canvas',
  muted: 'CanvasText',
  control: 'CanvasText',
  edge: 'CanvasText',
  accent: 'LinkText',
}

/** Sets the custom properties of `theme` on `element`, its colour scheme and its `data-theme`. */
export function applyTheme(element: HTMLElement, theme: Theme): void {
  element.dataset.theme = theme
  element.style.colorScheme = theme
  for (const [name, colour] of Object.entries(COLOURS[theme])) {
    element.style.setProperty(`--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`, colour)
  }
}

export const FONT = '13px system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
