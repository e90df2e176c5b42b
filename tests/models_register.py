"""The register of small models with hand-written edges, see models.py."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

Run = Callable[[Any], Any]
Built = tuple[nn.Module, Run]


class Case(NamedTuple):
    """A model with what its levels must look like, by the id of the level's invocation."""

    build: Callable[[], Built]
    levels: dict[str, str]


CASES: dict[str, Case] = {}


def case(levels: dict[str, str]) -> Callable[[Callable[[], Built]], Callable[[], Built]]:
    """Register a model under the name of the function that builds it."""

    def register(function: Callable[[], Built]) -> Callable[[], Built]:
        def build() -> Built:
            torch.manual_seed(0)
            return function()

        CASES[function.__name__] = Case(build, levels)
        return build

    return register


def registering(
    models: dict[str, Callable[[], Built]],
) -> Callable[[Callable[[], Built]], Callable[[], Built]]:
    """A decorator that puts models without hand-written edges into `models` by the name of their function."""

    def register(function: Callable[[], Built]) -> Callable[[], Built]:
        def build() -> Built:
            torch.manual_seed(0)
            random.seed(0)
            np.random.seed(0)
            return function()

        models[function.__name__] = build
        return build

    return register


def mean_square(*tensors: Tensor) -> Tensor:
    """A loss that every element of every tensor matters to."""
    total = torch.zeros(())
    for tensor in tensors:
        total = total + tensor.float().square().mean()
    return total


def forward_only(*inputs: Any) -> Run:
    """Run the model on these inputs, and train nothing."""

    def run(model: Any) -> None:
        model(*inputs)

    return run


def on(*inputs: Any, **named: Any) -> Run:
    """Run the model on these inputs, which it must return one tensor for."""
    return lambda model: mean_square(model(*inputs, **named))
