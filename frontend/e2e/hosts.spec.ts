/** The tab where TensorBoard is met in practice: other addresses, frames, many runs, a server that comes and goes. */
import type { FrameLocator, Page } from '@playwright/test'
import { type Script, startScript } from './server.ts'
import { boxOf, expect, Tab, test } from './tab.ts'

interface Hosts {
  readonly prefix: string
  readonly proxy: string
  readonly notebook: string
  readonly stranger: string
}

const RUN = { run: 'a first', model: 'resnet18' }
const ENTRY = 'data/plugin_entry.html?name=torchexplorer'

let script: Script
let hosts: Hosts
test.beforeAll(async () => {
  test.setTimeout(120_000)
  script = await startScript('hosts.py')
  hosts = JSON.parse(script.first) as Hosts
})
test.afterAll(() => script.end())

function inTensorBoard(page: Page, url: string): Tab {
  return new Tab(page, url, page.frameLocator('iframe[src*="name=torchexplorer"]'))
}

/** The requests of the tab from now on, by route. */
function requestsOf(page: Page): string[] {
  const routes: string[] = []
  page.on('request', (request) => {
    const route = /plugin\/torchexplorer\/(\w+)\?/.exec(`${request.url()}?`)?.[1]
    if (route !== undefined) routes.push(route)
  })
  return routes
}

for (const kind of ['prefix', 'proxy'] as const) {
  test(`C79: it works behind a ${kind === 'prefix' ? 'path prefix' : 'proxy that strips one'}`, async ({
    page,
    problems: _,
  }) => {
    const tab = inTensorBoard(page, hosts[kind])
    await tab.open({ ...RUN, panels: '0:fc' })
    await expect(tab.node('layer1')).toBeVisible()
    await expect(tab.panel('fc').getByRole('img').first()).toBeVisible()
    await tab.node('layer1').click()
    await expect(page).toHaveURL(/p\.torchexplorer\.node=layer1/)
    expect(page.url().startsWith(hosts[kind])).toBe(true)
    await seeHelp(tab.frame, page)
  })
}

/** The help is in a file of its own, which is asked for with its first use. */
async function seeHelp(frame: FrameLocator | Page, page: Page): Promise<void> {
  const asked = page.waitForResponse(/extras-[\w-]+\.js$/)
  await frame.getByRole('button', { name: 'Keys and help' }).click()
  expect((await asked).status()).toBe(200)
  const dialog = frame.getByRole('dialog', { name: 'Keys and help' })
  await expect(dialog).toContainText('search the whole model')
  await page.keyboard.press('Escape')
  await expect(dialog).toHaveCount(0)
}

/** Opens `page` and has its frame show `source`. */
async function openFramed(page: Page, around: string, source: string): Promise<void> {
  await page.goto(around)
  await page.locator('iframe').evaluate((frame: HTMLIFrameElement, address) => {
    frame.src = address
  }, source)
}

test('C79: it works inside TensorBoard in a notebook, a page of another origin', async ({
  page,
  problems,
}) => {
  await openFramed(page, hosts.notebook, `${hosts.prefix}#torchexplorer`)
  const frame = page.frameLocator('iframe').frameLocator('iframe[src*="name=torchexplorer"]')
  await frame.locator('.node-main', { hasText: 'layer1' }).click()
  await expect(frame.getByRole('heading', { level: 1 })).toHaveText('layer1 Sequential')
  await seeHelp(frame, page)
  // A frame of another origin may not use the clipboard, only copy as by hand; where it may not do that either, the
  // link is shown instead.
  await frame.getByRole('button', { name: 'Copy link to this view' }).click()
  await expect(frame.getByText('Link copied.')).toBeVisible()
  await frame.locator('html').evaluate(() => {
    document.execCommand = () => false
  })
  await frame.getByRole('button', { name: 'Copy link to this view' }).click()
  await expect(frame.getByRole('status').filter({ hasText: 'Copy this link' })).toContainText(
    `${hosts.prefix}#torchexplorer&p.torchexplorer.run=`,
  )
  expect(problems.splice(0).filter((problem) => !problem.includes('Clipboard API'))).toEqual([])
})

test('C79: it works alone in a frame on another site, where the browser denies it storage', async ({
  page,
  problems: _,
}) => {
  await openFramed(page, hosts.stranger, `${hosts.proxy}${ENTRY}`)
  const frame = page.frameLocator('iframe')
  await expect(frame.locator('.node-main', { hasText: 'layer1' })).toBeVisible()
  const denied = await frame.locator('html').evaluate(() => {
    try {
      return localStorage === null
    } catch (error) {
      return (error as Error).name
    }
  })
  expect(denied).toBe('SecurityError')
  await frame.getByRole('button', { name: 'Display' }).click()
  await frame.getByRole('radio', { name: 'symlog' }).check()
  await expect(frame.getByRole('radio', { name: 'symlog' })).toBeChecked()
})

test('in a hidden tab it asks for nothing, and goes on where it was', async ({ page, problems: _ }) => {
  const tab = inTensorBoard(page, hosts.prefix)
  await tab.open({ ...RUN, node: 'layer1', panels: '0:fc' })
  await expect(tab.panel('fc').getByRole('img').first()).toBeVisible()
  const requests = requestsOf(page)
  await expect.poll(() => requests.includes('runs')).toBe(true)

  await page.getByRole('tab', { name: 'Scalars' }).click()
  await expect(page).not.toHaveURL(/#torchexplorer/)
  requests.length = 0
  await page.waitForTimeout(7000)
  expect(requests).toEqual([])

  await page.getByRole('tab', { name: 'TorchExplorer' }).click()
  await expect.poll(() => requests.includes('runs')).toBe(true)
  await expect(tab.frame.getByRole('heading', { level: 1 })).toHaveText('layer1 Sequential')
  await expect(tab.panel('fc').getByRole('img').first()).toBeVisible()
})

test('one of hundreds of runs is found by a part of its name', async ({ page, problems: _ }) => {
  const tab = new Tab(page, `${hosts.prefix}${ENTRY}`, page)
  await tab.open(RUN)
  await page.getByRole('button', { name: /^Run/ }).click()
  const field = page.getByRole('searchbox', { name: 'Filter runs' })
  await expect(field).toBeFocused()
  expect((await boxOf(page.locator('.runs .sheet'))).height).toBeLessThan(620)
  await field.fill('p/21')
  await expect(page.locator('.run-list .run')).toHaveCount(10)
  await page.getByRole('checkbox', { name: 'Compare with sweep/217' }).check()
  await page.locator('.run-name', { hasText: 'sweep/219' }).click()
  await expect(page.getByRole('button', { name: /^Run sweep\/219/ })).toContainText('+1')
  await expect(tab.node('1')).toBeVisible()

  await page.getByRole('button', { name: /^Run/ }).click()
  await field.fill('')
  await expect(page.locator('.run.open')).not.toBeInViewport()
  await page.keyboard.press('Escape')
  await page.getByRole('button', { name: /^Run/ }).click()
  await expect(page.locator('.run.open')).toBeInViewport()
})

test('C83: what is not there yet, or cannot be, is told', async ({ page, problems: _ }) => {
  const tab = new Tab(page, `${hosts.prefix}${ENTRY}`, page)
  await tab.open({ run: 'lossy', model: 'model' })
  await expect(page.locator('.warnings button')).toHaveText('4 records dropped: the disk was too slow')
  await expect(page.locator('output.step')).toContainText('2 of 3 ranks, without rank 2')

  await page.getByRole('button', { name: /^Run/ }).click()
  await page.locator('.run-name', { hasText: 'newer' }).click()
  await expect(page.getByRole('alert')).toContainText('update the package where TensorBoard runs')

  await page.getByRole('button', { name: /^Run/ }).click()
  await page.locator('.run-name', { hasText: 'no step yet' }).click()
  await tab.node('1').focus()
  await page.keyboard.press('p')
  await expect(tab.panel('1').getByText('waiting for the first record').first()).toBeVisible()
  await expect(page.locator('output.step')).toHaveText('no steps yet')
})

test('C83: a run that appears later and its steps are there within seconds', async ({
  page,
  problems: _,
}) => {
  const tab = inTensorBoard(page, hosts.proxy)
  await tab.open({ ...RUN, node: 'layer1', panels: '0:.' })
  await tab.node('0').click()
  expect(await script.ask('run')).toBe('done')
  const runs = tab.frame.getByRole('button', { name: /^Run/ })
  await runs.click()
  await expect(tab.frame.locator('.run-name', { hasText: 'later' })).toBeVisible({ timeout: 30_000 })
  await expect(tab.frame.getByRole('heading', { level: 1 })).toHaveText('0 BasicBlock')
  await expect(tab.panel('the whole model').getByRole('img').first()).toBeVisible()

  await tab.frame.locator('.run-name', { hasText: 'later' }).click()
  await expect(tab.frame.locator('output.step')).toHaveText('step 0latest')
  expect(await script.ask('step')).toBe('done')
  await expect(tab.frame.locator('output.step')).toHaveText('step 1latest', { timeout: 30_000 })
})

test('when TensorBoard ends, all stays; when it is back, so is the tab', async ({ page, problems }) => {
  const tab = new Tab(page, `${hosts.proxy}${ENTRY}`, page)
  await tab.open({ ...RUN, panels: '0:fc' })
  const picture = tab.panel('fc').getByRole('img').first()
  await expect(picture).toBeVisible()

  await script.ask('stop')
  const alert = page.getByRole('alert').filter({ hasText: 'Out of date' })
  await expect(alert).toContainText('TensorBoard answered 502')
  await expect(alert).not.toContainText('Bad gateway')
  await expect(picture).toBeVisible()
  await expect(tab.node('layer1')).toBeVisible()
  await page.getByRole('button', { name: 'Keys and help' }).click()
  await expect(page.getByRole('status').filter({ hasText: 'could not be loaded' })).toBeVisible()

  test.setTimeout(120_000)
  await script.ask('start')
  await page.getByRole('button', { name: 'Retry' }).first().click()
  await expect(page.getByRole('alert')).toHaveCount(0)
  await tab.node('layer1').click()
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('layer1 Sequential')
  await seeHelp(page, page)
  expect(problems.splice(0).filter((problem) => !problem.includes('502'))).toEqual([])
})
