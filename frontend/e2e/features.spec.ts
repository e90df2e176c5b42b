/** What makes the tab pleasant: finding, linking, comparing, saving. */
import { readFileSync } from 'node:fs'
import { boxOf, expect, inked, test } from './tab.ts'

const RUN = { run: 'resnet18/first', model: 'resnet18' }

test.describe('search', () => {
  test('finds modules on all levels by path, class and shape, and goes there', async ({ bare, page }) => {
    await bare.open(RUN)
    await expect(bare.node('conv1')).toBeVisible()
    await page.keyboard.press('/')
    const field = bare.frame.getByRole('combobox', { name: 'Path, class or shape' })
    await expect(field).toBeFocused()
    await field.fill('layer3.0.conv2')
    await expect(bare.frame.getByRole('listbox').getByRole('option')).toHaveCount(1)
    await field.fill('conv')
    await expect(bare.frame.locator('.search-status')).toHaveText(/^\d+ modules$/)
    const second = await bare.frame
      .getByRole('listbox')
      .getByRole('option')
      .nth(1)
      .locator('.match-path')
      .textContent()
    await page.keyboard.press('ArrowDown')
    await page.keyboard.press('Enter')

    await expect(bare.frame.getByRole('dialog')).toBeHidden()
    expect(second).toBe('layer1.0.conv1')
    await expect(bare.frame.getByRole('heading', { level: 1 })).toHaveText('0 BasicBlock')
    await expect(bare.details.locator('.details-path')).toHaveText('layer1.0.conv1')
  })

  test('Enter goes to what was typed, however late the answer is', async ({ bare, page }) => {
    await bare.open(RUN)
    await expect(bare.node('conv1')).toBeVisible()
    await page.keyboard.press('/')
    const field = bare.frame.getByRole('combobox', { name: 'Path, class or shape' })
    await field.fill('layer1.0.conv1')
    await expect(bare.frame.getByRole('listbox').getByRole('option')).toHaveCount(1)
    await field.fill('layer3.1.relu')
    await page.keyboard.press('Enter')
    await expect(bare.frame.getByRole('dialog')).toBeHidden()
    await expect(bare.details.locator('.details-path')).toHaveText('layer3.1.relu')
  })

  test('tells of a panel that it added', async ({ bare, page }) => {
    await bare.open(RUN)
    await expect(bare.node('conv1')).toBeVisible()
    await page.keyboard.press('/')
    await bare.frame.getByRole('combobox', { name: 'Path, class or shape' }).fill('layer3.0.conv2')
    await page.keyboard.press('Shift+Enter')
    // Outside of an open dialog all is silent.
    await expect(bare.frame.getByRole('dialog').getByText('layer3.0.conv2 added as panel A')).toBeVisible()
    await page.keyboard.press('Escape')
    await expect(bare.frame.getByText('layer3.0.conv2 added as panel A')).toBeVisible()
    await expect(bare.panel('layer3.0.conv2')).toBeVisible()
  })

  test('says so when nothing matches, and Escape closes it', async ({ bare, page }) => {
    await bare.open(RUN)
    await expect(bare.node('conv1')).toBeVisible()
    await page.keyboard.press('Control+k')
    await bare.frame.getByRole('combobox', { name: 'Path, class or shape' }).fill('no such thing')
    await expect(bare.frame.locator('.search-status')).toHaveText('Nothing matches “no such thing”.')
    await page.keyboard.press('Escape')
    await expect(bare.frame.getByRole('dialog')).toBeHidden()
  })
})

test.describe('links', () => {
  test('the whole view survives a reload', async ({ bare, page }) => {
    await bare.open({
      ...RUN,
      node: 'layer1/0',
      panels: '0:layer1/0/conv1,1:fc',
      step: '20',
      color: 'zeros',
      compare: 'resnet18/second',
    })
    await expect(bare.panel('fc').getByRole('img').first()).toBeVisible()
    const address = page.url()
    await page.reload()

    await expect(bare.frame.locator('[data-column="1"]').getByRole('article')).toHaveAccessibleName(
      'Panel B: fc',
    )
    await expect(bare.frame.getByRole('heading', { level: 1 })).toHaveText('0 BasicBlock')
    await expect(bare.frame.locator('output.step')).toHaveText('step 20')
    await expect(bare.frame.getByLabel('Colour by')).toHaveValue('zeros')
    expect(page.url()).toBe(address)
  })

  test('are copied where the browser has no clipboard for pages without https', async ({ bare, page }) => {
    await page.addInitScript(() => Object.defineProperty(navigator, 'clipboard', { value: undefined }))
    await bare.open({ ...RUN, step: '20' })
    await expect(bare.node('conv1')).toBeVisible()
    const button = bare.frame.getByRole('button', { name: 'Copy link to this view' })
    await button.click()
    await expect(bare.frame.getByText('Link copied.')).toBeVisible()
    await expect(button).toBeFocused()
    await page.keyboard.press('/')
    const field = bare.frame.getByRole('combobox', { name: 'Path, class or shape' })
    await expect(field).toBeFocused()
    await page.keyboard.press('Control+v')
    await expect(field).toHaveValue(page.url())
    await expect(bare.frame.locator('.search-status')).toContainText('Nothing matches')
    const body = bare.frame.locator('.search-dialog')
    expect(await body.evaluate((dialog) => dialog.scrollWidth - dialog.clientWidth)).toBe(0)
  })

  test('unknown parts fall back with a notice', async ({ bare, problems }) => {
    await bare.open({ run: 'gone', model: 'resnet18', node: 'layer1/7/conv9' })
    await expect(bare.frame.getByRole('status').filter({ hasText: 'no module call “layer1.7' })).toBeVisible()
    await expect(bare.frame.getByRole('heading', { level: 1 })).toHaveText('layer1 Sequential')
    // The browser itself reports the refused requests.
    expect(problems.splice(0).every((problem) => problem.includes('404'))).toBe(true)
  })

  test('the address follows every choice inside TensorBoard and survives its other tabs', async ({
    tab,
    page,
  }) => {
    await tab.open(RUN)
    await tab.node('layer1').click()
    await expect(page).toHaveURL(/p\.torchexplorer\.node=layer1/)
    await page.getByRole('tab', { name: 'Scalars' }).click()
    await expect(page).not.toHaveURL(/#torchexplorer/)
    await page.getByRole('tab', { name: 'TorchExplorer' }).click()
    await expect(page).toHaveURL(/#torchexplorer.*p\.torchexplorer\.node=layer1/)
    await expect(tab.frame.getByRole('heading', { level: 1 })).toHaveText('layer1 Sequential')
  })
})

test.describe('panels', () => {
  test('NaN and Inf have badges and ticks, blanks their reasons', async ({ bare }) => {
    await bare.open({ ...RUN, panels: '0:layer3/1/conv2,1:.' })
    const broken = bare.panel('layer3.1.conv2').locator('.broken').first()
    await expect(broken).toHaveText('NaN and Inf in 4 steps')
    await expect(broken).toHaveAttribute('title', /NaN, \d+ \+Inf, first at step 30/)
    const whole = bare.panel('the whole model')
    await expect(whole.getByText('recorded only with root_input_grad=True').first()).toBeVisible()
    await expect(whole.getByText('Evaluation has no backward pass, hence no gradients.')).toHaveCount(1)
    // Value and gradient of the input and the output, and their values in evaluation.
    await expect(whole.locator('.plot')).toHaveCount(6)
  })

  test('the symlog axis, the lines and the gradients can be switched', async ({ bare, page }) => {
    await bare.open({ ...RUN, panels: '0:fc' })
    const panel = bare.panel('fc')
    const canvas = panel.getByRole('img').first()
    await expect(canvas).toBeVisible()
    const picture = (): Promise<string> =>
      canvas.evaluate((element: HTMLCanvasElement) => element.toDataURL())
    const linear = await picture()
    await bare.frame.getByRole('button', { name: 'Display' }).click()
    await bare.frame.getByRole('radio', { name: 'symlog' }).check()
    await expect.poll(picture).not.toBe(linear)
    const symlog = await picture()
    await bare.frame.getByRole('checkbox', { name: 'mean ± std lines' }).check()
    await expect.poll(picture).not.toBe(symlog)
    const count = await panel.getByRole('img').count()
    await bare.frame.getByRole('checkbox', { name: 'gradients', exact: true }).uncheck()
    await expect.poll(() => panel.getByRole('img').count()).toBeLessThan(count)
    await page.reload()
    await expect(bare.panel('fc').locator('.plot-grad')).toHaveCount(0)
  })

  test('the last display option can be reached in a low frame', async ({ bare, page }) => {
    await page.setViewportSize({ width: 900, height: 320 })
    await bare.open(RUN)
    await bare.frame.getByRole('button', { name: 'Display' }).click()
    await bare.frame.locator('.display .sheet').hover()
    await page.mouse.wheel(0, 1000)
    const last = bare.frame.getByRole('checkbox', { name: 'edges without gradient' })
    await expect(last).toBeInViewport({ ratio: 1 })
  })

  test('close, undo, full screen, table and CSV', async ({ bare, page }) => {
    await bare.open({ ...RUN, panels: '0:fc,1:conv1' })
    await bare.panel('fc').getByRole('button', { name: 'Close panel A' }).click()
    await expect(bare.panel('fc')).toBeHidden()
    await bare.frame.getByRole('button', { name: 'Undo' }).click()
    await expect(bare.panel('fc')).toBeVisible()

    await bare.panel('fc').getByRole('button', { name: 'Full screen' }).click()
    const dialog = bare.frame.getByRole('dialog')
    await expect(dialog.getByRole('img').first()).toBeVisible()
    expect((await inked(dialog.getByRole('img').first())).share).toBeGreaterThan(0.05)
    await dialog.getByRole('img').first().hover()
    // On top of the dialog: what the point at its corner belongs to, apart from its being transparent to the pointer.
    const onTop = await bare.frame.locator('.probe').evaluate((tip: HTMLElement) => {
      tip.style.pointerEvents = 'auto'
      const { left, top } = tip.getBoundingClientRect()
      return document.elementFromPoint(left + 4, top + 4) === tip
    })
    expect(onTop).toBe(true)
    await page.setViewportSize({ width: 800, height: 700 })
    await expect
      .poll(() => dialog.evaluate((element) => element.scrollWidth - element.clientWidth))
      .toBeLessThanOrEqual(0)
    await dialog.getByRole('button', { name: 'Next panel' }).click()
    await expect(dialog.getByRole('heading', { level: 2 })).not.toHaveText('fc')
    await page.keyboard.press('Escape')

    await bare
      .panel('fc')
      .getByRole('button', { name: /More about/ })
      .click()
    await bare.panel('fc').getByRole('button', { name: 'Data table' }).click()
    await expect(dialog.locator('tbody tr')).toHaveCount(40)
    await expect(dialog.locator('tbody tr').first().locator('td')).toHaveCount(9)
    await page.keyboard.press('Escape')

    await bare
      .panel('fc')
      .getByRole('button', { name: /More about/ })
      .click()
    const download = page.waitForEvent('download')
    await bare.panel('fc').getByRole('button', { name: 'Save as CSV' }).click()
    const file = await download
    expect(file.suggestedFilename()).toBe('fc.csv')
    expect(readFileSync(await file.path(), 'utf8')).toMatch(/^run,call,group,kind,tensor,phase,step,/)
  })

  test('the table counts in whole numbers and says what is a share', async ({ bare }) => {
    await bare.open({ ...RUN, panels: '0:layer3/1/conv2' })
    const panel = bare.panel('layer3.1.conv2')
    await panel.getByRole('button', { name: /More about/ }).click()
    await panel.getByRole('button', { name: 'Data table' }).click()
    const dialog = bare.frame.getByRole('dialog')
    await dialog.getByRole('combobox').selectOption('Params weight: value')
    const cells = dialog.locator('tbody tr').first().locator('td')
    await expect(cells.nth(4)).toHaveText(/%$/)
    await expect(cells.last()).toHaveText('5,000')
  })

  test('a table of nothing says so', async ({ bare, page }) => {
    await page.route('**/torchexplorer/series?**', async (route) => {
      const body = Buffer.from(await (await route.fetch()).body())
      const length = body.readUInt32LE(0)
      const head = JSON.parse(body.subarray(4, 4 + length).toString())
      const none = Buffer.from(JSON.stringify({ ...head, series: [] }).padEnd(length))
      await route.fulfill({ body: Buffer.concat([body.subarray(0, 4), none, body.subarray(4 + length)]) })
    })
    await bare.open({ ...RUN, panels: '0:fc' })
    await expect(bare.panel('fc')).toContainText('Nothing of this module is recorded.')
    await bare
      .panel('fc')
      .getByRole('button', { name: /More about/ })
      .click()
    await bare.panel('fc').getByRole('button', { name: 'Data table' }).click()
    await expect(bare.frame.getByRole('dialog')).toContainText('Nothing of this module is recorded.')
  })

  test('two runs stand together in a panel, on the same axes', async ({ bare }) => {
    await bare.open({ ...RUN, panels: '0:fc' })
    await bare.frame.getByRole('button', { name: /^Run/ }).click()
    await bare.frame.getByRole('checkbox', { name: 'Compare with resnet18/second' }).check()
    const panel = bare.panel('fc')
    await expect(panel.locator('.tag').filter({ hasText: 'resnet18/second' }).first()).toBeVisible()
    const tops = await panel
      .locator('.tensor')
      .first()
      .locator('.plot-value .plot-end.top')
      .evaluateAll((ends) => ends.map((end) => end.firstChild?.textContent))
    expect(tops.length).toBeGreaterThan(1)
    expect(new Set(tops).size).toBe(1)
  })
})

test.describe('the graph', () => {
  test('wheel, buttons and keys pan and zoom; the minimap shows when there is more', async ({
    bare,
    page,
  }) => {
    await bare.open(RUN)
    const node = bare.node('layer2')
    await expect(node).toBeVisible()
    const start = await boxOf(node)
    await expect(bare.frame.locator('.minimap')).toBeHidden()
    await page.mouse.move(start.x, start.y)
    await page.mouse.wheel(0, 60)
    await expect.poll(async () => (await boxOf(node)).y).toBeLessThan(start.y - 40)
    await bare.frame.getByRole('button', { name: 'Zoom in' }).click()
    await bare.frame.getByRole('button', { name: 'Zoom in' }).click()
    expect((await boxOf(node)).width).toBeGreaterThan(start.width * 1.4)
    await expect(bare.frame.locator('.minimap')).toBeVisible()
    await bare.frame.getByRole('button', { name: 'Fit the whole graph' }).click()
    await expect(bare.node('Output')).toBeInViewport()
    await page.keyboard.down('Control')
    await page.mouse.wheel(0, -200)
    await page.keyboard.up('Control')
    await expect.poll(async () => (await boxOf(node)).width).toBeGreaterThan(start.width * 1.3)
  })

  test('the view of a level is found again', async ({ bare, page }) => {
    await bare.open(RUN)
    const node = bare.node('layer1')
    await node.hover()
    await page.mouse.wheel(0, 50)
    await page.waitForTimeout(300)
    const before = await boxOf(node)
    await node.click()
    await page.goBack()
    await expect(node).toBeVisible()
    expect((await boxOf(node)).y).toBeCloseTo(before.y, 0)
  })

  test('repeated modules are folded, unfold on a click or when one is looked for, and fold again', async ({
    bare,
    page,
  }) => {
    await bare.open({ run: 'unrolled', model: 'model', panels: '0:7' })
    const stack = bare.node('0 … 11')
    await expect(stack).toContainText('Linear ×12')
    await expect(bare.frame.locator('.node', { has: stack }).locator('.mark.inside')).toHaveCount(1)
    await stack.click()
    await expect(bare.node('2')).toBeVisible()
    await bare.frame.getByRole('button', { name: 'Fold groups as at first' }).click()
    await expect(bare.node('2')).toHaveCount(0)

    await bare.panel('7').getByRole('button', { name: '7', exact: true }).click()
    await expect(bare.node('7')).toBeInViewport()
    await expect(bare.details.locator('.details-head')).toHaveText('7 Linear')
    await page.keyboard.press('Escape')
  })

  test('the divider moves by pointer and by keys', async ({ bare, page }) => {
    await bare.open(RUN)
    const [divider, graph] = [bare.frame.getByRole('separator'), bare.frame.locator('.graph')]
    await expect(bare.node('conv1')).toBeVisible()
    const before = (await boxOf(graph)).width
    const { x, y } = await boxOf(divider)
    await page.mouse.move(x + 4, y + 100)
    await page.mouse.down()
    await page.mouse.move(x + 154, y + 100, { steps: 3 })
    await page.mouse.up()
    expect((await boxOf(graph)).width).toBeGreaterThan(before + 120)
    await divider.focus()
    await page.keyboard.press('ArrowLeft')
    expect((await boxOf(graph)).width).toBeLessThan(before + 150)
  })

  test('it can be saved as SVG and PNG', async ({ bare, page }) => {
    await bare.open(RUN)
    await expect(bare.node('conv1')).toBeVisible()
    for (const [kind, start] of [
      ['SVG', '<svg xmlns'],
      ['PNG', '\u0089PNG'],
    ] as const) {
      await bare.frame.getByRole('button', { name: 'Save the graph' }).click()
      const download = page.waitForEvent('download')
      await bare.frame.getByRole('button', { name: `Graph as ${kind}` }).click()
      expect(readFileSync(await (await download).path(), 'latin1').startsWith(start)).toBe(true)
    }
  })
})
