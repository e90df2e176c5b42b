/** Starts `e2e/serve.py` before all tests and ends it after them. Tests find the addresses in the environment. */
import { type ChildProcess, spawn } from 'node:child_process'
import { createInterface } from 'node:readline'

export interface Addresses {
  /** A TensorBoard with runs, and one without. */
  readonly url: string
  readonly empty: string
  /** Path of a report file of the runs. */
  readonly report: string
  /** Ten more steps are logged to the run "training now" whenever this file exists; it is removed after. */
  readonly more: string
}

const VARIABLE = 'TORCHEXPLORER_E2E'

export default async function start(): Promise<() => Promise<void>> {
  const child = spawn(process.env.PYTHON ?? 'python3', ['e2e/serve.py'], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  process.env[VARIABLE] = await firstLine(child)
  return async () => {
    child.stdin.end()
    await new Promise((resolve) => child.once('exit', resolve))
  }
}

export function addresses(): Addresses {
  return JSON.parse(process.env[VARIABLE] ?? 'null') as Addresses
}

function firstLine(child: ChildProcess & { readonly stdout: NodeJS.ReadableStream }): Promise<string> {
  return new Promise((resolve, reject) => {
    createInterface({ input: child.stdout }).once('line', resolve)
    child.once('exit', (code) => reject(new Error(`e2e/serve.py ended with ${code}`)))
  })
}
