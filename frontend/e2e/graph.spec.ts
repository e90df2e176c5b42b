/** The graph: groups, large levels, panels of whole levels, and the ways in which people look and move. */
import type { CDPSession, Locator, Page } from '@playwright/test'
import { boxOf, expect, inked, type Tab, test } from './tab.ts'

const RUN = { run: 'resnet18/first', model: 'resnet18' }
const GROUPS = { run: 'with groups', model: 'model' }
const LARGE = { run: 'very large', model: 'model' }

/** The only node that Tab stops at. */
async function tabStop(tab: Tab): Promise<string> {
  const stops = await tab.frame
    .locator('.world button[tabindex="0"] .node-title')
    .evaluateAll((titles) => titles.map((title) => title.textContent ?? ''))
  expect(stops).toHaveLength(1)
  return stops[0] ?? ''
}

/** Offset and zoom of the graph. */
async function viewOf(tab: Tab): Promise<{ x: number; y: number; scale: number }> {
  return tab.frame.locator('.world').evaluate((world) => {
    const { a, e, f } = new DOMMatrix(getComputedStyle(world).transform)
    return { x: e, y: f, scale: a }
  })
}

test.describe('a container that is never called', () => {
  test('is a group that a click unfolds; its frame and G fold it', async ({ bare, page }) => {
    await bare.open(GROUPS)
    const group = bare.node('blocks')
    await expect(group).toContainText('Block ×12')
    const before = await boxOf(group)
    await group.click()
    await expect(bare.node('blocks.0')).toBeFocused()
    const after = await boxOf(bare.node('blocks.0'))
    expect(after.y).toBeCloseTo(before.y, 0)
    expect(after.x + after.width / 2).toBeCloseTo(before.x + before.width / 2, 0)

    await bare.frame.getByRole('button', { name: 'Fold blocks' }).click()
    await expect(group).toBeFocused()
    await expect(bare.node('blocks.0')).toHaveCount(0)
    await page.keyboard.press('g')
    await expect(bare.node('blocks.0')).toBeFocused()
    await page.keyboard.press('ArrowDown')
    await expect(bare.node('blocks.1')).toBeFocused()
    await page.keyboard.press('g')
    await expect(group).toBeFocused()
  })

  test('stays unfolded where its parts differ, and folds into one box', async ({ bare }) => {
    await bare.open(GROUPS)
    await expect(bare.node('heads.box')).toBeVisible()
    await bare.frame.getByRole('button', { name: 'Fold heads' }).click()
    await expect(bare.node('heads')).toContainText('ModuleDict ×2')
    await expect(bare.node('heads.box')).toHaveCount(0)
    await bare.frame.getByRole('button', { name: 'Fold groups as at first' }).click()
    await expect(bare.node('heads.box')).toBeVisible()
  })

  test('unfolds for a module that was searched', async ({ bare, page }) => {
    await bare.open(GROUPS)
    await expect(bare.node('blocks')).toBeVisible()
    await page.keyboard.press('/')
    await bare.frame.getByRole('combobox', { name: 'Path, class or shape' }).fill('blocks.7')
    await expect(bare.frame.getByRole('listbox').getByRole('option').first()).toContainText('blocks.7')
    await page.keyboard.press('Enter')
    await expect(bare.node('blocks.7')).toBeInViewport()
  })
})

test('several kinds of modules in turn are one stack, which unfolds and folds again', async ({ bare }) => {
  await bare.open({ run: 'with layers in turn', model: 'model' })
  const stack = bare.node('0 … 9')
  await expect(stack).toContainText('5 × (Linear, Tanh)')
  await expect(bare.frame.locator('.node')).toHaveCount(3)
  await stack.click()
  await expect(bare.node('0')).toBeFocused()
  await expect(bare.node('4')).toBeVisible()
  await bare.frame.getByRole('button', { name: 'Fold 0 … 9' }).click()
  await expect(stack).toBeFocused()
})

test('a level of 2,000 is usable: folded, in slices, and all at once', async ({ bare, page }) => {
  await bare.open(LARGE)
  await expect(bare.node('0 … 1999')).toContainText('Linear ×2000')
  await bare.node('0 … 1999').click()
  await expect(bare.node('0 … 44')).toContainText('45 calls')
  await bare.node('0 … 44').click()
  await expect(bare.node('0')).toBeFocused()
  await bare.frame.getByRole('button', { name: 'Unfold all groups' }).click()
  await bare.frame.getByRole('button', { name: 'Fit the whole graph' }).click()
  await expect(bare.frame.locator('.node')).toHaveCount(1)
  expect((await inked(bare.frame.locator('.wires'))).share).toBeGreaterThan(0.001)

  await bare.frame.locator('.world button[tabindex="0"]').focus()
  await page.keyboard.press('End')
  await expect(bare.node('Output')).toBeInViewport()
  await page.keyboard.press('ArrowUp')
  await expect(bare.node('1999')).toBeFocused()
  expect(await bare.frame.locator('.node').count()).toBeLessThan(60)
})

test('the module whose graph is shown has a panel: by button, key, or from its input', async ({
  bare,
  page,
}) => {
  await bare.open(RUN)
  await bare.frame.getByRole('button', { name: 'Add panel for this module' }).click()
  const whole = bare.panel('the whole model')
  await expect(whole.getByRole('heading', { name: 'Output' })).toBeVisible()
  await whole.getByRole('button', { name: 'Close' }).click()
  await expect(whole).toHaveCount(0)

  await bare.node('conv1').focus()
  await page.keyboard.press('Shift+P')
  await expect(whole).toBeVisible()
  await expect(bare.panel('conv1')).toHaveCount(0)

  await bare.node('layer1').click()
  await bare.node('Input').focus()
  await page.keyboard.press('p')
  await expect(bare.panel('layer1')).toBeVisible()
})

test('a new user is at the histograms of a module deep inside after four clicks, at their names', async ({
  bare,
}) => {
  await bare.open()
  await expect(bare.frame.getByRole('heading', { name: 'No panels yet' })).toBeVisible()
  for (const title of ['layer1', '0', 'conv1']) await bare.node(title).click()
  await bare.frame.getByRole('button', { name: 'Add panel P' }).click()
  await expect(bare.panel('layer1.0.conv1').getByRole('img').first()).toBeVisible()
  await expect(bare.frame.getByRole('heading', { name: 'No panels yet' })).toHaveCount(0)
})

test('where a level can not be loaded, its parents still lead back', async ({ bare, page, problems }) => {
  await bare.open(RUN)
  await expect(bare.node('layer2')).toBeVisible()
  await page.route('**/graph?*', (route) => route.abort())
  await bare.node('layer2').click()
  await expect(bare.frame.getByRole('alert')).toContainText('The graph could not be loaded')
  await page.unroute('**/graph?*')
  await bare.frame.getByRole('navigation', { name: 'Parents' }).getByRole('button').click()
  await expect(bare.node('layer2')).toBeVisible()
  expect(problems.splice(0).every((problem) => problem.includes('ERR_FAILED'))).toBe(true)
})

test('arrow keys follow the edges, and the node they reach is the only tab stop', async ({ bare, page }) => {
  await bare.open({ ...RUN, node: 'layer1/0' })
  await expect(bare.node('conv1')).toBeVisible()
  await bare.frame.locator('.world button[tabindex="0"]').focus()
  for (const title of ['conv1', 'bn1', 'relu', 'conv2', 'bn2', 'relu', 'Output']) {
    await page.keyboard.press('ArrowDown')
    expect(await tabStop(bare)).toBe(title)
    await expect(bare.frame.locator('.node-main:focus .node-title')).toHaveText(title)
  }
  await page.keyboard.press('ArrowUp')
  await page.keyboard.press('ArrowUp')
  expect(await tabStop(bare)).toBe('bn2')
  await page.keyboard.press('Home')
  expect(await tabStop(bare)).toBe('Input')

  await bare.open(GROUPS)
  await bare.node('heads.box').focus()
  await page.keyboard.press('ArrowRight')
  expect(await tabStop(bare)).toBe('heads.label')
})

test('all targets in the graph are at least 24 pixels wide and high', async ({ bare }) => {
  await bare.open(GROUPS)
  await bare.node('blocks').click()
  await expect(bare.node('blocks.3')).toBeVisible()
  expect((await viewOf(bare)).scale).toBe(1)
  const sizes = await bare.frame
    .locator('.world button, .graph-tools button')
    .evaluateAll((all) => all.map((button) => button.getBoundingClientRect().toJSON()))
  expect(sizes.length).toBeGreaterThan(15)
  for (const { width, height } of sizes) expect(Math.min(width, height)).toBeGreaterThanOrEqual(24)
})

test.describe('forced colours', () => {
  for (const scheme of ['light', 'dark'] as const)
    test(`${scheme}: edges, borders and the selection take the system's colours`, async ({ bare, page }) => {
      await page.emulateMedia({ forcedColors: 'active', colorScheme: scheme })
      await bare.open({ ...RUN, node: 'layer1/0' })
      await bare.node('conv1').click()
      await expect(bare.details).toBeVisible()
      const found = await bare.frame.locator('.wires').evaluate((canvas: HTMLCanvasElement) => {
        const system = (name: string): string => {
          const probe = document.createElement('i')
          probe.style.color = name
          document.body.append(probe)
          const { color } = getComputedStyle(probe)
          probe.remove()
          return color
        }
        const drawn = canvas.getContext('2d')?.getImageData(0, 0, canvas.width, canvas.height).data ?? []
        const opaque = new Set<string>()
        for (let at = 0; at < drawn.length; at += 4)
          if (drawn[at + 3] === 255) opaque.add(`rgb(${drawn[at]}, ${drawn[at + 1]}, ${drawn[at + 2]})`)
        const style = (selector: string): CSSStyleDeclaration =>
          getComputedStyle(document.querySelector(selector) as Element)
        return {
          lines: [system('CanvasText'), system('LinkText')].map((colour) => opaque.has(colour)),
          border: style('.node-main').borderTopStyle,
          selected: style('.node.selected > .node-main').outlineWidth,
        }
      })
      expect(found).toEqual({ lines: [true, true], border: 'solid', selected: '4px' })
    })
})

test('with reduced motion nothing moves by itself', async ({ bare, page }) => {
  await page.emulateMedia({ reducedMotion: 'reduce' })
  await bare.open(RUN)
  await bare.node('conv1').focus()
  await page.keyboard.press('p')
  await expect(bare.panel('conv1').getByRole('img').first()).toBeVisible()
  const moving = await bare.frame.locator('body').evaluate(() =>
    [...document.querySelectorAll('*')]
      .filter((element) => {
        const { transitionDuration, animationName, scrollBehavior } = getComputedStyle(element)
        return (
          animationName !== 'none' ||
          scrollBehavior === 'smooth' ||
          transitionDuration.split(', ').some((time) => time !== '0s')
        )
      })
      .map((element) => element.outerHTML.slice(0, 80)),
  )
  expect(moving).toEqual([])
  expect(await bare.frame.locator('body').evaluate(() => document.getAnimations().length)).toBe(0)
})

test.describe('touch', () => {
  test.use({ hasTouch: true })

  async function touch(cdp: CDPSession, type: string, ...points: [number, number][]): Promise<void> {
    const touchPoints = points.map(([x, y], id) => ({ x, y, id }))
    await cdp.send('Input.dispatchTouchEvent', { type: type as 'touchStart', touchPoints })
  }

  async function tap(cdp: CDPSession, on: Locator): Promise<void> {
    const { x, y, width, height } = await boxOf(on)
    await touch(cdp, 'touchStart', [x + width / 2, y + height / 2])
    await touch(cdp, 'touchEnd')
  }

  async function start(bare: Tab, page: Page): Promise<{ cdp: CDPSession; x: number; y: number }> {
    await bare.open(RUN)
    await expect(bare.node('conv1')).toBeVisible()
    const { x, y } = await boxOf(bare.frame.locator('.pane'))
    return { cdp: await page.context().newCDPSession(page), x: x + 60, y: y + 300 }
  }

  test('one finger moves the graph, two fingers zoom it around their middle', async ({ bare, page }) => {
    const { cdp, x, y } = await start(bare, page)
    const before = await viewOf(bare)
    await touch(cdp, 'touchStart', [x, y])
    for (let step = 1; step <= 5; step++) await touch(cdp, 'touchMove', [x + step * 8, y - step * 6])
    await touch(cdp, 'touchEnd')
    const moved = await viewOf(bare)
    expect(moved.x - before.x).toBeCloseTo(40, 0)
    expect(moved.y - before.y).toBeCloseTo(-30, 0)

    await touch(cdp, 'touchStart', [x, y], [x + 40, y])
    for (let step = 1; step <= 5; step++)
      await touch(cdp, 'touchMove', [x - step * 4, y], [x + 40 + step * 4, y])
    await touch(cdp, 'touchEnd')
    const zoomed = await viewOf(bare)
    expect(zoomed.scale / moved.scale).toBeCloseTo(2, 1)
    const { x: left } = await boxOf(bare.frame.locator('.pane'))
    const middle = x + 20 - left
    expect((middle - zoomed.x) / zoomed.scale).toBeCloseTo((middle - moved.x) / moved.scale, 0)
  })

  test('a module can be dragged onto the board', async ({ bare, page }) => {
    const { cdp } = await start(bare, page)
    const from = await boxOf(bare.node('bn1'))
    const [x, y] = [from.x + from.width / 2, from.y + from.height / 2]
    const board = await boxOf(bare.frame.locator('.board'))
    await touch(cdp, 'touchStart', [x, y])
    for (let step = 1; step <= 6; step++)
      await touch(cdp, 'touchMove', [x + ((board.x + 80 - x) * step) / 6, y])
    await touch(cdp, 'touchEnd')
    await expect(bare.panel('bn1')).toBeVisible()
  })

  test('a tap shows the details of a module, or opens it', async ({ bare, page }) => {
    const { cdp } = await start(bare, page)
    await tap(cdp, bare.node('conv1'))
    await expect(bare.details).toContainText('Conv2d')
    await tap(cdp, bare.node('layer1'))
    await expect(bare.frame.getByRole('heading', { level: 1 })).toHaveText('layer1 Sequential')
  })
})
