/** What a layout costs: `npx vitest bench --run bench/layout.bench.ts`.
 *
 *  First a table of one cold run of each graph: what a user waits for who opens a level. It counts the CPU time of
 *  the whole process, compiler threads included. Then warm runs against dagre. Goals: the thirteen model graphs
 *  below 60 ms together, each large graph below 500 ms. */
import { bench, describe } from 'vitest'
import { byDagre } from '../src/layout/dagre.ts'
import { largeGraphs, modelGraphs } from '../src/layout/graphs.ts'
import { layout } from '../src/layout/layout.ts'
import { crossings } from '../src/layout/quality.ts'

const models = modelGraphs()
const large = largeGraphs()

const cold = [...models, ...large].map((graph) => {
  const begin = process.cpuUsage()
  const { edges, width, height } = layout(graph.nodes, graph.edges)
  const { user, system } = process.cpuUsage(begin)
  return { graph, cpu: (user + system) / 1000, edges, width, height }
})

console.table(
  Object.fromEntries(
    cold.map(({ graph, cpu, edges, width, height }) => [
      graph.name,
      {
        nodes: graph.nodes.length,
        edges: graph.edges.length,
        'cold CPU ms': Math.round(cpu * 10) / 10,
        size: `${Math.round(width)} x ${Math.round(height)}`,
        crossings: crossings(edges),
        'of dagre': models.includes(graph) ? crossings(byDagre(graph)) : '',
      },
    ]),
  ),
)
const sum = cold.slice(0, models.length).reduce((total, { cpu }) => total + cpu, 0)
console.log(`the thirteen model graphs: ${sum.toFixed(1)} ms CPU, cold`)

describe('thirteen model graphs', () => {
  bench('layout', () => {
    for (const { nodes, edges } of models) layout(nodes, edges)
  })
  bench('dagre', () => {
    for (const graph of models) byDagre(graph)
  })
})

for (const { name, nodes, edges } of large)
  describe(name, () => {
    bench(
      'layout',
      () => {
        layout(nodes, edges)
      },
      { iterations: 5, time: 0 },
    )
  })
