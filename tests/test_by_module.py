"""Modules as keys by their identity, and models that need it."""

from __future__ import annotations

import torch
from torch import nn

from tensorboard_torchexplorer.capture.by_module import ByModule
from tensorboard_torchexplorer.schema import Status
from tests.recording import record


class Moody(nn.Module):
    """Its hash changes with each call, and all of its kind are equal."""

    calls = 0

    def __hash__(self) -> int:
        return hash(self.calls)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Moody)

    def forward(self, x):
        self.calls += 1
        return x + 1


def test_equal_modules_are_different_keys():
    one, other = Moody(), Moody()
    entries = ByModule([(one, "one"), (other, "other")])
    one(torch.ones(1))
    del entries[other]

    assert entries[one] == "one"
    assert list(entries) == [one]
    assert other not in entries
    assert entries == ByModule([(one, "one")])
    assert entries != ByModule([(other, "one")])


def test_a_model_of_modules_whose_hash_changes_is_recorded():
    model = nn.Sequential(nn.Linear(4, 4), Moody(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train(writer):
        writer.watch(model, log_freq=1)
        for _ in range(3):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()

    recorded = record(train)

    assert recorded.ids() == [".", "0", "1", "2"]
    assert recorded.steps == [0, 1, 2]
    assert [recorded.status("1", "output", "grad", "output", at) for at in range(3)] == [Status.OK] * 3
    assert [info.faults for info in recorded.history.infos if info.faults] == []
