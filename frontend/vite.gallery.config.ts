/** `npm run gallery`: the tab over the golden graphs and the layout's samples, without Python. */
import { defineConfig } from 'vite'

export default defineConfig({
  root: 'gallery',
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  server: { fs: { allow: ['../..'] } },
})
