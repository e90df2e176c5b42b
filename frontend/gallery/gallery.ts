/** The tab with made-up answers: what you look at here is what the tests lay out. Choose a graph as "Model". */
import { findHost } from '../src/host.ts'
import { show } from '../src/show.ts'
import { sampleApi } from './samples.ts'

show(sampleApi(), findHost(), () => import('../src/views/extras.ts'))
