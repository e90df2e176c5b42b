/** Starts the Python scripts of the tests. `e2e/serve.py` runs for all tests, which find its addresses in the
 *  environment. */
import { type ChildProcess, spawn } from 'node:child_process'
import { createInterface } from 'node:readline'

export interface Addresses {
  /** A TensorBoard with runs, and one without. */
  readonly url: string
  readonly empty: string
  /** Path of a report file of some of them. */
  readonly report: string
  /** Ten more steps are logged to the run "training now" whenever this file exists; it is removed after. */
  readonly more: string
}

const VARIABLE = 'TORCHEXPLORER_E2E'

export default async function start(): Promise<() => Promise<void>> {
  const script = await startScript('serve.py')
  process.env[VARIABLE] = script.first
  return script.end
}

export function addresses(): Addresses {
  return JSON.parse(process.env[VARIABLE] ?? 'null') as Addresses
}

export interface Script {
  /** The first line that it printed. */
  readonly first: string
  /** Writes a line to it and waits for the next one that it prints. */
  ask(line: string): Promise<string>
  end(): Promise<void>
}

/** Runs `e2e/${name}` until `end`. */
export async function startScript(name: string): Promise<Script> {
  const child = spawn(process.env.PYTHON ?? 'python3', [`e2e/${name}`], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const lines = createInterface({ input: child.stdout })
  const next = (): Promise<string> =>
    new Promise((resolve, reject) => {
      const ended = (code: number | null): void => reject(new Error(`e2e/${name} ended with ${code}`))
      child.once('exit', ended)
      lines.once('line', (line) => {
        child.off('exit', ended)
        resolve(line)
      })
    })
  return {
    first: await next(),
    ask(line) {
      const answer = next()
      child.stdin.write(`${line}\n`)
      return answer
    },
    end: () => endOf(child),
  }
}

async function endOf(child: ChildProcess): Promise<void> {
  const exit = new Promise((resolve) => child.once('exit', resolve))
  child.stdin?.end()
  if (child.exitCode === null) await exit
}
