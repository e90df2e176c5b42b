/** The build of the tab: one ES module with its style sheet inside, and the licences of what it bundles.
 *
 *  Not library mode: that keeps white space (29.4 kB instead of 21.8 kB for a small Preact app). */
import { defineConfig } from 'vitest/config'

export default defineConfig({
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  build: {
    outDir: '../tensorboard_torchexplorer/static',
    emptyOutDir: true,
    target: 'es2022',
    modulePreload: false,
    license: { fileName: 'THIRD_PARTY_LICENSES.md' },
    rolldownOptions: {
      input: 'src/index.ts',
      preserveEntrySignatures: 'strict',
      output: { format: 'es', entryFileNames: 'index.js', codeSplitting: false },
    },
  },
  test: {
    // Property tests take seconds on a busy machine.
    testTimeout: 60_000,
    setupFiles: ['./test-setup.ts'],
    include: ['src/**/*.test.ts', 'src/**/*.test.tsx'],
    benchmark: { include: ['bench/**/*.bench.ts', 'src/**/*.bench.ts'] },
  },
})
