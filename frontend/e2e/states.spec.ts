/** What the tab says where something is missing, broken or hostile. */
import { addresses } from './server.ts'
import { boxOf, expect, test } from './tab.ts'

const RUN = { run: 'resnet18/first', model: 'resnet18' }

test.describe('states', () => {
  test('a picture that the browser can not make is told', async ({ bare, page }) => {
    await page.addInitScript(() => {
      HTMLCanvasElement.prototype.toBlob = (use) => use(null)
    })
    await bare.open(RUN)
    await expect(bare.node('conv1')).toBeVisible()
    await bare.frame.getByRole('button', { name: 'Save the graph' }).click()
    await bare.frame.getByRole('button', { name: 'Graph as PNG' }).click()
    await expect(
      bare.frame.getByText('That did not work: the picture is too large for this browser'),
    ).toBeVisible()
  })

  test('without runs it says what to do', async ({ page, problems: _ }) => {
    await page.goto(`${addresses().empty}data/plugin_entry.html?name=torchexplorer`)
    await expect(page.getByRole('heading', { level: 1 })).toHaveText('No model is being watched yet')
    await expect(page.locator('pre')).toContainText('writer.watch(model, log_freq=100)')
  })

  test('when the server goes away all stays, with the cause and a way to retry', async ({
    bare,
    page,
    problems,
  }) => {
    await bare.open({ ...RUN, panels: '0:fc' })
    await expect(bare.panel('fc').getByRole('img').first()).toBeVisible()
    await page.route('**/plugin/torchexplorer/**', (route) => route.abort())
    await expect(
      bare.frame.getByRole('alert').filter({ hasText: 'TensorBoard does not answer' }),
    ).toBeVisible()
    await expect(bare.node('conv1')).toBeVisible()
    await expect(bare.panel('fc').getByRole('img').first()).toBeVisible()
    await page.unroute('**/plugin/torchexplorer/**')
    await bare.frame.getByRole('button', { name: 'Retry' }).first().click()
    await expect(bare.frame.getByRole('alert')).toHaveCount(0)
    expect(problems.splice(0).every((problem) => problem.includes('ERR_FAILED'))).toBe(true)
  })

  test('a panel whose module is not there says why', async ({ bare, problems }) => {
    await bare.open({ ...RUN, panels: '0:nowhere' })
    await expect(bare.panel('nowhere').getByRole('alert')).toContainText('No histories')
    await expect(bare.panel('nowhere').getByRole('button', { name: 'Retry' })).toBeVisible()
    expect(problems.splice(0).every((problem) => problem.includes('404'))).toBe(true)
  })

  test('what went wrong while recording is told', async ({ bare }) => {
    await bare.open({ run: 'resnet18/second', model: 'resnet18' })
    await bare.frame.locator('.warnings button').click()
    await expect(bare.frame.locator('.warnings .sheet')).toContainText('restarted at step')
    await expect(bare.frame.locator('.warnings .sheet')).toContainText('an example of a fault')
  })

  test('C75: hostile names are text, and the page stays whole', async ({ bare, page }) => {
    await bare.open({ run: 'unfriendly names', model: 'hostile' })
    await expect(bare.node('Input')).toBeVisible()
    const odd = bare.frame.locator('.node-main').filter({ hasText: '<img' })
    await odd.focus()
    await page.keyboard.press('Home')
    await page.keyboard.press('ArrowDown')
    await expect(bare.details).toContainText('<img src=x onerror')
    await page.keyboard.press('p')
    await expect(bare.frame.getByRole('article')).toBeVisible()

    expect(await page.title()).toBe('TorchExplorer')
    expect(await page.locator('img').count()).toBe(0)
    const { width } = await boxOf(odd)
    expect(width).toBeLessThan(260)
    expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)).toBe(true)
    await expect(bare.frame.locator('.node-title')).toHaveText(['Input', /^<img/, 'Input', 'Output'])
  })

  test('C79: it works where storage is blocked', async ({ bare, page }) => {
    await page.addInitScript(() => {
      Object.defineProperty(window, 'localStorage', {
        get() {
          throw new DOMException('blocked', 'SecurityError')
        },
      })
    })
    await bare.open(RUN)
    await expect(bare.node('conv1')).toBeVisible()
  })
})
