/** The segments between two rows in, their horizontal pieces out: which line bends at which height. */
import type { Segment, Vertex } from './model.ts'
import type { Point } from './types.ts'

/** Vertical pieces closer than this read as one line. */
const CLEAR = 6

/** Lines that share one horizontal piece, because they come from one source or merge into one port. */
interface Net {
  readonly tops: number[]
  readonly bottoms: number[]
  low: number
  high: number
  track: number
  /** Where the net had to be cut: the rest, which begins at this net's only bottom. */
  rest: Net | undefined
  readonly isRest: boolean
}

/** Sets `bends` of the segments of one gap, with y counted in tracks from 0, and returns the number of tracks.
 *
 *  Channel routing with one horizontal piece a net, as in Sander: "Layout of directed hypergraphs with orthogonal
 *  hyperedges" (2003). Where one net comes down at the x from which another goes on, the second must bend first, or
 *  the two would run over each other; a cycle of such needs is cut by a jog. Otherwise nets are sorted greedily by
 *  the crossings that saves, as in Eades, Lin, Smyth: "A fast heuristic for the feedback arc set problem" (1993). */
export function bendSegments(segments: readonly Segment[]): number {
  const bent = segments.filter((segment) => segment.topX !== segment.bottomX)
  if (bent.length === 0) return 0
  const netOf = groupIntoNets(bent)
  const jogs: number[] = []
  const taken = (): number[] => segments.flatMap(({ topX, bottomX }) => [topX, bottomX]).concat(jogs)
  const sorted = clusters([...new Set(netOf.values())]).flatMap((nets) =>
    sortNets(nets, (net) => jogs.push(cut(net, taken()))),
  )
  const tracks = assignTracks(sorted)
  for (const [segment, net] of netOf) segment.bends = bendsOf(segment, net)
  return tracks
}

function bendsOf({ topX, bottomX }: Segment, net: Net): Point[] {
  const jog = net.rest?.tops[0]
  const last = net.rest ?? net
  const ends = [
    { x: topX, y: net.track },
    { x: bottomX, y: last.track },
  ]
  if (jog !== undefined) ends.splice(1, 0, { x: jog, y: net.track }, { x: jog, y: last.track })
  return ends
}

function groupIntoNets(bent: readonly Segment[]): Map<Segment, Net> {
  const netOf = new Map<Segment, Net>()
  const known = new Map<Vertex, { x: number; weight: number; net: Net }[]>()
  for (const segment of bent) {
    const [end, x] = segment.merged ? [segment.bottom, segment.bottomX] : [segment.top, segment.topX]
    const atEnd = known.get(end) ?? []
    known.set(end, atEnd)
    let net = atEnd.find((other) => other.x === x && other.weight === segment.weight)?.net
    if (!net) {
      net = newNet([], [], false)
      atEnd.push({ x, weight: segment.weight, net })
    }
    if (!net.tops.includes(segment.topX)) net.tops.push(segment.topX)
    net.bottoms.push(segment.bottomX)
    net.low = Math.min(net.low, segment.topX, segment.bottomX)
    net.high = Math.max(net.high, segment.topX, segment.bottomX)
    netOf.set(segment, net)
  }
  return netOf
}

function newNet(tops: number[], bottoms: number[], isRest: boolean): Net {
  const ends = [...tops, ...bottoms]
  return { tops, bottoms, low: Math.min(...ends), high: Math.max(...ends), track: 0, rest: undefined, isRest }
}

/** Nets from left to right, in groups that don't reach into each other: each is sorted for itself. */
function clusters(nets: readonly Net[]): Net[][] {
  const found: Net[][] = []
  let end = Number.NEGATIVE_INFINITY
  for (const net of nets.toSorted((a, b) => a.low - b.low)) {
    if (net.low > end + CLEAR) found.push([])
    found.at(-1)?.push(net)
    end = Math.max(end, net.high)
  }
  return found
}

/** A net that still has no track. */
interface Waiting {
  readonly net: Net
  /** Crossings saved by taking it next. */
  gain: number
  /** Number of nets that must come before it. */
  waitsFor: number
}

/** From the top track to the bottom track. */
function sortNets(nets: readonly Net[], cut: (net: Net) => void): Net[] {
  if (nets.length === 1) return [...nets]
  const waiting: Waiting[] = []
  const add = (net: Net) => {
    const added: Waiting = { net, gain: 0, waitsFor: 0 }
    for (const other of waiting) if (overlap(net, other.net)) relate(added, other, 1)
    waiting.push(added)
  }
  for (const net of nets) add(net)
  const sorted: Net[] = []
  while (waiting.length > 0) {
    const next = takeFirst(waiting)
    if (next.waitsFor > 0) cut(next.net)
    for (const other of waiting) if (overlap(next.net, other.net)) relate(next, other, -1)
    sorted.push(next.net)
    if (next.net.rest) add(next.net.rest)
  }
  return sorted
}

/** The net that waits for the fewest others, and of these the one that saves most crossings. A rest comes last if it
 *  has to wait: as no other net waits for it, cutting it again would not help. */
function takeFirst(waiting: Waiting[]): Waiting {
  let best = 0
  for (let i = 1; i < waiting.length; i++) {
    const item = waiting[i] as Waiting
    const known = waiting[best] as Waiting
    const later = delay(item) - delay(known)
    if (later < 0 || (later === 0 && item.gain > known.gain)) best = i
  }
  return waiting.splice(best, 1)[0] as Waiting
}

function delay({ net, waitsFor }: Waiting): number {
  return waitsFor > 0 && net.isRest ? Number.MAX_VALUE : waitsFor
}

/** Add (`sign` 1) or take away (-1) what two waiting nets that overlap mean for each other's order. */
function relate(a: Waiting, b: Waiting, sign: 1 | -1): void {
  const gain = crossings(b.net, a.net) - crossings(a.net, b.net)
  a.gain += sign * gain
  b.gain -= sign * gain
  if (mustPrecede(a.net, b.net)) b.waitsFor += sign
  if (mustPrecede(b.net, a.net)) a.waitsFor += sign
}

function overlap(a: Net, b: Net): boolean {
  return a.low <= b.high + CLEAR && b.low <= a.high + CLEAR
}

/** Crossings of two nets if `upper` has the higher track; places where they run side by side count as well. */
function crossings(upper: Net, lower: Net): number {
  let sum = 0
  for (const x of upper.bottoms) {
    if (x > lower.low && x < lower.high) sum++
    for (const other of lower.tops) if (other - x < 2 * CLEAR && x - other < 2 * CLEAR) sum++
  }
  for (const x of lower.tops) if (x > upper.low && x < upper.high) sum++
  return sum
}

/** Does `upper` come down where `lower` goes on? */
function mustPrecede(upper: Net, lower: Net): boolean {
  for (const top of upper.tops)
    for (const bottom of lower.bottoms) if (top - bottom < CLEAR && bottom - top < CLEAR) return true
  return false
}

/** Let the net end at a free x between those `taken`, from where its rest goes on; returns that x. */
function cut(net: Net, taken: number[]): number {
  const middle = (net.low + net.high) / 2
  taken.sort((a, b) => a - b)
  let jog = (taken.at(-1) ?? 0) + 2 * CLEAR
  taken.forEach((x, i) => {
    const next = taken[i + 1] ?? Number.NEGATIVE_INFINITY
    const free = (x + next) / 2
    if (next - x >= 2 * CLEAR && Math.abs(free - middle) < Math.abs(jog - middle)) jog = free
  })
  net.rest = newNet([jog], net.bottoms.splice(0, net.bottoms.length, jog), true)
  net.low = Math.min(jog, ...net.tops)
  net.high = Math.max(jog, ...net.tops)
  return jog
}

/** The highest track free of earlier nets that overlap; returns the number of tracks. */
function assignTracks(sorted: readonly Net[]): number {
  let tracks = 0
  for (const net of sorted) {
    for (const other of sorted) {
      if (other === net) break
      if (other.track >= net.track && overlap(net, other)) net.track = other.track + 1
    }
    tracks = Math.max(tracks, net.track + 1)
  }
  return tracks
}
