/** The whole tab into a page whose body is free, over any source of answers. */
import { h, render as mount } from 'preact'
import type { Api } from './api/api.ts'
import type { Host } from './host.ts'
import { createStore } from './state/store.ts'
import css from './style/app.css?inline'
import { App } from './views/app.tsx'
import { type Extras, extrasFrom } from './views/later.ts'

export function show(api: Api, host: Host, loadExtras: () => Promise<Extras>): void {
  extrasFrom(loadExtras)
  document.documentElement.lang = 'en'
  if (document.querySelector('meta[name=viewport]') === null) {
    const viewport = document.createElement('meta')
    viewport.name = 'viewport'
    viewport.content = 'width=device-width, initial-scale=1'
    document.head.append(viewport)
  }
  const sheet = new CSSStyleSheet()
  sheet.replaceSync(css)
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet]
  document.body.replaceChildren()
  mount(h(App, { store: createStore(api, host) }), document.body)
}
