/** Entry of the tab's bundle. TensorBoard imports this module into an empty page and calls `render`. */
import { httpApi } from './api/http.ts'
import { findHost } from './host.ts'
import { show } from './show.ts'

export function render(): void {
  document.title = 'TorchExplorer'
  show(httpApi(), findHost())
}
