/** Entry of the bundle in a report file, which shows the records beside it. */
import { reportApi } from './api/report.ts'
import { ownHost } from './host.ts'
import { REPORT_ID } from './schema.ts'
import { show } from './show.ts'
import { message } from './state/resource.ts'
import * as extras from './views/extras.ts'

async function render(records: Element): Promise<void> {
  const text = records.textContent ?? ''
  records.remove()
  try {
    show(await reportApi(text), ownHost(), async () => extras)
  } catch (error) {
    document.body.textContent = message(error)
  }
}

const records = document.getElementById(REPORT_ID)
if (records !== null) void render(records)
