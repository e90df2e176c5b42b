/** The tab inside a real TensorBoard, for tests: one server for all, one page for each. */
import { existsSync, writeFileSync } from 'node:fs'
import { test as base, expect, type FrameLocator, type Locator, type Page } from '@playwright/test'
import { addresses } from './server.ts'

/** What TensorBoard itself lacks: its own fonts in some packages, and an icon for pages other than its own. */
const TENSORBOARD_LACKS = /\/(font-roboto|roboto)\/[^/]+\.woff2$|^[^?]*\/favicon\.ico$/

export const test = base.extend<{ tab: Tab; bare: Tab; problems: string[] }>({
  /** Errors and refusals of the browser. A test fails with any; one that provokes some empties the list. */
  problems: async ({ page }, use) => {
    const problems: string[] = []
    page.on('console', (message) => {
      const known = TENSORBOARD_LACKS.test(message.location().url)
      if (message.type() === 'error' && !known) problems.push(`${message.text()} (${message.location().url})`)
    })
    page.on('pageerror', (error) => problems.push(String(error)))
    await use(problems)
    expect(problems).toEqual([])
  },

  tab: async ({ page, problems: _ }, use) => {
    await use(new Tab(page, addresses().url, page.frameLocator('iframe[src*="name=torchexplorer"]')))
  },

  /** The tab opened directly, without TensorBoard around it: the same page, there sooner. */
  bare: async ({ page, problems: _ }, use) => {
    await use(new Tab(page, `${addresses().url}data/plugin_entry.html?name=torchexplorer`, page))
  },
})

/** Ten more steps of the run "training now" are on disk when this resolves. */
export async function logMore(): Promise<void> {
  const { more } = addresses()
  writeFileSync(more, '')
  await expect.poll(() => existsSync(more)).toBe(false)
}

/** What a user does and sees. `frame` is where the tab is: TensorBoard's iframe, or the page itself. */
export class Tab {
  constructor(
    readonly page: Page,
    readonly url: string,
    readonly frame: FrameLocator | Page,
  ) {}

  /** Opens the tab by its address, as `make demo` prints it, with `parts` of a deep link. */
  async open(parts: Readonly<Record<string, string>> = {}): Promise<void> {
    const pairs = Object.entries(parts).map(
      ([key, value]) => `&p.torchexplorer.${key}=${encodeURIComponent(value)}`,
    )
    await this.page.goto(`${this.url}#torchexplorer${pairs.join('')}`)
  }

  /** TensorBoard's own switch; without TensorBoard the system's wish. */
  async goDark(): Promise<void> {
    if (this.frame === this.page) {
      await this.page.emulateMedia({ colorScheme: 'dark' })
    } else {
      await this.page.locator('app-header-dark-mode-toggle button').click()
      await this.page.getByRole('menuitem', { name: 'Dark' }).click()
    }
    await expect(this.frame.locator('html')).toHaveAttribute('data-theme', 'dark')
  }

  /** The button of the node with this title. */
  node(title: string): Locator {
    return this.frame
      .locator('.node-main')
      .filter({
        has: this.page.locator(`xpath=.//*[@class="node-title" and text()=${JSON.stringify(title)}]`),
      })
      .first()
  }

  breadcrumb(): Promise<string[]> {
    return this.frame.locator('.breadcrumb li').allInnerTexts()
  }

  panel(title: string): Locator {
    return this.frame.getByRole('article', { name: new RegExp(`^Panel \\w+: ${title}$`) })
  }

  get details(): Locator {
    return this.frame.locator('#details')
  }

  async drag(from: Locator, to: Locator, at = { x: 60, y: 60 }): Promise<void> {
    const [start, end] = [await boxOf(from), await boxOf(to)]
    await this.page.mouse.move(start.x + start.width / 2, start.y + start.height / 2)
    await this.page.mouse.down()
    await this.page.mouse.move(end.x + at.x - 20, end.y + at.y, { steps: 6 })
    await this.page.mouse.move(end.x + at.x, end.y + at.y)
    await this.page.mouse.up()
  }
}

export async function boxOf(
  locator: Locator,
): Promise<{ x: number; y: number; width: number; height: number }> {
  const box = await locator.boundingBox()
  if (box === null) throw new Error(`nothing is drawn of ${locator}`)
  return box
}

/** How many of a canvas's pixels are not transparent, and how many colours they have. */
export function inked(canvas: Locator): Promise<{ share: number; colours: number }> {
  return canvas.evaluate((element: HTMLCanvasElement) => {
    const context = element.getContext('2d')
    if (context === null) throw new Error('no context')
    const pixels = new Uint32Array(context.getImageData(0, 0, element.width, element.height).data.buffer)
    const drawn = pixels.filter((pixel) => pixel >>> 24 !== 0)
    return { share: drawn.length / pixels.length, colours: new Set(drawn).size }
  })
}

export { expect }
