/** The tab inside a real TensorBoard, for tests: one server for all, one page for each. */
import { type ChildProcess, spawn } from 'node:child_process'
import { createInterface, type Interface } from 'node:readline'
import { test as base, expect, type FrameLocator, type Locator, type Page } from '@playwright/test'

export interface Server {
  /** A TensorBoard with runs, and one without. */
  readonly url: string
  readonly empty: string
  /** Ten more steps of the run "live" are on disk when this resolves. */
  log(): Promise<void>
}

/** TensorBoard's own fonts are missing from some of its packages. */
const TENSORBOARD_FONT = /\/(font-roboto|roboto)\/[^/]+\.woff2$/

export const test = base.extend<{ tab: Tab; problems: string[] }, { server: Server }>({
  server: [
    // biome-ignore lint/correctness/noEmptyPattern: Playwright reads the names of what a fixture needs
    async ({}, use) => {
      const process = spawn(globalThis.process.env.PYTHON ?? 'python3', ['e2e/serve.py'], {
        stdio: ['pipe', 'pipe', 'inherit'],
      })
      const lines = createInterface({ input: process.stdout })
      const addresses = JSON.parse(await nextLine(process, lines)) as Pick<Server, 'url' | 'empty'>
      await use({
        ...addresses,
        async log() {
          process.stdin.write('log\n')
          expect(await nextLine(process, lines)).toBe('done')
        },
      })
      process.stdin.end()
      await new Promise((resolve) => process.once('exit', resolve))
    },
    { scope: 'worker', timeout: 90_000 },
  ],

  /** Errors and refusals of the browser. A test fails with any; one that provokes some empties the list. */
  problems: async ({ page }, use) => {
    const problems: string[] = []
    page.on('console', (message) => {
      const font = TENSORBOARD_FONT.test(message.location().url)
      if (message.type() === 'error' && !font) problems.push(`${message.text()} (${message.location().url})`)
    })
    page.on('pageerror', (error) => problems.push(String(error)))
    await use(problems)
    expect(problems).toEqual([])
  },

  tab: async ({ page, server, problems: _ }, use) => {
    await use(new Tab(page, server.url))
  },
})

function nextLine(process: ChildProcess, lines: Interface): Promise<string> {
  return new Promise((resolve, reject) => {
    lines.once('line', resolve)
    process.once('exit', (code) => reject(new Error(`e2e/serve.py ended with ${code}`)))
  })
}

export type Theme = 'light' | 'dark'

/** What a user does and sees. */
export class Tab {
  readonly frame: FrameLocator

  constructor(
    readonly page: Page,
    readonly url: string,
  ) {
    this.frame = page.frameLocator('iframe[src*="name=torchexplorer"]')
  }

  /** Opens the tab by its address, as `make demo` prints it, with `parts` of a deep link. */
  async open(parts: Readonly<Record<string, string>> = {}, theme: Theme = 'light'): Promise<void> {
    const pairs = Object.entries(parts).map(
      ([key, value]) => `&p.torchexplorer.${key}=${encodeURIComponent(value)}`,
    )
    await this.page.goto(`${this.url}#torchexplorer${pairs.join('')}`)
    if (theme === 'dark') await this.switchTheme()
  }

  /** TensorBoard's own switch. */
  async switchTheme(): Promise<void> {
    await this.page.locator('app-header-dark-mode-toggle button').click()
    await this.page.getByRole('menuitem', { name: 'Dark' }).click()
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
