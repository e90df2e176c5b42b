"""What is recorded of one logged step: rows of histograms with statistics, and a word about the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .graph import VERSION

ROW_FIELDS: tuple[tuple[str, str], ...] = (
    ("status", "u1"),  # index into STATUS; all else is 0 unless status is 0
    ("size", "u8"),  # elements of the tensor (per-sample norms: of the batch)
    ("sampled", "u4"),  # elements looked at for bins, mean, std, zeros; == size: exact
    ("nan", "u8"),  # exact over the whole tensor, like posinf, neginf, min, max
    ("posinf", "u8"),
    ("neginf", "u8"),
    ("min", "f8"),  # of the finite values; NaN where there is none
    ("max", "f8"),
    ("low", "f8"),  # the bins are equal and cover [low, high], both ends closed
    ("high", "f8"),
    ("mean", "f8"),  # of the finite sampled values, outliers included
    ("std", "f8"),  # population standard deviation of the same
    ("zeros", "f8"),  # share of exact zeros among the same, 0..1
)
"""Columns of a row, as numpy type codes in memory (events.py narrows them on disk). A row also has
`counts`: `bins` whole numbers, how many kept sampled values fell into each bin."""

STATUS: tuple[str, ...] = (
    "",
    "this invocation did not run in this step",
    "no gradient reached it in this step",
    "frozen: requires_grad is False",
    "evaluation: there is no backward pass",
    "the tensor is empty",
    "sparse layout: not recorded",
    "nested tensor: not recorded",
    "meta tensor: it holds no data",
    "this dtype has no histogram",
    "the gradient of a model input is recorded only with root_input_grad=True",
    "lost to an in-place operation before it could be read",
    "an error while recording; see the run's faults",
    "not initialised yet (lazy module)",
    "excluded by the watch options",
    "not differentiable: integer or boolean tensor",
    "inside a compiled or transformed region: not observed",
    "no backward pass completed in this step",
    "a wrapper tensor that holds no plain values",
    "it requires no gradient: data, detached, or made of such",
    "its memory had been freed: sharded or offloaded",
)
"""Why a row is blank; `status` 0 means that it is not. Append only: the numbers are on disk."""


class Status:
    """Names for the entries of `STATUS`."""

    OK = 0
    NOT_RUN = 1
    NO_GRADIENT = 2
    FROZEN = 3
    EVAL = 4
    EMPTY = 5
    SPARSE = 6
    NESTED = 7
    META = 8
    DTYPE = 9
    ROOT_INPUT = 10
    OVERWRITTEN = 11
    FAULT = 12
    LAZY = 13
    EXCLUDED = 14
    NOT_DIFFERENTIABLE = 15
    NOT_OBSERVED = 16
    NO_BACKWARD = 17
    SUBCLASS = 18
    REQUIRES_NONE = 19
    FREED = 20


HEALTH: tuple[str, ...] = (
    "gradient",  # mean per-sample gradient norm of the outputs, the largest over outputs
    "output_std",  # standard deviation of the outputs, the largest over outputs
    "zeros",  # share of zeros in the outputs, the largest over outputs
    "nonfinite",  # NaN and Inf values in outputs, gradients and parameters together
    "parameter",  # root mean square of the immediate parameters
    "parameter_gradient",  # root mean square of their gradients
    "update",  # length of the last update over length of the parameter, the largest over parameters
)
"""Statistics of a node for colouring, one number per node and logged step; NaN where unknown."""


@dataclass(frozen=True)
class Fault:
    """An error inside our own hooks. `place` says what was being recorded, `path` the module."""

    path: str
    place: str
    error: str


@dataclass(frozen=True)
class StepInfo:
    """What is known of one logged step apart from its rows.

    `step` counts optimizer steps from 0; `wall` is seconds since 1970; `time` is the user's own time
    value (`time_log`) or None. `forwards` counts the root forwards of the step, of which the first is
    recorded. `ran` are the indices of the nodes that ran, as [first, count] ranges. `scale` is the
    loss scale of a GradScaler (the gradients shown are divided by it) or None, `skipped` whether the
    optimizer skipped the step. `dropped` counts records lost so far because the writer was too slow.
    `session` changes when the process does, which marks restarts. `ranks` is how many ranks of a
    distributed training the samples are of, `missing` names those whose samples should be among them.
    """

    step: int
    wall: float
    time: float | None
    forwards: int
    ran: Sequence[list[int]]
    scale: float | None
    skipped: bool
    dropped: int
    session: str
    faults: list[Fault] = field(default_factory=list)
    ranks: int = 1
    missing: list[int] = field(default_factory=list)
    version: int = VERSION
