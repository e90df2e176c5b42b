/** From the address to the histograms of a convolution: what a user does first. */
import { boxOf, expect, inked, logMore, test } from './tab.ts'

const RUN = { run: 'resnet18/first', model: 'resnet18' }

test('opens with the root graph of the first run', async ({ tab }) => {
  await tab.open()

  await expect(tab.node('conv1')).toBeVisible()
  expect(await tab.breadcrumb()).toEqual(['ResNet'])
  await expect(tab.frame.locator('.node-title')).toHaveText([
    'Input',
    'conv1',
    'bn1',
    'relu',
    'layer1',
    'layer2',
    'layer3',
    'layer4',
    'avgpool',
    'fc',
    'Output',
  ])
  await expect(tab.frame.getByRole('button', { name: /^Run resnet18\/first/ })).toBeVisible()
})

test('a click opens a module, the breadcrumb and Back lead out again', async ({ tab, page }) => {
  await tab.open(RUN)
  await tab.node('layer1').click()
  await tab.node('0').click()

  await expect(tab.frame.getByRole('heading', { level: 1 })).toHaveText('0 BasicBlock')
  expect(await tab.breadcrumb()).toEqual(['ResNet', 'layer1', '0 BasicBlock'])
  await page.goBack()
  await expect(tab.frame.getByRole('heading', { level: 1 })).toHaveText('layer1 Sequential')
  await tab.frame.getByRole('button', { name: 'ResNet', exact: true }).click()
  await expect(tab.node('layer4')).toBeVisible()
})

test('the tooltip of a convolution has its shapes and two dash rows', async ({ tab, page }) => {
  await tab.open({ ...RUN, node: 'layer1/0' })
  await tab.node('conv1').hover()

  await expect(tab.details.locator('.details-head')).toHaveText('conv1 Conv2d')
  const rows = tab.details.locator('dl > div')
  await expect(rows).toHaveText([
    'input32×64×32×32',
    'output32×64×32×32',
    '–64',
    '–64',
    'kernel_size(3, 3)',
    'stride(1, 1)',
    'biasFalse',
    'parameters36.9k',
  ])
  await page.keyboard.press('Escape')
})

test('the tooltip can be pointed at, and Escape closes it', async ({ tab, page }) => {
  await tab.open(RUN)
  await tab.node('conv1').hover()
  await tab.details.hover()
  await page.waitForTimeout(400)
  await expect(tab.details).toBeVisible()

  await tab.node('conv1').focus()
  await page.mouse.move(5, 300)
  await page.keyboard.press('Escape')
  await expect(tab.details).toBeHidden()
})

test('a module dragged into a column shows its heat maps', async ({ tab }) => {
  await tab.open({ ...RUN, node: 'layer1/0' })
  await tab.drag(tab.node('conv1'), tab.frame.locator('[data-column="1"]'))

  const panel = tab.panel('layer1.0.conv1')
  await expect(panel).toBeVisible()
  expect((await boxOf(panel)).x).toBeGreaterThan((await boxOf(tab.frame.locator('[data-column="1"]'))).x - 2)
  await expect(panel.locator('h3')).toHaveText(['Input', 'Output', 'Params'])
  for (const name of [
    'value of Input input',
    'gradient of Input input',
    'value of Output output',
    'gradient of Params weight',
  ]) {
    const canvas = panel.getByRole('img', { name: new RegExp(`^${name} over 4\\d steps`) }).first()
    await canvas.scrollIntoViewIfNeeded()
    const { share, colours } = await inked(canvas)
    expect(share, name).toBeGreaterThan(0.1)
    expect(colours, name).toBeGreaterThan(10)
  }
  // The drag must not also open the module, and its letter marks it.
  expect(await tab.breadcrumb()).toEqual(['ResNet', 'layer1', '0 BasicBlock'])
  await expect(tab.frame.locator('.node', { has: tab.node('conv1') }).locator('.mark')).toHaveText('A')
})

test('a drag ends without effect on Escape or outside of the columns', async ({ tab, page }) => {
  await tab.open({ ...RUN, node: 'layer1/0' })
  const start = await boxOf(tab.node('conv1'))
  const target = await boxOf(tab.frame.locator('[data-column="0"]'))
  await page.mouse.move(start.x + 20, start.y + 20)
  await page.mouse.down()
  await page.mouse.move(target.x + 50, target.y + 50, { steps: 4 })
  await expect(tab.frame.locator('.ghost')).toHaveText('conv1')
  await page.keyboard.press('Escape')
  await page.mouse.up()
  await tab.drag(tab.node('conv1'), tab.node('bn2'), { x: 5, y: 5 })

  await expect(tab.frame.getByText('No panels yet')).toBeVisible()
  expect(await tab.breadcrumb()).toEqual(['ResNet', 'layer1', '0 BasicBlock'])
})

test('P adds a panel for the focused node, the + button for the one pointed at', async ({ tab, page }) => {
  await tab.open({ ...RUN, node: 'layer1/0' })
  await tab.node('conv1').focus()
  await page.keyboard.press('ArrowDown')
  await expect(tab.node('bn1')).toBeFocused()
  await page.keyboard.press('p')
  await expect(tab.panel('layer1.0.bn1')).toBeVisible()

  await tab.node('conv2').hover()
  await tab.frame.getByRole('button', { name: 'Add panel for conv2' }).click()
  await expect(tab.panel('layer1.0.conv2')).toBeVisible()
  await expect(
    tab.frame.getByRole('status').filter({ hasText: 'layer1.0.conv2 added as panel B' }),
  ).toBeVisible()
})

test('zero has a dashed line, the ends of the axis their numbers, steps their labels', async ({ tab }) => {
  await tab.open({ ...RUN, panels: '0:layer1/0/conv1' })
  const plot = tab.panel('layer1.0.conv1').locator('.plot').first()

  await expect(plot.locator('.plot-end.top')).toHaveText(/^[\d.]+/)
  await expect(plot.locator('.plot-end.bottom')).toHaveText(/^−[\d.]+/)
  await expect(plot.locator('.step-axis span')).toHaveText(['0', '20'])
  const dashes = await plot.locator('canvas').evaluate((canvas: HTMLCanvasElement) => {
    // Below the lowest values of the first steps there is nothing but dashes; count their rows in one column.
    const context = canvas.getContext('2d') as CanvasRenderingContext2D
    const { data, width, height } = context.getImageData(0, 0, canvas.width, canvas.height)
    let best = 0
    for (let y = 0; y < height; y++) {
      let changes = 0
      for (let x = 1; x < width; x++) {
        const [now, before] = [y * width + x, y * width + x - 1].map(
          (at) => (data[at * 4] ?? 0) + (data[at * 4 + 1] ?? 0) < 130,
        )
        if (now && !before) changes++
      }
      best = Math.max(best, changes)
    }
    return best
  })
  expect(dashes).toBeGreaterThan(10)
})

test('light and dark follow TensorBoard’s switch, heat maps too', async ({ tab }) => {
  await tab.open({ ...RUN, panels: '0:layer1/0/conv1' })
  const canvas = tab.panel('layer1.0.conv1').getByRole('img').first()
  await expect(canvas).toBeVisible()
  await expect(tab.frame.locator('html')).toHaveAttribute('data-theme', 'light')
  const light = await canvas.evaluate((element: HTMLCanvasElement) => element.toDataURL())
  await tab.goDark()

  await expect(tab.frame.locator('html')).toHaveAttribute('data-theme', 'dark')
  await expect
    .poll(() => canvas.evaluate((element: HTMLCanvasElement) => element.toDataURL()))
    .not.toBe(light)
  expect(await tab.frame.locator('.graph').evaluate((pane) => getComputedStyle(pane).backgroundColor)).toBe(
    'rgb(21, 25, 30)',
  )
})

test('columns grow with the window', async ({ tab, page }) => {
  await tab.open(RUN)
  const columns = tab.frame.locator('[data-column]')
  await expect(columns).toHaveCount(2)
  await page.setViewportSize({ width: 2400, height: 1200 })
  await expect(columns).toHaveCount(3)
  await page.setViewportSize({ width: 900, height: 800 })
  await expect(columns).toHaveCount(1)
})

test('new steps appear while training goes on, and nothing loses its place', async ({ tab }) => {
  await tab.open({ run: 'training now', model: 'resnet18', node: 'layer1/0', panels: '0:layer1/0/conv1' })
  const plot = tab.panel('layer1.0.conv1').getByRole('img').first()
  const before = Number((await plot.getAttribute('aria-label'))?.match(/over (\d+) steps/)?.[1])
  await tab.node('bn2').click()
  await logMore()

  await expect(plot).toHaveAccessibleName(new RegExp(`over ${before + 10} steps`), { timeout: 15_000 })
  await expect(tab.frame.locator('output.step')).toHaveText(`step ${before + 9}latest`)
  await expect(tab.details.locator('.details-head')).toHaveText('bn2 BatchNorm2d')
  expect(await tab.breadcrumb()).toEqual(['ResNet', 'layer1', '0 BasicBlock'])
})
