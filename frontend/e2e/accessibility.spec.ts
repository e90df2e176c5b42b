/** axe finds nothing, in both themes, in the states that a user sees; and all goes without a mouse. */

import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import type { Page } from '@playwright/test'
import { expect, type Tab, test } from './tab.ts'

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const RUN = { run: 'resnet18/first', model: 'resnet18' }

/** Rules that axe finds broken, with the elements. The page's policy forbids script tags, so axe is evaluated. */
async function violations(page: Page): Promise<string[]> {
  await page.evaluate(AXE)
  return page.evaluate(async () => {
    interface Axe {
      run(): Promise<{
        violations: { id: string; help: string; nodes: { html: string; failureSummary: string }[] }[]
      }>
    }
    const found = await (window as unknown as { axe: Axe }).axe.run()
    return found.violations.flatMap(({ id, help, nodes }) =>
      nodes.map(({ html, failureSummary }) => `${id}: ${help}\n${html}\n${failureSummary}`),
    )
  })
}

const STATES: readonly [name: string, prepare: (tab: Tab) => Promise<void>][] = [
  ['the root, nothing chosen', (tab) => tab.open(RUN)],
  [
    'a level with panels, colours and a pinned tooltip',
    async (tab) => {
      await tab.open({
        ...RUN,
        node: 'layer1/0',
        panels: '0:layer1/0/conv1,1:layer3/1/conv2,0:avgpool',
        color: 'zeros',
        step: '20',
      })
      await expect(tab.panel('layer3.1.conv2').getByRole('img').first()).toBeVisible()
      await tab.node('conv1').click()
    },
  ],
  [
    'the search',
    async (tab) => {
      await tab.open(RUN)
      await tab.frame.getByRole('button', { name: 'Search' }).click()
      await tab.frame.getByRole('combobox', { name: 'Path, class or shape' }).fill('conv')
      await expect(tab.frame.getByRole('listbox').getByRole('option').first()).toBeVisible()
    },
  ],
  [
    'the display options',
    async (tab) => {
      await tab.open(RUN)
      await tab.frame.getByRole('button', { name: 'Display' }).click()
    },
  ],
  [
    'the run list',
    async (tab) => {
      await tab.open(RUN)
      await tab.frame.getByRole('button', { name: /^Run/ }).click()
    },
  ],
  [
    'a panel in full screen',
    async (tab) => {
      await tab.open({ ...RUN, panels: '0:layer1/0/conv1,1:layer3/1/conv2' })
      await tab.frame.getByRole('button', { name: 'Full screen' }).first().click()
      await expect(tab.frame.getByRole('dialog').getByRole('img').first()).toBeVisible()
    },
  ],
  [
    'calls and runs together in a panel, one of which has none of it, with the list of calls',
    async (tab) => {
      await tab.open({
        run: 'resnet18/second',
        model: 'resnet18',
        compare: 'resnet18/first,several models',
        panels: '0:layer1/0/relu+layer1/0/relu%231,1:layer3/1/conv2',
      })
      const panel = tab.panel('layer1.0.relu')
      await expect(panel.getByRole('alert').first()).toBeVisible()
      await panel.getByRole('button', { name: 'Compare with other calls and layers' }).click()
      await expect(panel.getByRole('checkbox', { name: 'relu #2' })).toBeChecked()
      await expect(panel.locator('.restart').first()).toBeVisible()
    },
  ],
  [
    'the data table',
    async (tab) => {
      await tab.open({ ...RUN, panels: '0:fc' })
      await tab.frame.getByRole('button', { name: 'More about panel A' }).click()
      await tab.frame.getByRole('button', { name: 'Data table' }).click()
    },
  ],
]

for (const [name, prepare] of STATES) {
  test(`axe in light and dark: ${name}`, async ({ bare, page }) => {
    await prepare(bare)
    await expect(bare.node('relu').or(bare.frame.getByRole('dialog')).first()).toBeVisible()
    await page.waitForTimeout(200)
    expect(await violations(page)).toEqual([])
    await bare.goDark()
    await page.waitForTimeout(200)
    expect(await violations(page)).toEqual([])
  })
}

test('title and language are set', async ({ bare: tab, page }) => {
  await tab.open(RUN)
  await expect(tab.node('conv1')).toBeVisible()
  expect(await page.title()).toBe('TorchExplorer')
  await expect(tab.frame.locator('html')).toHaveAttribute('lang', 'en')
})

test('from the graph to a panel, its columns and out again by keyboard alone', async ({
  bare: tab,
  page,
}) => {
  await tab.open(RUN)
  await expect(tab.node('conv1')).toBeVisible()
  const stops = await tab.frame
    .locator('.world button')
    .evaluateAll((all) => all.filter((button) => button.tabIndex === 0).length)
  expect(stops).toBe(1)
  await tab.frame.locator('.world button[tabindex="0"]').focus()
  for (let press = 0; press < 4; press++) await page.keyboard.press('ArrowDown')
  await expect(tab.node('layer1')).toBeFocused()
  await page.keyboard.press('Enter')
  await expect(tab.frame.getByRole('heading', { level: 1 })).toHaveText('layer1 Sequential')

  // The focus goes along into the other level.
  await expect(tab.node('Input')).toBeFocused()
  await page.keyboard.press('ArrowDown')
  await page.keyboard.press('p')
  const panel = tab.panel('layer1.0')
  await expect(panel).toBeVisible()
  await panel.getByRole('button', { name: /More about/ }).focus()
  await page.keyboard.press('Enter')
  await panel.getByRole('button', { name: 'Move right' }).focus()
  await page.keyboard.press('Enter')
  await expect(tab.frame.locator('[data-column="1"]').getByRole('article')).toBeVisible()

  await tab.frame.locator('.world button[tabindex="0"]').focus()
  await page.keyboard.press('Backspace')
  await expect(tab.frame.getByRole('heading', { level: 1 })).toHaveText('ResNet')
  await expect(tab.node('layer1')).toBeFocused()

  await page.keyboard.press('Enter')
  await tab.frame.getByRole('button', { name: 'ResNet', exact: true }).focus()
  await page.keyboard.press('Enter')
  await expect(tab.node('layer1')).toBeFocused()
})

test('the focus is not taken at first, nor from where another run was chosen', async ({
  bare: tab,
  page,
}) => {
  await tab.open({ ...RUN, node: 'layer1' })
  await expect(tab.node('0')).toBeVisible()
  await expect(tab.frame.locator('body')).toBeFocused()
  await tab.frame.getByRole('button', { name: /^Run/ }).click()
  await tab.frame.getByRole('button', { name: /^several models/ }).click()
  await expect(tab.node('0')).toBeHidden()
  await expect(tab.frame.locator('.node-main').first()).toBeVisible()
  await page.waitForTimeout(100)
  await expect(tab.frame.getByRole('button', { name: /^Run/ })).toBeFocused()
})

test('buttons are at least 24 pixels high and wide', async ({ bare: tab }) => {
  await tab.open({ ...RUN, panels: '0:layer1/0/conv1' })
  await expect(tab.panel('layer1.0.conv1').getByRole('img').first()).toBeVisible()
  const small = await tab.frame.locator('button, select, input[type=range], summary').evaluateAll((all) =>
    all
      .filter((control) => control.closest('.world') === null)
      .map((control) => ({
        html: control.outerHTML.slice(0, 120),
        ...control.getBoundingClientRect().toJSON(),
      }))
      .filter(({ width, height }) => width < 24 || height < 24),
  )
  expect(small).toEqual([])
})

test('a dialog takes Escape from the moment it is there', async ({ bare: tab, page }) => {
  await tab.open(RUN)
  await expect(tab.node('layer1')).toBeVisible()
  const open = await page.evaluate(
    () =>
      new Promise<boolean>((resolve) => {
        new MutationObserver((_, observer) => {
          const dialog = document.querySelector('dialog')
          if (dialog === null) return
          observer.disconnect()
          resolve(dialog.open)
        }).observe(document.body, { childList: true, subtree: true })
        document.querySelector<HTMLElement>('[title^="Keys and help"]')?.click()
      }),
  )
  expect(open).toBe(true)
})
