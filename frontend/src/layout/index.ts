/** Graph layout: positions of nodes and polylines of edges. */
export { type Fold, type Folded, fold } from './fold.ts'
export { layout } from './layout.ts'
export { type Pen, roundedPath, trace } from './path.ts'
export type { Layout, LayoutEdge, LayoutNode, LayoutOptions, Placed, Point, Route } from './types.ts'
