/** Panels by touch, keys and pointer; several calls and runs in one; their time axis; their looks on odd systems. */
import { readFileSync } from 'node:fs'
import type { Locator, Page } from '@playwright/test'
import { boxOf, expect, inked, test } from './tab.ts'

const RUN = { run: 'resnet18/first', model: 'resnet18' }
const RESUMED = { run: 'resnet18/second', model: 'resnet18' }

/** The titles of the panels, column by column. */
function columns(page: Page): Promise<string[][]> {
  return page
    .locator('[data-column]')
    .evaluateAll((all) =>
      all.map((column) => [...column.querySelectorAll('article h2')].map((title) => title.textContent ?? '')),
    )
}

async function menu(panel: Locator, item: string): Promise<void> {
  await panel.getByRole('button', { name: /More about/ }).click()
  await panel.getByRole('button', { name: item }).click()
}

test.describe('by touch', () => {
  test.use({ hasTouch: true })

  test('a panel is dragged by its head to another place, and the page stays put', async ({ bare, page }) => {
    await bare.open({ ...RUN, panels: '0:fc,0:conv1,1:bn1' })
    await expect(bare.panel('bn1').getByRole('img').first()).toBeVisible()
    const from = await boxOf(bare.panel('fc').locator('.panel-head'))
    const to = await boxOf(bare.panel('bn1'))
    const touch = await page.context().newCDPSession(page)
    const send = (type: 'touchStart' | 'touchMove' | 'touchEnd', x = 0, y = 0): Promise<unknown> =>
      touch.send('Input.dispatchTouchEvent', { type, touchPoints: type === 'touchEnd' ? [] : [{ x, y }] })
    const [x, y] = [from.x + 150, from.y + 20]
    await send('touchStart', x, y)
    for (let part = 1; part <= 8; part++)
      await send('touchMove', x + ((to.x + 60 - x) * part) / 8, y + ((to.y + 10 - y) * part) / 8)
    await expect(page.locator('.ghost')).toHaveText('fc')
    await expect(page.locator('[data-column="1"] .drop-line')).toBeVisible()
    await send('touchEnd')

    await expect(page.locator('.ghost')).toHaveCount(0)
    expect(await columns(page)).toEqual([['conv1'], ['fc', 'bn1']])
    expect(await page.locator('.board').evaluate((board) => board.scrollTop)).toBe(0)
  })
})

test('by keyboard a panel moves within and between columns, and keeps the focus', async ({ bare, page }) => {
  await bare.open({ ...RUN, panels: '0:fc,0:conv1,1:bn1' })
  const panel = bare.panel('fc')
  const choose = async (item: string): Promise<void> => {
    await panel.getByRole('button', { name: /More about/ }).focus()
    await page.keyboard.press('Enter')
    await panel.getByRole('button', { name: item }).focus()
    await page.keyboard.press('Enter')
  }
  await choose('Move down')
  await expect.poll(() => columns(page)).toEqual([['conv1', 'fc'], ['bn1']])
  expect(await panel.evaluate((article) => article.contains(document.activeElement))).toBe(true)
  await choose('Move right')
  await expect.poll(() => columns(page)).toEqual([['conv1'], ['bn1', 'fc']])
  await expect(panel).toBeFocused()
  await expect(panel).toBeInViewport()

  await panel.getByRole('button', { name: /Close panel/ }).focus()
  await page.keyboard.press('Enter')
  await expect(bare.panel('bn1')).toBeFocused()
  await page.getByRole('button', { name: 'Undo' }).focus()
  await page.keyboard.press('Enter')
  await expect.poll(() => columns(page)).toEqual([['conv1'], ['bn1', 'fc']])
  await expect(panel).toBeFocused()

  await panel.getByRole('button', { name: /More about/ }).click()
  for (const [item, there] of [
    ['Move up', true],
    ['Move down', false],
    ['Move left', true],
    ['Move right', false],
  ] as const)
    await expect(panel.getByRole('button', { name: item })).toBeEnabled({ enabled: there })
})

test('other calls of a module stand in one panel, each with its name, and survive a reload', async ({
  bare,
  page,
}) => {
  await bare.open({ ...RUN, node: 'layer1/0', panels: '0:layer1/0/relu' })
  const panel = bare.panel('layer1.0.relu')
  const rows = panel.locator('.tensor').first().locator('.tensor-tags')
  const rowsAlone = await rows.count()
  await panel.getByRole('button', { name: 'Compare with other calls and layers' }).click()
  await panel.getByRole('checkbox', { name: 'relu #2' }).check()
  await expect(rows).toHaveText(['relu', 'relu #2', 'relueval', 'relu #2eval'])
  await expect(page.locator('.node', { hasText: 'relu' }).locator('.mark')).toHaveText(['A', 'A'])
  expect(rowsAlone).toBeLessThan(4)
  await expect(page).toHaveURL(/panels=0:layer1\/0\/relu%2Blayer1\/0\/relu%231/)
  await page.reload()
  await expect(rows).toHaveCount(4)
  await expect(panel.getByRole('img', { name: /^value of Input input, relu #2 over/ })).toBeVisible()

  await menu(panel, 'Data table')
  await expect(page.getByLabel('Tensor').locator('option', { hasText: 'relu #2' }).first()).toBeAttached()
  await page.keyboard.press('Escape')
  const download = page.waitForEvent('download')
  await menu(panel, 'Save as CSV')
  const csv = readFileSync(await (await download).path(), 'utf8')
  expect(csv).toMatch(/^resnet18\/first,layer1\/0\/relu#1,output,value,/m)
})

test('the layers of a stack stand in one panel, their parameters too', async ({ bare }) => {
  await bare.open({ run: 'unrolled', model: 'model', panels: '0:3' })
  const panel = bare.panel('3')
  await panel.getByRole('button', { name: 'Compare with other calls and layers' }).click()
  await panel.getByRole('checkbox', { name: 'all' }).check()
  const weights = panel.locator('.tensor').filter({ hasText: /^weight/ })
  await expect(weights.locator('.tensor-tags')).toHaveCount(12)
  await expect(weights.locator('.tensor-tags').first()).toHaveText('3')
  await panel.getByRole('checkbox', { name: 'all' }).uncheck()
  await expect(weights.locator('.tensor-tags')).toHaveCount(0)
})

test('a run without a model of that name shows the one that stands for it, and says so', async ({
  bare,
  problems,
}) => {
  await bare.open({
    run: 'unrolled',
    model: 'model',
    compare: 'resnet18/first,several models',
    panels: '0:.',
  })
  const panel = bare.panel('the whole model')
  await expect(
    panel.locator('.tensor-tags', { hasText: 'resnet18/firstmodel resnet18' }).first(),
  ).toBeVisible()
  await expect(panel.getByRole('alert')).toHaveCount(1)
  await expect(panel.getByRole('alert')).toContainText(
    'Run “several models” has no model “model”; it has “<img src=x onerror=alert(1)>”, “vqvae”.',
  )
  expect(problems).toEqual([])
})

test('in full screen two runs stand side by side, their steps in line', async ({ bare }) => {
  await bare.open({ ...RUN, compare: 'resnet18/second', panels: '0:fc' })
  await bare.panel('fc').getByRole('button', { name: 'Full screen' }).click()
  const rows = bare.frame.getByRole('dialog').locator('.tensor').first().locator('.tensor-rows > div')
  await expect(rows).toHaveCount(4)
  const [one, other] = [await boxOf(rows.nth(0)), await boxOf(rows.nth(1))]
  expect(other.x).toBeGreaterThan(one.x + one.width)
  expect(other.width).toBe(one.width)
  await expect(rows.nth(0).locator('.tag')).toHaveText(['resnet18/first'])
  await expect(rows.nth(1).locator('.tag')).toHaveText(['resnet18/second'])
})

test('a restart has a line with a word between the steps around it, and the tip tells', async ({
  bare,
  page,
}) => {
  await bare.open({ ...RESUMED, panels: '0:fc' })
  const plot = bare.panel('fc').locator('.plot-area').first()
  await expect(plot.locator('.restart')).toHaveText('restart')
  const [area, word] = [await boxOf(plot), await boxOf(plot.locator('.restart'))]
  // Steps 0 to 49, the new process went on at 30.
  expect((word.x - area.x) / area.width).toBeCloseTo(30 / 50, 1)
  await page.mouse.move(area.x + (area.width * 30.5) / 50, area.y + 20)
  await expect(page.locator('.probe')).toContainText('restart')
  await page.mouse.move(area.x + (area.width * 25.5) / 50, area.y + 20)
  await expect(page.locator('.probe')).toContainText('step25')
  await expect(page.locator('.probe')).not.toContainText('restart')
})

test('the time axis can be the clock or the user’s own time', async ({ bare, page }) => {
  await bare.open({ run: 'several models', model: 'vqvae', panels: '0:encoder' })
  const axis = bare.panel('encoder').locator('.step-axis').first()
  await expect(axis).toHaveText(/^0/)
  await page.getByRole('button', { name: 'Display' }).click()
  await page.getByRole('radio', { name: 'clock' }).check()
  await expect(axis.locator('span').first()).toHaveText('0 s')
  await page.getByRole('radio', { name: 'epoch' }).check()
  await expect(axis.locator('span')).toHaveText(['epoch 0', '2', '4'])
  await page.keyboard.press('Escape')

  // The line of a step lies where its time does: step 16 of 40 at epoch 2.
  await page.getByRole('slider', { name: 'Step' }).fill('8')
  await expect(page.locator('output.step')).toHaveText('step 16')
  const [mark, line] = [
    await boxOf(axis.locator('span').nth(1)),
    await boxOf(bare.panel('encoder').locator('.cursor').first()),
  ]
  expect(Math.abs(line.x - (mark.x + mark.width / 2))).toBeLessThan(3)
})

test('forced colours and a wish for less motion are respected', async ({ bare, page }) => {
  await page.emulateMedia({ forcedColors: 'active', reducedMotion: 'reduce' })
  const held: (() => void)[] = []
  await page.route('**/series?*', async (route) => {
    await new Promise<void>((resolve) => held.push(resolve))
    await route.continue()
  })
  await bare.open({ ...RUN, panels: '0:fc', step: '20' })
  await expect(page.getByRole('status', { name: 'Loading histories' })).toBeVisible()
  expect(await page.evaluate(() => document.getAnimations().length)).toBe(0)
  for (const go of held) go()
  const picture = bare.panel('fc').getByRole('img').first()
  await expect(picture).toBeVisible()
  expect((await inked(picture)).share).toBeGreaterThan(0.1)
  for (const [what, property] of [
    ['.plot-area canvas', 'forcedColorAdjust'],
    ['.panel .mark', 'forcedColorAdjust'],
  ] as const) {
    const value = await page
      .locator(what)
      .first()
      .evaluate((element, name) => getComputedStyle(element)[name], property)
    expect(value, what).toBe('none')
  }
  const line = page.locator('.cursor').first()
  const [ink, paper] = await line.evaluate((element) => [
    getComputedStyle(element).borderLeftColor,
    getComputedStyle(document.body).backgroundColor,
  ])
  expect(ink).not.toBe(paper)
})
