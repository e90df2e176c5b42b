/** The tip beside the pointer over a heat map: step, bin, count, share, statistics. */
import type { JSX } from 'preact'
import { useLayoutEffect, useRef } from 'preact/hooks'
import * as format from '../format.ts'
import { useStore } from './context.ts'
import { type Pointed, pointed } from './plot.tsx'

const OFFSET = 14

export function ProbeTip(): JSX.Element | null {
  const store = useStore()
  const at = pointed.value
  const tip = useRef<HTMLDivElement>(null)
  useLayoutEffect(() => {
    if (tip.current === null || at === null) return
    const { offsetWidth: width, offsetHeight: height } = tip.current
    const left = at.x + OFFSET + width > innerWidth ? at.x - OFFSET - width : at.x + OFFSET
    const top = at.y + OFFSET + height > innerHeight ? at.y - OFFSET - height : at.y + OFFSET
    tip.current.style.transform = `translate(${Math.max(0, left)}px, ${Math.max(0, top)}px)`
  }, [at])
  if (at === null) return null
  const ranks = store.ranksOf(at.step)
  const lines = linesOf(at)
  if (ranks !== undefined) lines.splice(1, 0, ['samples of', format.ranks(ranks)])
  return (
    <div class="probe" ref={tip} aria-hidden="true">
      <dl>
        {lines.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </div>
  )
}

type Line = readonly [name: string, value: string]

function linesOf(at: Pointed): Line[] {
  const lines: Line[] = [['step', format.whole(at.step)]]
  const time = at.history.time[at.index]
  const wall = at.history.wall[at.index]
  if (time !== null && time !== undefined) lines.push([at.history.unit || 'time', format.number(time, 6)])
  if (wall !== undefined) lines.push(['recorded', new Date(wall * 1000).toLocaleString()])
  if (at.history.restarts.includes(at.step)) lines.push(['restart', 'a new process went on here'])
  if (at.blank !== '') return [...lines, ['no value', at.blank], ...brokenLines(at)]
  const { rows } = at.plot.track
  const row = (name: 'min' | 'max' | 'mean' | 'std' | 'zeros' | 'size' | 'sampled'): number =>
    rows[name][at.index] as number
  const sampled = row('sampled') < row('size')
  const about = sampled ? ' ≈' : ''
  if (at.bin !== null) {
    const { low, high, entries, kept } = at.bin
    lines.push(['bin', low === high ? format.number(low) : format.range(low, high)])
    lines.push([
      'count',
      `${format.whole(entries)} of ${format.whole(kept)} (${format.percent(kept === 0 ? 0 : entries / kept)})`,
    ])
  }
  lines.push(['min … max', format.range(row('min'), row('max'))])
  lines.push([`mean ± std${about}`, `${format.number(row('mean'))} ± ${format.number(row('std'))}`])
  lines.push([`zeros${about}`, format.percent(row('zeros'))])
  lines.push([
    'elements',
    sampled
      ? `${format.count(row('size'))}, ${format.count(row('sampled'))} sampled`
      : format.count(row('size')),
  ])
  return [...lines, ...brokenLines(at)]
}

function brokenLines({ plot, index }: Pointed): Line[] {
  const { nan, posinf, neginf } = plot.track.rows
  const counts: Line[] = [
    ['NaN', format.whole(nan[index] as number)],
    ['+Inf', format.whole(posinf[index] as number)],
    ['−Inf', format.whole(neginf[index] as number)],
  ]
  return counts.filter(([, value]) => value !== '0')
}
