/** Entry of the bundle: TensorBoard imports this module into an empty page and calls `render`. */
import { h, render as mount } from 'preact'
import { httpApi } from './api/http.ts'
import { findHost } from './host.ts'
import { createStore } from './state/store.ts'
import css from './style/app.css?inline'
import { App } from './views/app.tsx'

export function render(): void {
  document.documentElement.lang = 'en'
  document.title = 'TorchExplorer'
  if (document.querySelector('meta[name=viewport]') === null) {
    const viewport = document.createElement('meta')
    viewport.name = 'viewport'
    viewport.content = 'width=device-width, initial-scale=1'
    document.head.append(viewport)
  }
  const sheet = new CSSStyleSheet()
  sheet.replaceSync(css)
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet]
  const store = createStore(httpApi(), findHost())
  mount(h(App, { store }), document.body)
}
