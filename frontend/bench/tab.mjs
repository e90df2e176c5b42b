/** How the tab copes with large models: `node bench/tab.mjs URL RUN...` opens each run of a TensorBoard in Chromium
 *  ($CHROMIUM, else /usr/bin/chromium) and prints a line of JSON for each. `benchmarks/tab.py` makes the runs.
 *
 *  `sent`: calls in the answer that describes the level, `kB`: its size on the way. `usable`: ms from the end of that
 *  answer to the first drawn nodes. Then everything is unfolded: `unfold` is ms from the click to the drawing, `pan`
 *  and `zoom` are ms between frames while the wheel turns, [mean, 95th percentile, worst], for the whole graph in
 *  view (`far`) and for readable words (`near`). */
import { chromium } from '@playwright/test'

const FRAMES = 90

const [url, ...runs] = process.argv.slice(2)
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--headless', '--no-sandbox', '--disable-gpu'],
})
for (const run of runs) console.log(JSON.stringify({ run, ...(await measure(run)) }))
await browser.close()

async function measure(run) {
  const page = await browser.newPage({ viewport: { width: 1500, height: 920 } })
  let level
  page.on('response', (response) => {
    if (response.url().includes('/graph?')) level = response
  })
  const link = `&p.torchexplorer.run=${run}&p.torchexplorer.model=${run}`
  await page.goto(`${url}data/plugin_entry.html?name=torchexplorer#torchexplorer${link}`)
  const usable = await page.evaluate(whenDrawn, '.node')
  const answer = await page.evaluate(() => {
    const found = performance.getEntriesByType('resource').filter(({ name }) => name.includes('/graph?'))
    return { end: found[0].responseEnd, bytes: found[0].transferSize }
  })
  const { nodes } = await level.json()
  const result = {
    sent: nodes.length,
    kB: Math.round(answer.bytes / 100) / 10,
    usable: Math.round(usable - answer.end),
  }
  const unfold = page.getByRole('button', { name: 'Unfold all groups' })
  let waited = 0
  // A group that is unfolded may show slices, which unfold in turn.
  while ((await unfold.count()) > 0) {
    const clicked = await unfold.evaluate((button) => {
      const now = performance.now()
      button.click()
      return now
    })
    waited += (await page.evaluate(whenDrawn, '.pane')) - clicked
  }
  const near = { pan: await frames(page, 'pan'), zoom: await frames(page, 'zoom') }
  await page.getByRole('button', { name: 'Fit the whole graph' }).click()
  const far = { pan: await frames(page, 'pan'), zoom: await frames(page, 'zoom') }
  await page.close()
  return { ...result, unfold: Math.round(waited), near, far }
}

/** Time at which something that matches is in the document and has been painted. */
async function whenDrawn(selector) {
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve))
  while (document.querySelector(selector) === null) await frame()
  await frame()
  await frame()
  return performance.now()
}

async function frames(page, kind) {
  const times = await page.evaluate(
    async ([zooms, count]) => {
      const pane = document.querySelector('.pane')
      const { left, top, width, height } = pane.getBoundingClientRect()
      const taken = []
      let before = await new Promise((resolve) => requestAnimationFrame(resolve))
      for (let turn = 0; turn < count; turn++) {
        const back = turn % 30 < 15 ? 1 : -1
        pane.dispatchEvent(
          new WheelEvent('wheel', {
            deltaX: zooms ? 0 : back * 5,
            deltaY: back * (zooms ? 12 : 30),
            ctrlKey: zooms,
            clientX: left + width / 2,
            clientY: top + height / 2,
            bubbles: true,
            cancelable: true,
          }),
        )
        const now = await new Promise((resolve) => requestAnimationFrame(resolve))
        taken.push(now - before)
        before = now
      }
      return taken
    },
    [kind === 'zoom', FRAMES],
  )
  times.sort((a, b) => a - b)
  const mean = times.reduce((sum, time) => sum + time, 0) / times.length
  return [mean, times[Math.floor(times.length * 0.95)], times.at(-1)].map(
    (time) => Math.round(time * 10) / 10,
  )
}
