/** Browser tests against a real `tensorboard`, in the system's Chromium ($CHROMIUM, else /usr/bin/chromium).
 *  $PYTHON names the interpreter that has the package's requirements, else python3. */
import { defineConfig } from '@playwright/test'

export default defineConfig({
  testDir: 'e2e',
  globalSetup: './e2e/server.ts',
  timeout: 60_000,
  expect: { timeout: 15_000 },
  // One server for both; tests only read, each in its own page. Of two, one goes on while the other waits.
  workers: 2,
  forbidOnly: Boolean(process.env.CI),
  reporter: [['list']],
  use: {
    viewport: { width: 1500, height: 920 },
    launchOptions: {
      executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
      args: [
        '--headless',
        '--no-sandbox',
        '--disable-gpu',
        '--disable-quic',
        '--no-first-run',
        '--disable-background-networking',
        '--disable-component-update',
        '--disable-sync',
      ],
    },
  },
})
