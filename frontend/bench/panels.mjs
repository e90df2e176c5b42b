/** How the tab copes with many panels: `node bench/panels.mjs URL RUN MODEL PANELS` opens the first so many modules
 *  of a model in Chromium ($CHROMIUM, else /usr/bin/chromium) and prints a line of JSON. `benchmarks/panels.py`
 *  makes the run.
 *
 *  `maps`: heat maps that are drawn. `theme`, `scrub`, `hover`: processor milliseconds of the main thread (script, style,
 *  layout) and from frame to frame, for one change of theme, of the step, of the pointer; the best of some rounds. */
import { chromium } from '@playwright/test'

const ROUNDS = 5
const TURNS = 40

const [url, run, model, amount] = process.argv.slice(2)
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--headless', '--no-sandbox', '--disable-gpu'],
})
const page = await browser.newPage({ viewport: { width: 2400, height: 2100 } })
const panels = Array.from({ length: Number(amount) }, (_, node) => `${node}:${node}`).join(',')
const pairs = Object.entries({ run, model, panels }).map(([key, value]) => `&p.torchexplorer.${key}=${value}`)
await page.goto(`${url}data/plugin_entry.html?name=torchexplorer#torchexplorer${pairs.join('')}`)
const maps = page.locator('.plot-area canvas')
await maps.nth(8 * Number(amount) - 1).waitFor()
const metrics = await page.context().newCDPSession(page)
await metrics.send('Performance.enable', { timeDomain: 'threadTicks' })

const result = {
  maps: await maps.count(),
  theme: await best(2, async (turn) => {
    await page.emulateMedia({ colorScheme: turn % 2 === 0 ? 'dark' : 'light' })
    return page.evaluate(
      () =>
        new Promise((resolve) => {
          const start = performance.now()
          requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now() - start)))
        }),
    )
  }),
  scrub: await best(1, () =>
    page.evaluate(async (turns) => {
      const slider = document.querySelector('input[aria-label=Step]')
      const start = performance.now()
      for (let turn = 0; turn < turns; turn++) {
        slider.value = String(turn * 4)
        slider.dispatchEvent(new Event('input', { bubbles: true }))
        await new Promise((resolve) => requestAnimationFrame(resolve))
      }
      return performance.now() - start
    }, TURNS),
  ),
  hover: await best(1, () =>
    page.evaluate(async (turns) => {
      const area = document.querySelector('.plot-area')
      const { left, top, width, height } = area.getBoundingClientRect()
      const start = performance.now()
      for (let turn = 0; turn < turns; turn++) {
        const clientX = left + (width * turn) / turns
        area.dispatchEvent(
          new PointerEvent('pointermove', { bubbles: true, clientX, clientY: top + height / 2 }),
        )
        await new Promise((resolve) => requestAnimationFrame(resolve))
      }
      return performance.now() - start
    }, TURNS),
  ),
}
console.log(JSON.stringify(result))
await browser.close()

/** [main thread, frame] of one turn of `act`, which gives how long it took; `act` is called `calls` times a round,
 *  and does TURNS turns where that is once. */
async function best(calls, act) {
  let least = [Infinity, Infinity]
  for (let round = 0; round < ROUNDS; round++) {
    const before = await busy()
    let wall = 0
    for (let call = 0; call < calls; call++) wall += await act(call)
    const turns = calls === 1 ? TURNS : calls
    const taken = ((await busy()) - before) / turns
    least = taken < least[0] ? [taken, wall / turns] : least
  }
  return least
}

/** Milliseconds of script, style and layout so far. */
async function busy() {
  const { metrics: all } = await metrics.send('Performance.getMetrics')
  const of = (name) => all.find((metric) => metric.name === name).value
  return 1000 * (of('ScriptDuration') + of('RecalcStyleDuration') + of('LayoutDuration'))
}
