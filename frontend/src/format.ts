/** Numbers, shapes and names as text. Pure; every function takes values and returns a string. */

const MINUS = '\u2212'
const GROUPED = new Intl.NumberFormat('en-US')
const TIMES = '\u00d7'

/** `value` with three significant digits: `2.45`, `−0.052`, `1.2e−5`. Exponents only outside 1e-3..1e5. */
export function number(value: number, digits = 3): string {
  if (Number.isNaN(value)) return 'NaN'
  if (!Number.isFinite(value)) return value > 0 ? '\u221e' : `${MINUS}\u221e`
  const size = Math.abs(value)
  const plain = size === 0 || (size >= 1e-3 && size < 1e5)
  const text = plain
    ? String(Number(value.toPrecision(digits)))
    : value
        .toExponential(digits - 1)
        .replace(/\.?0+e/, 'e')
        .replace('e+', 'e')
  return text.replaceAll('-', MINUS)
}

/** How many digits tell the ends of a range apart: three, or more where it is narrow and far from zero. */
export function digits(low: number, high: number): number {
  const share = high > low ? Math.max(Math.abs(low), Math.abs(high)) / (high - low) : 1
  return Math.min(9, Math.max(3, Math.ceil(Math.log10(share)) + 2))
}

/** Both ends of a range with words between: `\u22120.5 \u2026 2`. */
export function range(low: number, high: number, between = ' \u2026 '): string {
  return [low, high].map((end) => number(end, digits(low, high))).join(between)
}

/** A count of things, shortened with SI letters from 10,000 on: `9,408`, `36.9k`, `11.2M`. */
export function count(value: number): string {
  if (value < 10_000) return whole(value)
  const power = Math.min(4, Math.floor(Math.log10(value) / 3))
  const scaled = value / 1000 ** power
  const rounded = Number(scaled.toPrecision(3))
  return rounded >= 1000 && power < 4 ? `1${'kMGT'[power]}` : `${rounded}${'kMGT'[power - 1]}`
}

/** A whole number in full, grouped: `9,950`. Used for steps. */
export function whole(value: number): string {
  return GROUPED.format(Math.round(value)).replace('-', MINUS)
}

/** A share 0..1 as per cent; what is not zero never reads as zero, what is not all never as all. */
export function percent(share: number): string {
  if (Number.isNaN(share)) return 'unknown'
  const value = share * 100
  if (value > 0 && value < 0.1) return '< 0.1 %'
  if (value < 100 && value > 99.9) return '> 99.9 %'
  return `${Number(value.toFixed(value < 10 || value > 99 ? 1 : 0))} %`
}

/** `8×64×56×56`; a size that varied between passes is `?`, a 0-d tensor `scalar`, no shape at all `?`. */
export function shape(sizes: readonly (number | null)[] | null): string {
  if (sizes === null) return '?'
  if (sizes.length === 0) return 'scalar'
  return sizes.map((size) => (size === null ? '?' : String(size))).join(TIMES)
}

/** A span of seconds: `8 s`, `12 min`, `3 h 20 min`, `2 d 4 h`. */
export function duration(seconds: number): string {
  const whole = Math.round(seconds)
  if (whole < 60) return `${whole} s`
  const minutes = Math.floor(whole / 60)
  if (minutes < 60) return `${minutes} min`
  const hours = Math.floor(minutes / 60)
  if (hours < 24) return minutes % 60 === 0 ? `${hours} h` : `${hours} h ${minutes % 60} min`
  return hours % 24 === 0 ? `${Math.floor(hours / 24)} d` : `${Math.floor(hours / 24)} d ${hours % 24} h`
}

/** `1 step`, `3 steps`. */
export function plural(amount: number, noun: string): string {
  return `${whole(amount)} ${noun}${amount === 1 ? '' : 's'}`
}

/** Whole numbers, of very many only the first: `1, 2, 3, 5, 8, 13, …`. */
export function few(numbers: readonly number[]): string {
  return `${numbers.slice(0, 6).map(whole).join(', ')}${numbers.length > 6 ? ', \u2026' : ''}`
}

/** Whose samples a step of a distributed training holds, given of how many ranks and which it lacks: `2 of 3 ranks,
 *  without rank 2`. */
export function ranks({ held, missing }: { held: number; missing: readonly number[] }): string {
  const lacks = missing.length === 0 ? '' : `, without rank ${few(missing)}`
  return `${held} of ${plural(held + missing.length, 'rank')}${lacks}`
}

/** At most `limit` characters of `text`, the middle left out: both ends of a path tell something. */
export function shorten(text: string, limit: number): string {
  if (text.length <= limit) return text
  const characters = [...text]
  if (characters.length <= limit) return text
  const tail = Math.floor((limit - 1) / 2)
  const head = limit - 1 - tail
  return `${characters.slice(0, head).join('')}\u2026${characters.slice(characters.length - tail).join('')}`
}

/** Fewer characters are taken to fit without being measured. */
const FITS = 18

/** As much of both ends of `text` as is at most `room` wide. */
export function fit(text: string, room: number, widthOf: (text: string) => number): string {
  let [shown, limit] = [text, text.length]
  while (limit > FITS) {
    const width = widthOf(shown)
    if (width <= room) break
    limit = Math.max(FITS, Math.min(limit - 1, Math.floor((limit * room) / width)))
    shown = shorten(text, limit)
  }
  return shown
}

/** Direction marks can turn the words around a name about; hostile names are shown with them visible. */
export function visible(text: string): string {
  return text.replace(
    // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is replaced
    /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g,
    (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}
