/** The segments between two rows in, their horizontal pieces out: which line bends at which height. */
import type { Segment, Vertex } from './model.ts'

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
  const taken = segments.flatMap((segment) => [segment.topX, segment.bottomX])
  const tracks = assignTracks(sortNets([...new Set(netOf.values())], taken))
  for (const [segment, net] of netOf) {
    const jog = net.rest?.tops[0]
    const way =
      jog === undefined
        ? []
        : [
            { x: jog, y: net.track },
            { x: jog, y: (net.rest ?? net).track },
          ]
    segment.bends = [
      { x: segment.topX, y: net.track },
      ...way,
      { x: segment.bottomX, y: (net.rest ?? net).track },
    ]
  }
  return tracks
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
      net = newNet([], [])
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

function newNet(tops: number[], bottoms: number[]): Net {
  const ends = [...tops, ...bottoms]
  return { tops, bottoms, low: Math.min(...ends), high: Math.max(...ends), track: 0, rest: undefined }
}

/** A net that still has no track. */
interface Waiting {
  readonly net: Net
  /** Crossings saved by taking it next. */
  gain: number
  /** Number of nets that must come before it. */
  waitsFor: number
}

/** From the top track to the bottom track. Jogs are added to the x already `taken` in this gap. */
function sortNets(nets: readonly Net[], taken: number[]): Net[] {
  const waiting = new Set<Waiting>()
  const add = (net: Net) => {
    const added: Waiting = { net, gain: 0, waitsFor: 0 }
    for (const other of waiting) relate(added, other, 1)
    waiting.add(added)
  }
  for (const net of nets) add(net)
  const sorted: Net[] = []
  while (waiting.size > 0) {
    const next = first(waiting)
    if (next.waitsFor > 0) cut(next.net, taken)
    waiting.delete(next)
    for (const other of waiting) relate(next, other, -1)
    sorted.push(next.net)
    if (next.net.rest) add(next.net.rest)
  }
  return sorted
}

function first(waiting: ReadonlySet<Waiting>): Waiting {
  let best: Waiting | undefined
  for (const item of waiting)
    if (!best || item.waitsFor < best.waitsFor || (item.waitsFor === best.waitsFor && item.gain > best.gain))
      best = item
  return best as Waiting
}

/** Add (`sign` 1) or take away (-1) what two waiting nets mean for each other's order. */
function relate(a: Waiting, b: Waiting, sign: 1 | -1): void {
  if (!overlap(a.net, b.net)) return
  const gain = crossings(b.net, a.net) - crossings(a.net, b.net)
  a.gain += sign * gain
  b.gain -= sign * gain
  if (mustPrecede(a.net, b.net)) b.waitsFor += sign
  if (mustPrecede(b.net, a.net)) a.waitsFor += sign
}

function overlap(a: Net, b: Net): boolean {
  return a.low <= b.high + CLEAR && b.low <= a.high + CLEAR
}

/** Crossings of two nets if `upper` has the higher track. */
function crossings(upper: Net, lower: Net): number {
  let sum = 0
  for (const x of upper.bottoms) if (x > lower.low && x < lower.high) sum++
  for (const x of lower.tops) if (x > upper.low && x < upper.high) sum++
  return sum
}

/** Does `upper` come down where `lower` goes on? */
function mustPrecede(upper: Net, lower: Net): boolean {
  return upper.tops.some((top) => lower.bottoms.some((bottom) => Math.abs(top - bottom) < CLEAR))
}

/** Let the net end at a free x, from where its rest goes on. */
function cut(net: Net, taken: number[]): void {
  const middle = (net.low + net.high) / 2
  taken.sort((a, b) => a - b)
  let jog = (taken.at(-1) ?? 0) + 2 * CLEAR
  taken.forEach((x, i) => {
    const next = taken[i + 1] ?? Number.NEGATIVE_INFINITY
    const free = (x + next) / 2
    if (next - x >= 2 * CLEAR && Math.abs(free - middle) < Math.abs(jog - middle)) jog = free
  })
  taken.push(jog)
  net.rest = newNet([jog], net.bottoms.splice(0, net.bottoms.length, jog))
  net.low = Math.min(jog, ...net.tops)
  net.high = Math.max(jog, ...net.tops)
}

/** The highest track free of earlier nets that overlap; returns the number of tracks. */
function assignTracks(sorted: readonly Net[]): number {
  let tracks = 0
  sorted.forEach((net, i) => {
    for (const other of sorted.slice(0, i))
      if (overlap(net, other)) net.track = Math.max(net.track, other.track + 1)
    tracks = Math.max(tracks, net.track + 1)
  })
  return tracks
}
