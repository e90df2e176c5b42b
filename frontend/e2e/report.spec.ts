/** The report: the same tab in one file, opened from the disk without a server or a network. */
import { readFileSync, writeFileSync } from 'node:fs'
import { pathToFileURL } from 'node:url'
import type { Page } from '@playwright/test'
import { addresses } from './server.ts'
import { test as base, expect, inked, Tab } from './tab.ts'

const RUN = { run: 'resnet18/first', model: 'resnet18' }

const test = base.extend<{ report: Tab; requests: string[] }>({
  /** Everything the page asks for besides itself. */
  requests: async ({ page }, use) => {
    const requests: string[] = []
    page.on('request', (request) => {
      const url = request.url()
      if (!url.startsWith(reportUrl()) && !url.startsWith('blob:') && !url.startsWith('data:'))
        requests.push(url)
    })
    await use(requests)
    expect(requests).toEqual([])
  },
  report: async ({ page, problems: _, requests: __ }, use) => {
    await use(new Tab(page, reportUrl(), page))
  },
})

function reportUrl(): string {
  return pathToFileURL(addresses().report).href
}

test('draws the graph and fills a panel, and asks for nothing', async ({ report, page }) => {
  await report.open({ ...RUN, node: 'layer1/0' })
  await expect(page).toHaveTitle(/^TorchExplorer: /)
  expect(await report.breadcrumb()).toEqual(['ResNet', 'layer1', '0 BasicBlock'])
  await report.drag(report.node('conv1'), page.locator('[data-column="1"]'))

  const panel = report.panel('layer1.0.conv1')
  await expect(panel.locator('h3')).toHaveText(['Input', 'Output', 'Params'])
  for (const name of ['value of Input input', 'gradient of Output output', 'value of Params weight']) {
    const canvas = panel.getByRole('img', { name: new RegExp(`^${name} over 40 steps`) }).first()
    await canvas.scrollIntoViewIfNeeded()
    expect((await inked(canvas)).share, name).toBeGreaterThan(0.1)
  }
})

test('answers what the server answers', async ({ report, context }) => {
  const page = await context.newPage()
  const served = new Tab(page, `${addresses().url}data/plugin_entry.html?name=torchexplorer`, page)

  expect(await seen(report)).toEqual(await seen(served))
})

/** What is shown of a statistic at a step, and what a search finds. */
async function seen(tab: Tab): Promise<unknown> {
  const { page } = tab
  await tab.open({ ...RUN, color: 'gradient', step: '17' })
  await expect(tab.node('layer4')).toBeVisible()
  await expect(page.locator('.legend[title$="at step 17"]')).toBeVisible()
  const nodes = await page.locator('.node').allTextContents()
  const legend = await page.locator('.legend').textContent()
  await page.keyboard.press('/')
  await page.getByLabel('Path, class or shape').fill('LAYER4 ')
  await expect(page.locator('#matches').getByRole('option').first()).toBeVisible()
  return { nodes, legend, hits: await page.locator('#matches').getByRole('option').allTextContents() }
}

test('links, Back and the pictures it saves work from the disk', async ({ report, page }) => {
  await report.open(RUN)
  await report.node('layer1').click()
  await expect(page).toHaveURL(/p\.torchexplorer\.node=layer1$/)
  await page.goBack()
  await expect(report.node('layer4')).toBeVisible()
  for (const kind of ['SVG', 'PNG']) {
    const download = page.waitForEvent('download')
    await page.getByRole('button', { name: 'Save the graph' }).click()
    await page.getByRole('button', { name: `Graph as ${kind}` }).click()
    expect(readFileSync(await (await download).path()).length, kind).toBeGreaterThan(2000)
  }
})

test('unfriendly names stay text', async ({ report, page }) => {
  await report.open({ run: 'unfriendly names', model: 'hostile' })

  await expect(report.node('Input').first()).toBeVisible()
  await expect(page).toHaveTitle(/^TorchExplorer: /)
  expect(await page.locator('img, script:not([type])').count()).toBe(0)
})

test('follows the wish for a dark page', async ({ report }) => {
  await report.open(RUN)
  await expect(report.node('layer4')).toBeVisible()
  await report.goDark()
})

for (const sandbox of ['allow-scripts', 'allow-scripts allow-same-origin']) {
  test(`works as text in somebody's frame, sandboxed with ${sandbox}`, async ({ page, problems: _ }) => {
    await embed(page, sandbox)
    const frame = page.frameLocator('iframe')
    const report = new Tab(page, '', page)

    await expect(frame.getByRole('button', { name: 'conv1' }).first()).toBeVisible()
    await frame.locator('.node-main', { hasText: 'conv1' }).first().focus()
    await page.keyboard.press('p')
    const canvas = frame.getByRole('img', { name: /^value of Output output/ }).first()
    expect((await inked(canvas)).share).toBeGreaterThan(0.1)
    // Neither the address nor the theme is that of the page around it, and there is none to copy.
    await expect(frame.getByRole('button', { name: 'Copy link to this view' })).toHaveCount(0)
    expect(report.page.url()).toBe('about:blank')
  })
}

/** The report in a frame of a page that is not ours, as notebooks and dashboards show it. */
async function embed(page: Page, sandbox: string): Promise<void> {
  const text = readFileSync(addresses().report, 'utf8')
  await page.setViewportSize({ width: 1300, height: 900 })
  await page.setContent('<body class="dark-mode"><iframe width="1200" height="800"></iframe></body>')
  await page.locator('iframe').evaluate(
    (frame: HTMLIFrameElement, [page, rules]) => {
      frame.sandbox.value = rules
      frame.srcdoc = page
    },
    [text, sandbox] as const,
  )
}

test('a file that is not whole says so', async ({ page, problems }, info) => {
  const text = readFileSync(addresses().report, 'utf8')
  const path = info.outputPath('cut.html')
  writeFileSync(path, text.replace(/(id="torchexplorer-report">[^<]{3000})[^<]*/, '$1'))
  await page.goto(pathToFileURL(path).href)

  await expect(page.getByText('The report ends')).toBeVisible()
  expect(problems).toEqual([])
})
