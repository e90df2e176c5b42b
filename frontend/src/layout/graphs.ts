/** Module graphs as real models have them, for tests, bench and gallery. Not part of the tab. */
import type { LayoutEdge, LayoutNode } from './types.ts'

export interface SampleNode extends LayoutNode {
  readonly label: string
  /** Class of the module; empty for functions and placeholders. */
  readonly className: string
}

export interface SampleGraph {
  readonly name: string
  readonly nodes: readonly SampleNode[]
  readonly edges: readonly LayoutEdge[]
}

/** Widths as the tab's fonts give them, near enough. */
const LABEL_WIDTH = 7
const CLASS_WIDTH = 6

class Sketch {
  readonly #nodes: SampleNode[] = []
  readonly #edges: LayoutEdge[] = []

  input(id: string): string {
    return this.#add(id, '', 'input', 28)
  }

  output(id: string): string {
    return this.#add(id, '', 'output', 28)
  }

  module(id: string, className: string): string {
    return this.#add(id, className, 'node', 42)
  }

  /** A function call, drawn without class: `add#2` is the second `add`. */
  call(id: string): string {
    return this.#add(id, '', 'node', 26)
  }

  /** Gradient edges from each node to the next; returns the last. */
  chain(...ids: string[]): string {
    ids.forEach((target, i) => {
      const source = ids[i - 1]
      if (source !== undefined) this.#edges.push({ source, target, kind: 'gradient' })
    })
    return ids.at(-1) ?? ''
  }

  data(source: string, target: string): void {
    this.#edges.push({ source, target, kind: 'data' })
  }

  named(name: string): SampleGraph {
    return { name, nodes: this.#nodes, edges: this.#edges }
  }

  #add(id: string, className: string, kind: LayoutNode['kind'], height: number): string {
    const label = id.split('#')[0] ?? id
    const width = Math.round(Math.max(label.length * LABEL_WIDTH, className.length * CLASS_WIDTH) + 26)
    this.#nodes.push({ id, label, className, kind, width: Math.max(className ? 88 : 40, width), height })
    return id
  }
}

export function resnet18(): SampleGraph {
  const g = new Sketch()
  const way = [g.input('input'), g.module('conv1', 'Conv2d'), g.module('bn1', 'BatchNorm2d')]
  way.push(g.module('relu', 'ReLU'), g.module('maxpool', 'MaxPool2d'))
  for (const i of [1, 2, 3, 4]) way.push(g.module(`layer${i}`, 'Sequential'))
  way.push(g.module('avgpool', 'AdaptiveAvgPool2d'), g.call('flatten'), g.module('fc', 'Linear'))
  g.chain(...way, g.output('output'))
  return g.named('resnet18')
}

export function basicBlock(downsample: boolean): SampleGraph {
  const g = new Sketch()
  const input = g.input('input')
  const way = [input, g.module('conv1', 'Conv2d'), g.module('bn1', 'BatchNorm2d'), g.module('relu', 'ReLU')]
  way.push(g.module('conv2', 'Conv2d'), g.module('bn2', 'BatchNorm2d'))
  const skip = downsample ? [input, g.module('downsample', 'Sequential')] : [input]
  const add = g.call('add')
  g.chain(...way, add, g.module('relu#2', 'ReLU'), g.output('output'))
  g.chain(...skip, add)
  return g.named(downsample ? 'basic block, downsample' : 'basic block')
}

export function encoderLayer(): SampleGraph {
  const g = new Sketch()
  const [src, mask] = [g.input('src'), g.input('src_mask')]
  const attention = g.module('self_attn', 'MultiheadAttention')
  g.data(mask, attention)
  const add = g.chain(src, attention, g.module('dropout1', 'Dropout'), g.call('add'))
  g.chain(src, add)
  const norm = g.chain(add, g.module('norm1', 'LayerNorm'))
  const feedForward = [g.module('linear1', 'Linear'), g.call('relu'), g.module('dropout', 'Dropout')]
  feedForward.push(g.module('linear2', 'Linear'), g.module('dropout2', 'Dropout'))
  const add2 = g.chain(norm, ...feedForward, g.call('add#2'))
  g.chain(norm, add2)
  g.chain(add2, g.module('norm2', 'LayerNorm'), g.output('output'))
  return g.named('encoder layer')
}

export function gpt2Block(): SampleGraph {
  const g = new Sketch()
  const [hidden, mask] = [g.input('hidden_states'), g.input('attention_mask')]
  const split = g.chain(
    hidden,
    g.module('ln_1', 'LayerNorm'),
    g.module('attn.c_attn', 'Conv1D'),
    g.call('split'),
  )
  const [q, k, v] = [g.call('q_heads'), g.call('k_heads'), g.call('v_heads')]
  for (const heads of [q, k, v]) g.chain(split, heads)
  const scores = g.chain(k, g.call('transpose'), g.call('matmul'))
  g.chain(q, scores)
  const masked = g.chain(scores, g.call('div'), g.call('mask'))
  g.data(mask, masked)
  const mixed = g.chain(masked, g.call('softmax'), g.module('attn_dropout', 'Dropout'), g.call('matmul#2'))
  g.chain(v, mixed)
  const projected = [
    g.call('merge_heads'),
    g.module('attn.c_proj', 'Conv1D'),
    g.module('resid_dropout', 'Dropout'),
  ]
  const add = g.chain(mixed, ...projected, g.call('add'))
  g.chain(hidden, add)
  const mlp = [g.module('ln_2', 'LayerNorm'), g.module('mlp.c_fc', 'Conv1D'), g.module('act', 'NewGELU')]
  mlp.push(g.module('mlp.c_proj', 'Conv1D'), g.module('mlp.dropout', 'Dropout'))
  const add2 = g.chain(add, ...mlp, g.call('add#2'))
  g.chain(add, add2)
  g.chain(add2, g.output('output'))
  g.chain(k, g.output('present_k'))
  g.chain(v, g.output('present_v'))
  return g.named('GPT-2 block')
}

export function unet(depth = 5): SampleGraph {
  const g = new Sketch()
  const encoded: string[] = []
  let last = g.input('input')
  for (let i = 0; i < depth; i++) {
    if (i > 0) last = g.chain(last, g.module(`pool${i - 1}`, 'MaxPool2d'))
    last = g.chain(last, g.module(`enc${i}`, 'DoubleConv'))
    encoded.push(last)
  }
  for (let i = depth - 2; i >= 0; i--) {
    const cat = g.chain(last, g.module(`up${i}`, 'ConvTranspose2d'), g.call(`cat${i}`))
    g.chain(encoded[i] ?? '', cat)
    last = g.chain(cat, g.module(`dec${i}`, 'DoubleConv'))
  }
  g.chain(last, g.module('outc', 'Conv2d'), g.output('output'))
  return g.named('U-Net')
}

export function denseBlock(layers: number): SampleGraph {
  const g = new Sketch()
  const features = [g.input('init_features')]
  for (let i = 1; i <= layers; i++) {
    const layer = g.module(`denselayer${i}`, '_DenseLayer')
    for (const feature of features) g.chain(feature, layer)
    features.push(layer)
  }
  const cat = g.call('cat')
  for (const feature of features) g.chain(feature, cat)
  g.chain(cat, g.output('output'))
  return g.named(`DenseNet block of ${layers}`)
}

export function inception(): SampleGraph {
  const g = new Sketch()
  const input = g.input('input')
  const conv = (name: string) => g.module(`branch${name}`, 'BasicConv2d')
  const ends = [
    g.chain(input, conv('1x1')),
    g.chain(input, conv('5x5_1'), conv('5x5_2')),
    g.chain(input, conv('3x3dbl_1'), conv('3x3dbl_2'), conv('3x3dbl_3')),
    g.chain(input, g.call('avg_pool2d'), conv('_pool')),
  ]
  const cat = g.call('cat')
  for (const end of ends) g.chain(end, cat)
  g.chain(cat, g.output('output'))
  return g.named('Inception')
}

/** With a discriminator that no autograd trace joins to the rest, a buffer and an unused module. */
export function vqvae(): SampleGraph {
  const g = new Sketch()
  const x = g.input('x')
  const encoded = g.chain(x, g.module('encoder', 'Encoder'), g.module('pre_vq_conv', 'Conv2d'))
  const quantised = g.module('vq', 'VectorQuantizerEMA')
  g.data(encoded, quantised)
  const decoder = g.chain(encoded, g.call('straight_through'), g.module('decoder', 'Decoder'))
  g.data(quantised, 'straight_through')
  const error = g.chain(decoder, g.call('mse_loss'))
  g.chain(x, error)
  const commitment = g.chain(encoded, g.call('commit_loss'))
  g.data(quantised, commitment)
  const loss = g.chain(error, g.call('add'))
  g.chain(commitment, loss)
  g.chain(decoder, g.output('x_recon'))
  g.chain(loss, g.output('loss'))
  const judged = g.chain(g.input('real_or_fake'), g.module('discriminator', 'PatchGAN'))
  g.chain(judged, g.module('disc_head', 'Conv2d'), g.output('logits'))
  g.module('ema_cluster_size', 'Buffer')
  g.module('unused_proj', 'Linear')
  return g.named('VQ-VAE')
}

export function chain(length: number): SampleGraph {
  const g = new Sketch()
  const layers = Array.from({ length }, (_, i) => `layers.${i}`)
  const way = [g.input('input'), ...layers.map((id) => g.module(id, 'DecoderLayer'))]
  g.chain(...way, g.module('norm', 'LayerNorm'), g.output('output'))
  return g.named(`chain of ${length}`)
}

export function encoderDecoder(layers = 6): SampleGraph {
  const g = new Sketch()
  const [src, tgt] = [g.input('src'), g.input('tgt')]
  let last = g.chain(src, g.module('src_embed', 'Embedding'))
  const target = g.chain(tgt, g.module('tgt_embed', 'Embedding'))
  for (let i = 0; i < layers; i++) last = g.chain(last, g.module(`encoder.${i}`, 'TransformerEncoderLayer'))
  const memory = g.chain(last, g.module('encoder.norm', 'LayerNorm'))
  last = target
  for (let i = 0; i < layers; i++) {
    last = g.chain(last, g.module(`decoder.${i}`, 'TransformerDecoderLayer'))
    g.chain(memory, last)
  }
  g.chain(last, g.module('decoder.norm', 'LayerNorm'), g.module('generator', 'Linear'), g.output('output'))
  return g.named('encoder-decoder')
}

export function mixtureOfExperts(experts: number): SampleGraph {
  const g = new Sketch()
  const hidden = g.input('hidden')
  const chosen = g.chain(hidden, g.module('gate', 'Linear'), g.call('topk'))
  const answers = Array.from({ length: experts }, (_, i) => g.module(`experts.${i}`, 'ExpertMLP'))
  const combine = g.call('combine')
  for (const expert of answers) {
    g.chain(hidden, expert, combine)
    g.chain(chosen, expert)
  }
  g.chain(chosen, combine)
  const add = g.chain(hidden, g.module('shared_expert', 'ExpertMLP'), g.call('add'))
  g.chain(combine, add, g.output('output'))
  return g.named(`mixture of ${experts} experts`)
}

/** Seven nodes a block, two skips each. */
export function residualChain(blocks: number): SampleGraph {
  const g = new Sketch()
  let last = g.input('input')
  for (let i = 0; i < blocks; i++) {
    const attention = [g.module(`ln_1#${i}`, 'LayerNorm'), g.module(`attn#${i}`, 'Attention')]
    const add = g.chain(last, ...attention, g.module(`dropout#${i}`, 'Dropout'), g.call(`add#${i}a`))
    g.chain(last, add)
    last = g.chain(add, g.module(`ln_2#${i}`, 'LayerNorm'), g.module(`mlp#${i}`, 'MLP'), g.call(`add#${i}b`))
    g.chain(add, last)
  }
  g.chain(last, g.output('output'))
  return g.named(`residual chain of ${blocks * 7} modules`)
}

export function parallel(branches: number): SampleGraph {
  const g = new Sketch()
  const [input, ids] = [
    g.input('input'),
    Array.from({ length: branches }, (_, i) => g.module(`heads.${i}`, 'Linear')),
  ]
  const cat = g.call('cat')
  for (const id of ids) g.chain(input, id, cat)
  g.chain(cat, g.output('output'))
  return g.named(`${branches} parallel branches`)
}

/** A module list of which one module is used. */
export function unusedModules(count: number): SampleGraph {
  const g = new Sketch()
  const input = g.input('input')
  for (let i = 0; i < count; i++) g.module(`heads.${i}`, 'Linear')
  g.chain(input, g.module('used', 'Linear'), g.output('output'))
  return g.named(`${count} unused modules`)
}

/** Rows of about 20 modules, each fed by one or two of the row above; one in twelve also from far above. */
export function randomLayered(count: number, seed = 7): SampleGraph {
  const g = new Sketch()
  const random = generator(seed)
  const pick = (row: readonly string[], position: number) =>
    row[Math.max(0, Math.min(row.length - 1, Math.floor(position)))] ?? ''
  const rows: string[][] = []
  for (let made = 0; made < count; ) {
    const width = Math.min(count - made, Math.max(4, Math.round(20 * (0.5 + random()))))
    const row = Array.from({ length: width }, (_, i) => g.module(`mod_${made + i}`, 'Linear'))
    const previous = rows.at(-1)
    row.forEach((target, i) => {
      if (!previous) return
      const position = (i / width) * previous.length
      const sources = new Set([pick(previous, position)])
      if (random() < 0.35) sources.add(pick(previous, position + (random() < 0.5 ? -1 : 1)))
      const far = rows[rows.length - 3 - Math.floor(random() * 20)]
      if (far && random() < 0.08) sources.add(pick(far, (i / width) * far.length + (random() - 0.5) * 4))
      for (const source of sources) g.chain(source, target)
    })
    rows.push(row)
    made += width
  }
  return g.named(`random graph of ${count}`)
}

/** mulberry32 by Tommy Ettinger (public domain): numbers in [0, 1), the same on each machine. */
export function generator(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296
  }
}

/** The thirteen graphs by which the layout's cost and crossings are judged. */
export function modelGraphs(): SampleGraph[] {
  return [
    resnet18(),
    basicBlock(true),
    basicBlock(false),
    encoderLayer(),
    gpt2Block(),
    unet(),
    denseBlock(6),
    denseBlock(12),
    inception(),
    vqvae(),
    encoderDecoder(),
    mixtureOfExperts(32),
    chain(48),
  ]
}

export function largeGraphs(): SampleGraph[] {
  return [residualChain(285), randomLayered(2000), parallel(500), denseBlock(100), unusedModules(500)]
}
