/** What the first view does not need. See later.ts. */
export { Help } from './help.tsx'
export { saveCsv, saveGraph, savePanelPicture } from './save.ts'
export { DataTable } from './table.tsx'
