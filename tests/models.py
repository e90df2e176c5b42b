"""Small models, one difficulty each, with the edges that each of their levels must have.

Shared by all tests of the capture engine. `CASES[name].build()` gives a fresh model and a function
that runs one forward of it and returns a loss, or None where there is nothing to train. Always the
same weights and inputs.

Levels are written as chains, one per line or between semicolons, by the ids of `schema.Node`:

    in0 > fc > out0      a gradient path from the input to `fc`, and from `fc` to the output
    in0 ..> embed        values flow, no gradient can
    a ~> b   a .~> b     the same, through an attribute or a closure
    relu#1               the second call of `relu` within the level
    outside              where a tensor comes from that is neither argument nor result of a child
"""

from __future__ import annotations

import models_arguments
import models_flow
import models_gradient
import models_inplace
import models_lookup
import models_modes
import models_nograd
import models_sequence
from models_register import CASES, Built, Case, Run, mean_square, on

__all__ = ["CASES", "FILES", "Built", "Case", "Run", "mean_square", "on"]

# Importing a file has registered its models.
FILES = (
    models_arguments,
    models_flow,
    models_gradient,
    models_inplace,
    models_lookup,
    models_modes,
    models_nograd,
    models_sequence,
)
