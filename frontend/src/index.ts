/** Entry of the bundle. TensorBoard imports this module into an empty page and calls `render`; a report file
 *  holds it beside its records, which show themselves. */
import { httpApi } from './api/http.ts'
import { reportApi } from './api/report.ts'
import { findHost, ownHost } from './host.ts'
import { REPORT_ID } from './schema.ts'
import { show } from './show.ts'
import { message } from './state/resource.ts'

export function render(): void {
  document.title = 'TorchExplorer'
  show(httpApi(), findHost())
}

async function renderReport(records: Element): Promise<void> {
  const text = records.textContent ?? ''
  records.remove()
  try {
    show(await reportApi(text), ownHost())
  } catch (error) {
    document.body.textContent = message(error)
  }
}

const records = document.getElementById(REPORT_ID)
if (records !== null) void renderReport(records)
