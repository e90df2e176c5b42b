/** Small pictures on buttons; the buttons carry the words. */
import type { JSX } from 'preact'

const PATHS = {
  add: 'M8 3v10M3 8h10',
  close: 'M4 4l8 8M12 4l-8 8',
  left: 'M10 3L5 8l5 5',
  right: 'M6 3l5 5-5 5',
  down: 'M3 6l5 5 5-5',
  full: 'M9.5 3H13v3.5M13 3L9 7M6.5 13H3V9.5M3 13l4-4',
  more: 'M3.5 8h.01M8 8h.01M12.5 8h.01',
  minus: 'M3 8h10',
  fit: 'M3 6V3h3M10 3h3v3M13 10v3h-3M6 13H3v-3',
  fold: 'M4 2.5l4 4 4-4M4 13.5l4-4 4 4',
  unfold: 'M4 5.5l4-3 4 3M4 10.5l4 3 4-3M3 8h10',
  search: 'M7 2.5a4.5 4.5 0 1 1 0 9a4.5 4.5 0 0 1 0-9zM10.5 10.5L14 14',
  link: 'M6.5 9.5l3-3M7 4.5l1.5-1.5a3 3 0 0 1 4.5 4.5L11.5 9M9 11.5L7.5 13A3 3 0 0 1 3 8.5L4.5 7',
  help: 'M5.8 6a2.2 2.2 0 1 1 3.3 2c-.8.5-1.1.9-1.1 1.7M8 12.5h.01',
  stack: 'M2.5 6L8 3l5.5 3L8 9zM2.5 10L8 13l5.5-3',
  play: 'M5 3l8 5-8 5z',
  pause: 'M5 3v10M11 3v10',
  settings: 'M2 4.5h7M12 4.5h2M2 11.5h2M7 11.5h7M10.5 2.5v4M5.5 9.5v4',
  download: 'M8 2.5v8M4.5 7.5L8 11l3.5-3.5M3 13.5h10',
} as const

export type IconName = keyof typeof PATHS

export function Icon({ name }: { name: IconName }): JSX.Element {
  return (
    <svg
      class={`icon icon-${name}`}
      viewBox="0 0 16 16"
      width="16"
      height="16"
      aria-hidden="true"
      focusable="false"
    >
      <path d={PATHS[name]} />
    </svg>
  )
}
