/** What stands where there is nothing to show: why, and what to do about it. */
import type { JSX } from 'preact'

export interface FailureProps {
  readonly what: string
  readonly text: string
  readonly retry: () => void
  /** Over the graph that was there before, which stays. */
  readonly floating?: boolean
  /** Beside what could be loaded; `text` says all. */
  readonly quiet?: boolean
}

export function Failure({ what, text, retry, floating, quiet }: FailureProps): JSX.Element {
  return (
    <div class={`failure ${floating ? 'floating' : quiet ? 'quiet' : ''}`} role="alert">
      <p>
        {!quiet && <strong>{what}: </strong>}
        {text}
      </p>
      <button type="button" class="button" onClick={retry}>
        Retry
      </button>
    </div>
  )
}

export function GraphSkeleton(): JSX.Element {
  return (
    <div class="graph-skeleton" role="status" aria-label="Loading the graph">
      {[76, 104, 112, 96, 120, 84].map((width) => (
        <span key={width} class="bone" style={{ width: `${width}px` }} />
      ))}
    </div>
  )
}

const CALL = `from tensorboard_torchexplorer import ExplorerWriter

with ExplorerWriter("runs/first") as writer:
    writer.watch(model, log_freq=100)
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward(); optimizer.step(); optimizer.zero_grad()`

/** The whole page, while no run has records. */
export function NoRuns(): JSX.Element {
  return (
    <main class="empty-page">
      <h1>No model is being watched yet</h1>
      <p>
        TensorBoard found no TorchExplorer records in its log directory. Record some with one more line in the
        training script:
      </p>
      <pre>
        <code>{CALL}</code>
      </pre>
      <p class="muted">
        Then start TensorBoard with <code>--logdir runs</code>. This page looks again every few seconds; the
        graph appears with the first logged step.
      </p>
    </main>
  )
}

export function Waiting({ text }: { text: string }): JSX.Element {
  return (
    <main class="empty-page">
      <p role="status">{text}</p>
    </main>
  )
}
