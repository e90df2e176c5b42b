/** Graph layout: positions of nodes and polylines of edges. */
export { type Folded, fold, type Stack } from './fold.ts'
export { layout } from './layout.ts'
export { type Pen, roundedPath, trace } from './path.ts'
export type { Layout, LayoutEdge, LayoutNode, LayoutOptions, Placed, Point, Route } from './types.ts'
