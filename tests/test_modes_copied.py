"""Models of which a copy is made while they are looked at: within their own forward, or within a backward."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest
import torch
from neutrality import hooks
from torch import nn
from torch.utils.checkpoint import checkpoint
from watched import X

from tensorboard_torchexplorer.writer import ExplorerWriter


class WithTeacher(nn.Module):
    """Makes its teacher when it is first called, as BYOL does. The teacher is not registered."""

    def __init__(self, copied) -> None:
        super().__init__()
        self.student = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
        self.student[0].register_forward_hook(_note)
        self._teachers: list[nn.Module] = []
        self._copied = copied

    def forward(self, x):
        if not self._teachers:
            self._teachers.append(self._copied(self.student))
        with torch.no_grad():
            target = self._teachers[0](x)
        return self.student(x) - target


class CopiedInBackward(nn.Module):
    def __init__(self, copied) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.last = nn.Linear(8, 3)
        self._teachers: list[nn.Module] = []
        self._copied = copied

    def forward(self, x):
        return self.last(checkpoint(self._part, x * 1.0, use_reentrant=True))

    def _part(self, x):
        if torch.is_grad_enabled() and not self._teachers:
            self._teachers.append(self._copied(self.body))
        return self.body(x)


def _note(module, args, result) -> None:
    pass


def _by_pickle(module):
    return pickle.loads(pickle.dumps(module))


COPIES = {"deepcopy": copy.deepcopy, "pickle": _by_pickle}


def trained(kind, how, folder=None):
    torch.manual_seed(0)
    model = kind(COPIES[how])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    writer = ExplorerWriter(folder) if folder else None
    watch = writer.watch(model, log_freq=1) if writer else None
    for _ in range(3):
        loss = model(X.clone().requires_grad_()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    if writer:
        assert watch.faults.list() == []
        assert watch.recorded == 3
        writer.close()
    return losses, model


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("kind", [WithTeacher, CopiedInBackward])
def test_a_copy_made_while_hooks_are_on_works_as_unwatched(kind, how, tmp_path):
    plain, model = trained(kind, how)
    watched, twin = trained(kind, how, tmp_path)
    assert watched == plain
    (theirs,), (mine,) = model._teachers, twin._teachers
    for one, two in zip(theirs.parameters(), mine.parameters(), strict=True):
        assert torch.equal(one, two)
    assert torch.equal(theirs(X), mine(X))
    if how == "deepcopy":  # what a pickle was made with can't be changed any more
        assert hooks(mine) == hooks(theirs)


def test_a_pickle_made_within_a_forward_loads_without_this_package(tmp_path):
    made: list[bytes] = []

    class Pickles(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU())

        def forward(self, x):
            made.append(pickle.dumps(self.body))
            return self.body(x)

    model = Pickles()
    with ExplorerWriter(tmp_path) as writer:
        writer.watch(model, log_freq=1)
        model(X)
    file = tmp_path / "model.pickle"
    file.write_bytes(made[0])
    code = (
        "import pickle, sys, torch\n"
        f"model = pickle.load(open({str(file)!r}, 'rb'))\n"
        "print(tuple(model(torch.ones(2, 8)).shape), 'tensorboard_torchexplorer' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "(2, 8) False"
