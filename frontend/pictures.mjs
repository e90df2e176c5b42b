/** `node pictures.mjs URL DOCS NAME...` takes pictures of README and docs/, of the runs that scripts/pictures.py has
 *  made under the same names. */
import { chromium } from '@playwright/test'

const [url, docs, ...names] = process.argv.slice(2)
const base = url.split('#')[0]

/** Of the whole of TensorBoard (`around`), of the first panel (`panel`), or of the tab. `unfold`: equal layers. */
const PICTURES = {
  screenshot: {
    file: 'screenshot.png',
    size: [1500, 900],
    link: { node: 'layer2/0', panels: '0:layer2/0/conv1,1:layer2/0/bn2' },
    around: true,
  },
  panel: { file: 'images/panel.png', size: [1300, 900], link: { panels: '0:first' }, panel: true },
  vanishing: {
    file: 'images/vanishing.png',
    size: [1100, 900],
    link: { node: 'layers', color: 'gradient', panels: '0:layers/0' },
    unfold: true,
  },
  'dead-relu': { file: 'images/dead-relu.png', size: [1300, 900], link: { panels: '0:relu' }, panel: true },
}

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || undefined,
  args: ['--no-sandbox'],
})
for (const name of names) {
  const { file, size, link, around, panel, unfold } = PICTURES[name]
  const [width, height] = size
  const page = await browser.newPage({ viewport: { width, height }, colorScheme: 'light' })
  const place = Object.entries({ run: name, ...link })
    .map(([key, value]) => `&p.torchexplorer.${key}=${encodeURIComponent(value)}`)
    .join('')
  await page.goto(`${base}${around ? '' : 'data/plugin_entry.html?name=torchexplorer'}#torchexplorer${place}`)
  const tab = around ? page.frameLocator('iframe') : page
  await tab.locator('article.panel canvas').last().waitFor()
  if (unfold) await tab.getByRole('button', { name: 'Unfold all groups' }).click()
  await page.waitForTimeout(1500) // until all heat maps are drawn, and TensorBoard's own bar is still
  await (panel ? page.locator('article.panel').first() : page).screenshot({ path: `${docs}/${file}` })
  await page.close()
}
await browser.close()
