/** All keys, and how to read the pictures. */
import type { JSX } from 'preact'
import { Dialog } from './controls.tsx'

const KEYS: readonly (readonly [keys: readonly string[], does: string])[] = [
  [['←', '↑', '↓', '→'], 'go from node to node, up and down along the edges'],
  [['Enter'], 'open the inner graph of a module, or select it'],
  [['P'], 'add a panel for the node, with Shift for the module whose graph is shown'],
  [['Backspace'], 'go up to the parent (also Alt+↑)'],
  [['F'], 'centre the node'],
  [['G'], 'unfold a group, or fold the one that the node is in'],
  [['+', '−', '0'], 'zoom in, out, fit the whole graph'],
  [['[', ']'], 'previous and next step'],
  [['/'], 'search the whole model (also Ctrl+K)'],
  [['Esc'], 'close what is open'],
  [['?'], 'this list'],
]

export function Help({ onClose }: { onClose: () => void }): JSX.Element {
  return (
    <Dialog title="Keys and help" class="help-dialog" onClose={onClose}>
      <dl class="keys">
        {KEYS.map(([keys, does]) => (
          <div key={does}>
            <dt>
              {keys.map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
      <h3>With the mouse</h3>
      <p>
        Click a module to open it. Drag one to the right, or press its <b>+</b>, for a panel. The wheel moves
        the graph, with <kbd>Ctrl</kbd> it zooms. A click in a heat map sets the step.
      </p>
      <h3>How to read a heat map</h3>
      <p>
        Each upright slice is the distribution at one logged step: the background means no value, the faintest
        tint a single one, stronger more. Blue shows values, rust gradients: for inputs and outputs the
        gradient’s norm per sample. The dashed line is zero. Thin dashes are the exact smallest and largest
        value of the whole tensor; ▲ and ▼ name them where they lie beyond the axis, since outliers are left
        out of the slices. Red ticks mark steps with NaN or Inf.
      </p>
      <h3>How to read the graph</h3>
      <p>
        An edge means that a gradient can flow back along it; a dashed one that only values flow. A letter on
        a node names the panel that shows it.
      </p>
    </Dialog>
  )
}
