"""Run a model under the structure tracer, and compare its levels with how tests write them."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import nn

from tensorboard_torchexplorer.capture.calls import Call, CallTree
from tensorboard_torchexplorer.capture.structure import StructureTracer
from tensorboard_torchexplorer.schema import End

ARROWS = {
    ("gradient", False): ">",
    ("data", False): "..>",
    ("gradient", True): "~>",
    ("data", True): ".~>",
}


class Traced:
    """One traced forward: its calls by id, the faults that were reported, and what it returned."""

    def __init__(
        self,
        model: nn.Module,
        run: Callable[[Any], Any],
        paths: Mapping[nn.Module, str] | None = None,
        raises: type[BaseException] | tuple[()] = (),
    ) -> None:
        self.faults: list[str] = []
        self.tracer = StructureTracer(self.report)
        self.tree = CallTree(model, paths or paths_of(model), [self.tracer], self.report)
        self.result: Any = None
        self.raised: BaseException | None = None
        try:
            with self.tree.watching(), self.tracer:
                self.result = run(model)
        except raises as error:
            self.raised = error
        self.tracer.finish()

    def report(self, path: str, place: str, error: Exception) -> None:
        self.faults.append(f"{path}: {place}: {''.join(traceback.format_exception(error))}")

    @property
    def calls(self) -> dict[str, Call]:
        return {call.id: call for call in self.tree.calls}

    def level(self, identifier: str) -> set[str]:
        """The edges of a level as `source arrow target`."""
        call = self.calls[identifier]
        return {
            f"{name(call, source)} {ARROWS[link]} {name(call, target)}"
            for (source, target), link in call.links.items()
        }


def paths_of(model: nn.Module) -> dict[nn.Module, str]:
    return {module: path for path, module in model.named_modules()}


def edges(model: nn.Module, run: Callable[[Any], Any], ids: Iterable[str]) -> dict[str, set[str]]:
    """The edges of the levels `ids` in one forward; AssertionError on any fault of the tracer."""
    traced = Traced(model, run)
    assert traced.faults == []
    return {identifier: traced.level(identifier) for identifier in ids}


def name(call: Call, end: End) -> str:
    """`in0`, `out1`, `outside`, or the last part of a child's id."""
    if end.kind == "node":
        child = call.children[end.index].id
        return child if call.parent is None else child.removeprefix(call.id + "/")
    return {"input": f"in{end.index}", "output": f"out{end.index}", "outside": "outside"}[end.kind]


def chains(text: str) -> set[str]:
    """Edges written as chains, see models.py, as `Traced.level` gives them."""
    found = set()
    for chain in text.replace("\n", ";").split(";"):
        words = chain.split()
        for at in range(0, len(words) - 2, 2):
            source, arrow, target = words[at : at + 3]
            assert arrow in ARROWS.values(), chain
            found.add(f"{source} {arrow} {target}")
        assert len(words) % 2 == 1 or not words, f"not a chain: {chain!r}"
    return found


def expected(levels: Mapping[str, str]) -> dict[str, set[str]]:
    return {identifier: chains(text) for identifier, text in levels.items()}
