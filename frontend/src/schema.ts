// Generated from tensorboard_torchexplorer/schema by `python -m tensorboard_torchexplorer.schema_ts`.
// Don't edit: tests/test_schema.py compares this file with what the generator makes.

/**
 * The contract between the training process, the event file, the backend and the tab.
 *
 * Standard library only. `frontend/src/schema.ts` is generated from this package
 * (`python -m tensorboard_torchexplorer.schema_ts`), so a name means the same in Python, in JSON, in
 * TypeScript and on screen.
 *
 * The cast. A *module* is an `nn.Module` object of the watched model. An *invocation* (a `Node`) is one
 * call of a module within one forward of the root; a module called twice is two nodes that share one
 * `Module` entry. A *level* is what one invocation's forward did: its child invocations, its input and
 * output placeholders, and the edges between them. A *series* is the history of one tensor: one row
 * (a histogram with statistics) per logged step.
 */

/**
 * Version of everything below, on disk and over HTTP. Readers refuse a newer one with a clear text.
 */
export const VERSION = 1

export const PLUGIN_NAME = 'torchexplorer'

/**
 * Id of the root invocation. Ids of others are paths of calls, see `Node.id`.
 */
export const ROOT_ID = '.'

export type Phase = 'train' | 'eval'

export type Group = 'input' | 'output' | 'param'

export type Kind = 'value' | 'grad'

export type EdgeKind = 'gradient' | 'data'

export type EndKind = 'input' | 'node' | 'output' | 'outside'

export const PHASES = [
  'train',
  'eval',
] as const

export const GROUPS = [
  'input',
  'output',
  'param',
] as const

export const KINDS = [
  'value',
  'grad',
] as const

/**
 * One tensor leaf that enters or leaves an invocation.
 *
 * `name` is the argument's name and the path inside it, as one would write it in Python: `x`,
 * `hidden_states[1]`, `out.logits`. `shape` is that of the first pass, with None where later passes
 * differed, and None as a whole where a tensor has none (nested). `requires_grad` says whether
 * autograd reached the port in the first pass.
 */
export interface Port {
  readonly name: string
  readonly shape: readonly (number | null)[] | null
  readonly dtype: string
  readonly requires_grad: boolean
}

/**
 * An immediate parameter (`module._parameters`). `shared` is the path of the first owner of the
 * same object, empty if this is the first or only one.
 */
export interface Parameter {
  readonly name: string
  readonly shape: readonly number[] | null
  readonly dtype: string
  readonly requires_grad: boolean
  readonly shared: string
}

/**
 * A module of the model. `path` is its name in `named_modules()` (empty for the root).
 *
 * `extra` is `extra_repr()` split on top-level commas: `key=value` becomes [key, value], anything
 * else ["", value]. `flags` are short words for the tab's badges: "unregistered" (held in a plain
 * list, the optimizer can't see it), "excluded", "scripted", "parametrized: weight_norm".
 * `container` is the class of a ModuleList / ModuleDict / ParameterList parent, else empty.
 */
export interface Module {
  readonly path: string
  readonly class_name: string
  readonly extra: readonly (readonly string[])[]
  readonly parameters: readonly Parameter[]
  readonly flags: readonly string[]
  readonly container: string
}

/**
 * One invocation.
 *
 * `id` is the path of calls from the root: `layer1/0/conv1`; the second call of the same module in
 * the same parent invocation ends in `#1`. Each part is the module's path relative to the calling
 * module where it lies below it, else its full path after a `^`; `%`, `/`, `#` and `^` in names are
 * percent-escaped. Ids are stable between steps and between runs of the same model.
 * `module` and `parent` index `Graph.modules` and `Graph.nodes` (parent of the root: -1).
 * `call` counts the calls of this module within the parent invocation, from 0.
 * `arguments` are the non-tensor arguments as [name, short text]. `notes` are facts about the
 * invocation worth a badge: "fused", "called by .forward()", "recursion cut at depth 64".
 */
export interface Node {
  readonly id: string
  readonly module: number
  readonly parent: number
  readonly call: number
  readonly inputs: readonly Port[]
  readonly outputs: readonly Port[]
  readonly arguments: readonly (readonly string[])[]
  readonly notes: readonly string[]
}

/**
 * One end of an edge: the `index`-th input or output placeholder of the level, or the node with
 * that index in `Graph.nodes`. "outside": a tensor that came by attribute or closure (index 0).
 */
export type End = readonly [kind: EndKind, index: number]

/**
 * A -> B within the forward of the invocation `level` (an index of `Graph.nodes`).
 *
 * "gradient": a differentiable path leads from an output of A to an input of B, where every module
 * output and every parent input counts as a fresh differentiable source. "data": values flow, but
 * no gradient can. At most one edge per pair. `implicit`: through an attribute, closure or global,
 * not through arguments and results.
 */
export interface Edge {
  readonly level: number
  readonly source: End
  readonly target: End
  readonly kind: EdgeKind
  readonly implicit: boolean
}

/**
 * Where the history of one tensor lies: row `row` of shard `shard`.
 *
 * Inputs and outputs belong to an invocation (`node` >= 0, `module` = -1; `index` counts its ports),
 * parameters to a module (`module` >= 0, `node` = -1; `index` counts `Module.parameters`).
 * `group` "param" with `index` -1: a computed tensor of the module, named by `name` (attached
 * tensors, effective weights of parametrizations).
 */
export interface Series {
  readonly node: number
  readonly module: number
  readonly group: Group
  readonly kind: Kind
  readonly index: number
  readonly name: string
  readonly shard: number
  readonly row: number
}

/**
 * All invocations of a model that any logged step has seen; only ever grows while a run lasts.
 */
export interface Graph {
  readonly model: string
  readonly modules: readonly Module[]
  readonly nodes: readonly Node[]
  readonly edges: readonly Edge[]
  readonly series: readonly Series[]
  readonly bins: number
  readonly options: Readonly<Record<string, unknown>>
  readonly version: number
}

/**
 * Columns of a row, as numpy type codes in memory (events.py narrows them on disk). A row also has
 * `counts`: `bins` whole numbers, how many kept sampled values fell into each bin.
 */
export const ROW_FIELDS = [
  ['status', 'u1'], // index into STATUS; all else is 0 unless status is 0
  ['size', 'u8'], // elements of the tensor (per-sample norms: of the batch)
  ['sampled', 'u4'], // elements looked at for bins, mean, std, zeros; == size: exact
  ['nan', 'u8'], // exact over the whole tensor, like posinf, neginf, min, max
  ['posinf', 'u8'],
  ['neginf', 'u8'],
  ['min', 'f8'], // of the finite values; NaN where there is none
  ['max', 'f8'],
  ['low', 'f8'], // the bins are equal and cover [low, high], both ends closed
  ['high', 'f8'],
  ['mean', 'f8'], // of the finite sampled values, outliers included
  ['std', 'f8'], // population standard deviation of the same
  ['zeros', 'f8'], // share of exact zeros among the same, 0..1
] as const

/**
 * Why a row is blank; `status` 0 means that it is not. Append only: the numbers are on disk.
 */
export const STATUS = [
  '',
  'this invocation did not run in this step',
  'no gradient reached it in this step',
  'frozen: requires_grad is False',
  'evaluation: there is no backward pass',
  'the tensor is empty',
  'sparse layout: not recorded',
  'nested tensor: not recorded',
  'meta tensor: it holds no data',
  'this dtype has no histogram',
  'the gradient of a model input is recorded only with root_input_grad=True',
  'lost to an in-place operation before it could be read',
  "an error while recording; see the run's faults",
  'not initialised yet (lazy module)',
  'excluded by the watch options',
  'not differentiable: integer or boolean tensor',
  'inside a compiled or transformed region: not observed',
  'no backward pass completed in this step',
  'a wrapper tensor that holds no plain values',
  'it requires no gradient: data, detached, or made of such',
  'its memory had been freed: sharded or offloaded',
] as const

/**
 * Names for the entries of `STATUS`.
 */
export const Status = {
  OK: 0,
  NOT_RUN: 1,
  NO_GRADIENT: 2,
  FROZEN: 3,
  EVAL: 4,
  EMPTY: 5,
  SPARSE: 6,
  NESTED: 7,
  META: 8,
  DTYPE: 9,
  ROOT_INPUT: 10,
  OVERWRITTEN: 11,
  FAULT: 12,
  LAZY: 13,
  EXCLUDED: 14,
  NOT_DIFFERENTIABLE: 15,
  NOT_OBSERVED: 16,
  NO_BACKWARD: 17,
  SUBCLASS: 18,
  REQUIRES_NONE: 19,
  FREED: 20,
} as const

/**
 * Statistics of a node for colouring, one number per node and logged step; NaN where unknown.
 */
export const HEALTH = [
  'gradient', // mean per-sample gradient norm of the outputs, the largest over outputs
  'output_std', // standard deviation of the outputs, the largest over outputs
  'zeros', // share of zeros in the outputs, the largest over outputs
  'nonfinite', // NaN and Inf values in outputs, gradients and parameters together
  'parameter', // root mean square of the immediate parameters
  'parameter_gradient', // root mean square of their gradients
  'update', // length of the last update over length of the parameter, the largest over parameters
] as const

/**
 * An error inside our own hooks. `place` says what was being recorded, `path` the module.
 */
export interface Fault {
  readonly path: string
  readonly place: string
  readonly error: string
}

/**
 * What is known of one logged step apart from its rows.
 *
 * `step` counts optimizer steps from 0; `wall` is seconds since 1970; `time` is the user's own time
 * value (`time_log`) or None. `forwards` counts the root forwards of the step, of which the first is
 * recorded. `ran` are the indices of the nodes that ran, as [first, count] ranges. `scale` is the
 * loss scale of a GradScaler (the gradients shown are divided by it) or None, `skipped` whether the
 * optimizer skipped the step. `dropped` counts records lost so far because the writer was too slow.
 * `session` changes when the process does, which marks restarts. `ranks` is how many ranks of a
 * distributed training the samples are of, `missing` names those whose samples should be among them.
 */
export interface StepInfo {
  readonly step: number
  readonly wall: number
  readonly time: number | null
  readonly forwards: number
  readonly ran: readonly (readonly number[])[]
  readonly scale: number | null
  readonly skipped: boolean
  readonly dropped: number
  readonly session: string
  readonly faults: readonly Fault[]
  readonly ranks: number
  readonly missing: readonly number[]
  readonly version: number
}

/**
 * A watched model of a run. `token` changes whenever there is something new to fetch. `steps`
 * counts its logged training steps, `first` and `last` are the step numbers (-1: none yet).
 * `problem` is empty, or says why it can't be shown (newer version, damaged).
 */
export interface ModelEntry {
  readonly name: string
  readonly token: string
  readonly steps: number
  readonly first: number
  readonly last: number
  readonly problem: string
}

/**
 * A run directory that holds explorer records.
 */
export interface RunEntry {
  readonly name: string
  readonly models: readonly ModelEntry[]
}

/**
 * Answer of `runs`.
 */
export interface Runs {
  readonly runs: readonly RunEntry[]
  readonly version: number
}

/**
 * Answer of `steps`: the logged steps of both phases, ascending, all of them.
 * `unit` is the user's time unit ("" without `time_log`). `restarts` are the steps at which a new
 * process went on. `wall` and `time` go with the sorted union of both phases' steps; `skipped` are the
 * steps that a loss scaler skipped. `ranks` are the steps with samples of several ranks, or lacking some, as
 * [step, of how many it holds, those that it lacks...], see `StepInfo`.
 */
export interface Steps {
  readonly train: readonly number[]
  readonly eval: readonly number[]
  readonly wall: readonly number[]
  readonly time: readonly (number | null)[]
  readonly unit: string
  readonly skipped: readonly number[]
  readonly restarts: readonly number[]
  readonly faults: readonly Fault[]
  readonly dropped: number
  readonly ranks: readonly (readonly number[])[]
  readonly version: number
}

/**
 * A node of a level, with what the tab shows of its module. `index` is that of `Graph.nodes`.
 *
 * `name` is the module's path relative to the level's module (its full path where it lies
 * elsewhere). `calls` is how often the level calls this module; `children` how many invocations
 * its own level has; `ran` in how many logged training steps it ran. `size` counts the parameters
 * of the module and all below it, each once.
 */
export interface LevelNode {
  readonly index: number
  readonly id: string
  readonly name: string
  readonly path: string
  readonly class_name: string
  readonly call: number
  readonly calls: number
  readonly children: number
  readonly ran: number
  readonly size: number
  readonly extra: readonly (readonly string[])[]
  readonly inputs: readonly Port[]
  readonly outputs: readonly Port[]
  readonly arguments: readonly (readonly string[])[]
  readonly parameters: readonly Parameter[]
  readonly flags: readonly string[]
  readonly notes: readonly string[]
  readonly container: string
}

/**
 * Answer of `graph`: one level. `node` is the invocation whose forward this is, `ancestors` lead
 * from the root to its parent as [id, name, class]. Ends of kind "node" in `edges` carry the
 * `LevelNode.index` of one of `nodes`. `steps` counts the logged training steps.
 */
export interface Level {
  readonly model: string
  readonly node: LevelNode
  readonly ancestors: readonly (readonly string[])[]
  readonly nodes: readonly LevelNode[]
  readonly edges: readonly Edge[]
  readonly steps: number
  readonly bins: number
  readonly version: number
}

/**
 * One hit of a search. `level` is the id of the level that shows the node `id`.
 */
export interface Match {
  readonly id: string
  readonly level: string
  readonly path: string
  readonly class_name: string
  readonly shape: string
}

/**
 * Answer of `search`: the first hits in graph order, and how many there are in all.
 */
export interface Matches {
  readonly matches: readonly Match[]
  readonly total: number
  readonly version: number
}

/**
 * Answer of `health`: `own[i]` for the node index `nodes[i]` at the logged step `step` (None:
 * unknown), `worst[i]` the largest over it and everything below it. `low` and `high` are the
 * smallest and largest finite value over all steps and nodes, for a steady legend.
 */
export interface Health {
  readonly stat: string
  readonly step: number
  readonly nodes: readonly number[]
  readonly own: readonly (number | null)[]
  readonly worst: readonly (number | null)[]
  readonly low: number | null
  readonly high: number | null
  readonly version: number
}

/**
 * One series in the JSON head of a `series` answer.
 */
export interface SeriesHead {
  readonly group: Group
  readonly kind: Kind
  readonly index: number
  readonly name: string
  readonly phase: Phase
  readonly shape: readonly (number | null)[] | null
}

/**
 * One typed array behind the head: `dtype` is a little-endian numpy code ("u1", "u4", "f4",
 * "f8"), `offset` counts bytes from the end of the head, a multiple of 8.
 */
export interface Block {
  readonly name: string
  readonly dtype: string
  readonly shape: readonly number[]
  readonly offset: number
}

/**
 * The JSON head of a `series` answer: the histories of one invocation.
 *
 * The body is: uint32 (little endian) length of the head in bytes, the head as UTF-8 JSON padded
 * with spaces so that the arrays start at a multiple of 8, then the `blocks`. Each field of
 * `ROW_FIELDS` has a block of shape [series, steps], `counts` one of shape [series, steps, bins].
 * `steps`, `wall`, `time` describe the columns, of which `total` exist and at most `limit` were
 * asked for: thinned evenly, first and last kept. A train and an eval series of the same tensor
 * are two series; a row of a phase that has no record at a step has status NOT_RUN.
 * `level` is the invocation that made this one (its own id for the root). `peers` are the ids of
 * that level's invocations of the same class, in the order of the level, this one among them (of
 * very many, those around it). `restarts` are as in `Steps`.
 */
export interface SeriesAnswer {
  readonly node: string
  readonly level: string
  readonly peers: readonly string[]
  readonly series: readonly SeriesHead[]
  readonly steps: readonly number[]
  readonly wall: readonly number[]
  readonly time: readonly (number | null)[]
  readonly unit: string
  readonly restarts: readonly number[]
  readonly total: number
  readonly bins: number
  readonly blocks: readonly Block[]
  readonly version: number
}

/**
 * Id of the element that holds the records in the page of a report, see `ReportHead`.
 */
export const REPORT_ID = 'torchexplorer-report'

/**
 * What a search finds a node by. `forms` are its path and class, `shapes` the shapes of its tensors;
 * both are compared without regard to case and to how a shape is written. `match.shape` is the last.
 */
export interface Searchable {
  readonly match: Match
  readonly forms: readonly string[]
  readonly shapes: readonly string[]
}

/**
 * Where the answers about a model lie: numbers of parts. `steps` is that of `Steps`, `search` of a
 * list of `Searchable`, `health[i]` of a list of `Health` of the statistic `HEALTH[i]`, ascending by
 * step; `levels[i]` and `series[i]` of the answers of `graph` and `series` for the invocation `ids[i]`.
 */
export interface ReportModel {
  readonly run: string
  readonly model: string
  readonly steps: number
  readonly search: number
  readonly health: readonly number[]
  readonly ids: readonly string[]
  readonly levels: readonly number[]
  readonly series: readonly number[]
}

/**
 * What a report holds. Its element holds base64 of: uint32 (little endian) length of the head in
 * bytes, the head, then the parts, one behind the other. Head and parts are compressed each by itself
 * (zlib); the head is UTF-8 JSON, and `parts` are the lengths in bytes. A model whose entry in `runs`
 * names a problem is not among `models`.
 */
export interface ReportHead {
  readonly runs: Runs
  readonly models: readonly ReportModel[]
  readonly parts: readonly number[]
  readonly version: number
}
