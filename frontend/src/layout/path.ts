/** A polyline in, the same line with rounded corners out. */
import type { Point } from './types.ts'

/** What a corner-rounding pen needs: `CanvasRenderingContext2D` and `Path2D` have it. */
export interface Pen {
  moveTo(x: number, y: number): void
  lineTo(x: number, y: number): void
  quadraticCurveTo(controlX: number, controlY: number, x: number, y: number): void
}

/** Draw the points with corners of at most `radius`; smaller where a piece is too short for two of them. */
export function trace(points: readonly Point[], radius: number, pen: Pen): void {
  const [start] = points
  if (!start) return
  pen.moveTo(start.x, start.y)
  points.forEach((corner, i) => {
    const [before, after] = [points[i - 1], points[i + 1]]
    if (!before) return
    if (!after) {
      pen.lineTo(corner.x, corner.y)
      return
    }
    const reach = Math.min(radius, length(before, corner) / 2, length(corner, after) / 2)
    const [from, to] = [towards(corner, before, reach), towards(corner, after, reach)]
    pen.lineTo(from.x, from.y)
    pen.quadraticCurveTo(corner.x, corner.y, to.x, to.y)
  })
}

/** The same as the `d` of an SVG path. */
export function roundedPath(points: readonly Point[], radius: number): string {
  const commands: string[] = []
  const write = (command: string, ...numbers: number[]) => {
    commands.push(command + numbers.map((number) => Math.round(number * 100) / 100).join(' '))
  }
  trace(points, radius, {
    moveTo: (x, y) => write('M', x, y),
    lineTo: (x, y) => write('L', x, y),
    quadraticCurveTo: (controlX, controlY, x, y) => write('Q', controlX, controlY, x, y),
  })
  return commands.join('')
}

function length(a: Point, b: Point): number {
  return Math.hypot(b.x - a.x, b.y - a.y)
}

function towards(from: Point, to: Point, distance: number): Point {
  const whole = length(from, to) || 1
  return {
    x: from.x + ((to.x - from.x) / whole) * distance,
    y: from.y + ((to.y - from.y) / whole) * distance,
  }
}
