/** The step that is shown: its line, its slider, its colours. */
import { boxOf, expect, type Tab, test } from './tab.ts'

const RUN = { run: 'resnet18/first', model: 'resnet18' }

/** Position of the step line in a heat map, in pixels from its left edge; null while it is hidden. */
async function cursorAt(plot: ReturnType<Tab['panel']>): Promise<number | null> {
  return plot.locator('.cursor').evaluate((line) => {
    const { left } = line.getBoundingClientRect()
    const area = line.parentElement?.getBoundingClientRect().left ?? 0
    return getComputedStyle(line).display === 'none' ? null : Math.round(left - area)
  })
}

test.describe('steps and colours', () => {
  test('one line marks the step in all heat maps; pointer, keys and slider move it', async ({
    bare,
    page,
  }) => {
    await bare.open({ ...RUN, node: 'layer1/0', panels: '0:layer1/0/conv1,1:layer1/0/bn1' })
    const [one, other] = [bare.panel('layer1.0.conv1'), bare.panel('layer1.0.bn1')]
    const [first, second] = [one.locator('.plot').first(), other.locator('.plot').first()]
    await expect(second.locator('canvas')).toBeVisible()
    expect(await cursorAt(first)).toBeNull()

    const { x, y, width, height } = await boxOf(first.locator('canvas'))
    await page.mouse.move(x + width * 0.27, y + height / 2)
    await expect.poll(() => cursorAt(second)).toBeGreaterThan(width / 5)
    await expect(bare.frame.locator('.probe')).toContainText('step10')
    await expect(bare.frame.locator('.probe')).toContainText('mean ± std')
    await page.mouse.click(x + width * 0.27, y + height / 2)
    await expect(bare.frame.locator('output.step')).toHaveText('step 10')
    await page.mouse.move(5, 400)
    const rest = await cursorAt(second)
    await page.keyboard.press(']')
    await expect(bare.frame.locator('output.step')).toHaveText('step 11')
    expect(await cursorAt(second)).toBeGreaterThan(rest ?? Infinity)

    await bare.frame.getByRole('slider', { name: 'Step' }).fill('3')
    await expect(bare.frame.locator('output.step')).toHaveText('step 3')
    await expect(page).toHaveURL(/step=3(&|$)/)
  })

  test('brackets move it on keyboards that have them behind AltGr or Alt', async ({ bare, page }) => {
    await bare.open({ ...RUN, step: '20' })
    await expect(bare.frame.locator('.step')).toHaveText('step 20')
    for (const keys of [
      { key: ']', ctrlKey: true, altKey: true, modifierAltGraph: true },
      { key: ']', altKey: true },
    ])
      await page.evaluate((init) => document.body.dispatchEvent(new KeyboardEvent('keydown', init)), {
        ...keys,
        bubbles: true,
      })
    await expect(bare.frame.locator('.step')).toHaveText('step 22')
  })

  test('playing goes through the steps and ends at the latest', async ({ bare }) => {
    await bare.open({ ...RUN, step: '36' })
    await bare.frame.getByRole('button', { name: 'Play through the steps' }).click()
    await expect(bare.frame.locator('output.step')).toHaveText('step 39latest')
    await expect(bare.frame.getByRole('button', { name: 'Play through the steps' })).toBeVisible()
  })

  test('nodes take the colour and the number of a statistic, with a legend', async ({ bare, page }) => {
    await bare.open({ ...RUN, step: '20' })
    const node = bare.node('conv1')
    await expect(node).toContainText('Conv2d')
    const plain = await node.evaluate((button) => getComputedStyle(button).backgroundColor)
    await bare.frame.getByLabel('Colour by').selectOption('gradient')

    await expect(node.locator('.node-class')).toHaveText(/^[\d.]+(e[−\d]+)?$/)
    expect(await node.evaluate((button) => getComputedStyle(button).backgroundColor)).not.toBe(plain)
    await expect(bare.frame.locator('.legend')).toHaveText(/[\d.]+.*[\d.]+.*log/)
    const before = await node.textContent()
    await page.keyboard.press(']')
    await expect.poll(() => node.textContent()).not.toBe(before)
  })
})
