/** Another layout to compare with, in tests and benchmarks. */
import dagre from '@dagrejs/dagre'
import type { Graph } from './arbitraries.ts'
import type { Point } from './types.ts'

export function byDagre({ nodes, edges }: Graph): { source: string; target: string; points: Point[] }[] {
  const graph = new dagre.graphlib.Graph({ multigraph: true })
  graph.setGraph({})
  for (const { id, width, height } of nodes) graph.setNode(id, { width, height })
  edges.forEach(({ source, target }, i) => {
    graph.setEdge(source, target, {}, `${i}`)
  })
  dagre.layout(graph)
  return graph
    .edges()
    .map((edge) => ({ source: edge.v, target: edge.w, points: graph.edge(edge).points ?? [] }))
}
