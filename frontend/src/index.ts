/** Entry of the bundle: TensorBoard imports this module into an empty page and calls `render`. */
import { httpApi } from './api/http.ts'
import { show } from './show.ts'

export function render(): void {
  show(httpApi())
}
