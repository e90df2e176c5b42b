/** What `layout` takes and returns. All lengths are CSS pixels at zoom 1. */

export interface LayoutNode {
  readonly id: string
  readonly width: number
  readonly height: number
  readonly kind: 'input' | 'output' | 'node'
}

/** `gradient`: an autograd trace exists; `data`: values flow, gradients don't. */
export interface LayoutEdge {
  readonly source: string
  readonly target: string
  readonly kind: 'gradient' | 'data'
}

/** Throws an Error that names the first end of an edge that is not `known`. */
export function checkEnds(edges: readonly LayoutEdge[], known: ReadonlyMap<string, unknown>): void {
  for (const { source, target } of edges)
    for (const id of [source, target])
      if (!known.has(id))
        throw new Error(
          `edge ${JSON.stringify(source)} -> ${JSON.stringify(target)}: no node ${JSON.stringify(id)}`,
        )
}

export interface Point {
  readonly x: number
  readonly y: number
}

export interface Placed {
  readonly id: string
  /** Centre of the node. */
  readonly x: number
  readonly y: number
  readonly width: number
  readonly height: number
  /** Row within the node's own connected part, from 0; 0 for nodes in the tray. */
  readonly rank: number
}

/** An orthogonal polyline from the source's border to the target's. The corners are sharp: see `roundedPath`. */
export interface Route {
  readonly source: string
  readonly target: string
  readonly kind: LayoutEdge['kind']
  readonly points: readonly Point[]
}

/** `nodes` and `edges` are in the order they were given; everything lies within `[0, width] x [0, height]`. */
export interface Layout {
  readonly nodes: readonly Placed[]
  readonly edges: readonly Route[]
  readonly width: number
  readonly height: number
}

export interface LayoutOptions {
  /** Empty border around the drawing. */
  readonly margin: number
  /** Least distance between neighbouring nodes of a row. */
  readonly nodeGap: number
  /** Least distance between a side lane and its neighbour. */
  readonly laneGap: number
  /** Least distance between rows; grows with the number of lines that bend between them. */
  readonly rankGap: number
  /** Distance between parallel horizontal lines. */
  readonly trackGap: number
  /** Distance between the ends of lines that meet at a node. */
  readonly portGap: number
  /** Distance between connected parts. */
  readonly partGap: number
  /** An input (output) at most this many rows from the top (bottom) is drawn in that row. One that is further
   *  away stays beside the module that uses (makes) it: a long line says less than a near label.
   *  0: always near; Infinity: always at the ends. */
  readonly placeholderReach: number
}

export const DEFAULTS: LayoutOptions = {
  margin: 16,
  nodeGap: 24,
  laneGap: 14,
  rankGap: 34,
  trackGap: 9,
  portGap: 14,
  partGap: 56,
  placeholderReach: 3,
}
