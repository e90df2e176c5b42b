/** What kind of module a class is, for the stripe of its node. Pure. */
import type { Theme } from '../heatmap/colours.ts'

export type Family =
  | 'group'
  | 'convolution'
  | 'linear'
  | 'norm'
  | 'activation'
  | 'attention'
  | 'recurrent'
  | 'embedding'
  | 'regularisation'
  | 'pooling'
  | 'loss'
  | 'other'

/** First match wins; a class is looked at as PyTorch and the usual libraries name them. */
const PATTERNS: readonly [Family, RegExp][] = [
  ['attention', /attention|attn/i],
  ['embedding', /embed/i],
  ['norm', /norm/i],
  ['convolution', /conv(?!er)/i],
  ['recurrent', /lstm|gru|rnn|mamba|ssm/i],
  ['regularisation', /drop/i],
  ['pooling', /pool|sampl|flatten|reshape|shuffle|pad/i],
  [
    'activation',
    /(re|e|ge|se|ce|pre|si)lu|sigmoid|tanh|softmax|softplus|softsign|swish|mish|shrink|activation|hard/i,
  ],
  ['loss', /loss|criterion/i],
  ['linear', /linear|dense|mlp|proj/i],
]

/** `children`: how many invocations the module's own level has. */
export function familyOf(className: string, children: number): Family {
  const found = PATTERNS.find(([, pattern]) => pattern.test(className))?.[0]
  return found ?? (children > 0 ? 'group' : 'other')
}

const STRIPES: Readonly<Record<Family, readonly [light: string, dark: string]>> = {
  group: ['#6a5acd', '#9b8cf0'],
  convolution: ['#2f7fd0', '#58a6ec'],
  linear: ['#0f8f80', '#3fbfae'],
  norm: ['#b07d10', '#dcac45'],
  activation: ['#c0487a', '#e884ad'],
  attention: ['#c2471d', '#f08b62'],
  recurrent: ['#7d4fb3', '#bb90ea'],
  embedding: ['#3f8a3a', '#7cc274'],
  regularisation: ['#7a8594', '#939eac'],
  pooling: ['#66758a', '#9aa9bd'],
  loss: ['#b3261e', '#ff8f86'],
  other: ['#7a8594', '#939eac'],
}

export function stripeOf(family: Family, theme: Theme): string {
  return STRIPES[family][theme === 'light' ? 0 : 1]
}
