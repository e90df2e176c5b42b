/** Entry of the tab's bundle. TensorBoard imports this module into an empty page and calls `render`. */
import { httpApi } from './api/http.ts'
import { findHost } from './host.ts'
import { show } from './show.ts'

export function render(): void {
  document.title = 'TorchExplorer'
  // The file's name holds a hash of its content, and what it takes from this one it takes by name: what a server that
  // was updated behind our back has doesn't pass for it.
  show(httpApi(), findHost(), () => import('./views/extras.ts'))
}
