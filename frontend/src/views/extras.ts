/** What the first view does not need. See later.ts. */
export { Help } from './help.tsx'
export { saveCsv, saveGraph, savePanelPicture } from './save.ts'
export { Search } from './search.tsx'
export { DataTable } from './table.tsx'
