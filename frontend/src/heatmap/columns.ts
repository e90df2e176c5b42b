/** Steps to pixel columns. Pure. Where a step lies may also be a time, see time.ts. */

/** Where the left and right edge of a plot lie: half a column outside the first and last step. */
export interface Domain {
  readonly first: number
  readonly last: number
}

/** For each pixel column, which steps it shows: `amount[x]` of them from index `first[x]` on; 0 in a gap. */
export interface Columns {
  readonly width: number
  readonly first: Int32Array
  readonly amount: Int32Array
}

/** The domain over all of `series` (each ascending); plots that share it line up. */
export function domain(series: readonly (readonly number[])[]): Domain {
  let [first, last] = [Infinity, -Infinity]
  for (const steps of series) {
    if (steps.length === 0) continue
    const { left, right } = spans(steps)
    first = Math.min(first, left[0] as number)
    last = Math.max(last, right.at(-1) as number)
  }
  return first < last ? { first, last } : { first: -0.5, last: 0.5 }
}

/** Where `step` lies in the domain, 0..1 from left to right. */
export function shareOf(step: number, { first, last }: Domain): number {
  return (step - first) / (last - first)
}

/** Each step owns the room halfway to its neighbours, yet no more than `slack` times what is usual in this
 *  series or on its other side: where steps are missing a gap stays. */
export function spans(steps: readonly number[], slack = 1): { left: Float64Array; right: Float64Array } {
  const usual = median(steps.slice(1).map((step, position) => step - (steps[position] as number))) ?? 1
  const left = new Float64Array(steps.length)
  const right = new Float64Array(steps.length)
  for (let position = 0; position < steps.length; position++) {
    const step = steps[position] as number
    const before = step - (steps[position - 1] ?? step - usual)
    const after = (steps[position + 1] ?? step + usual) - step
    const room = Math.max(usual * slack, Math.min(before, after))
    left[position] = step - Math.min(before, room) / 2
    right[position] = step + Math.min(after, room) / 2
  }
  return { left, right }
}

/** A pixel shows the steps whose middle lies in it (several: their mean is drawn), else the step whose
 *  room covers it. So no step is lost, however many there are. */
export function pixelColumns(
  steps: readonly number[],
  { first, last }: Domain,
  width: number,
  slack = 1,
): Columns {
  const columns = { width, first: new Int32Array(width), amount: new Int32Array(width) }
  const scale = width / (last - first)
  const { left, right } = spans(steps, slack)
  for (let position = 0; position < steps.length; position++) {
    const from = Math.max(0, Math.ceil(((left[position] as number) - first) * scale - 0.5))
    const to = Math.min(width - 1, Math.ceil(((right[position] as number) - first) * scale - 0.5) - 1)
    for (let x = from; x <= to; x++) {
      columns.first[x] = position
      columns.amount[x] = 1
    }
  }
  let before = -1
  for (let position = 0; position < steps.length; position++) {
    const middle = Math.floor(((steps[position] as number) - first) * scale)
    const x = Math.min(width - 1, Math.max(0, middle))
    if (x === before) {
      columns.amount[x] = (columns.amount[x] as number) + 1
    } else {
      columns.first[x] = position
      columns.amount[x] = 1
    }
    before = x
  }
  return columns
}

/** The index of the step nearest to `step`; −1 if there is none. */
export function nearest(steps: readonly number[], step: number): number {
  let [low, high] = [0, steps.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if ((steps[middle] as number) < step) low = middle + 1
    else high = middle
  }
  const after = steps[low]
  const before = steps[low - 1]
  if (after === undefined) return steps.length - 1
  return before !== undefined && step - before <= after - step ? low - 1 : low
}

function median(values: readonly number[]): number | undefined {
  const sorted = [...values].sort((one, other) => one - other)
  return sorted[sorted.length >> 1]
}
