/** 60 heat maps of 200 steps and 30 bins: what a theme switch or new data costs, without the canvas. */
import { bench, describe } from 'vitest'
import { decodeSeries, type Track } from '../api/decode.ts'
import { encodeSeries, type Row, seriesHead } from '../api/fixture.ts'
import { colourTable } from './colours.ts'
import { domain } from './columns.ts'
import { entriesOf } from './grid.ts'
import { dash, paint } from './pixels.ts'
import { type Drawn, plotOf } from './plot.ts'

const [MAPS, STEPS, BINS, WIDTH, ROWS] = [60, 200, 30, 196, 44]

const steps = Array.from({ length: STEPS }, (_, step) => step * 100)
const rows = steps.map((_, step): Row => {
  const [low, high] = [-1 - step / 100, 2 + step / 50]
  return {
    low,
    high,
    min: low,
    max: high,
    counts: Array.from({ length: BINS }, (_, bin) => (bin * 7 + step) % 11),
  }
})
const history = decodeSeries(encodeSeries([seriesHead()], steps, [rows]))
const track = history.tracks[0] as Track
const across = domain([steps])
const table = colourTable('value', 'light')
const plot = plotOf(history, track, across, WIDTH, ROWS, 'linear')
const pixels = new Uint32Array(WIDTH * 2 * ROWS)

function draw({ grid, lowest, highest }: Drawn): void {
  paint(pixels, grid, entriesOf(grid, 'root', 'all'), table)
  for (const shares of [lowest, highest]) dash(pixels, shares, 1, '#4d5866')
}

describe(`${MAPS} heat maps of ${STEPS} steps x ${BINS} bins`, () => {
  bench('colours again', () => {
    for (let map = 0; map < MAPS; map++) if (plot.drawn) draw(plot.drawn)
  })
  bench('resampled and coloured', () => {
    for (let map = 0; map < MAPS; map++) {
      const { drawn } = plotOf(history, track, across, WIDTH, ROWS, 'linear')
      if (drawn) draw(drawn)
    }
  })
})
