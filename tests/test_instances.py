"""Living instances of a class, found without touching anything else of the process."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from tensorboard_torchexplorer import ExplorerWriter
from tensorboard_torchexplorer.instances import instances_of


class Base:
    pass


class Below(Base):
    pass


class FarBelow(Below):
    __slots__ = ("held",)


def test_instances_of_all_subclasses_are_found_and_nothing_else():
    made = [Base(), Below(), FarBelow()]
    made[2].held = made[0]

    assert sorted(map(id, instances_of(Base))) == sorted(map(id, made))
    assert instances_of(FarBelow) == [made[2]]
    del made
    gc.collect()
    assert instances_of(Base) == []


class Slow(torch.optim.SGD):
    """Whoever asks for its parameters waits until another thread has gone on."""

    asked: Any = None

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        if self.asked is not None:
            self.asked()
        return self.__dict__["param_groups"]

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.__dict__["param_groups"] = groups


def test_the_search_for_optimizers_leaves_other_threads_alone(tmp_path):
    """A tuple that is being made must not be referred to by anybody else when it grows."""
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()
    found: list[Any] = []

    def items() -> Iterator[int]:
        for number in range(100):
            if number == 5:
                begun.set()
                assert go_on.wait(60)
            yield number

    def work() -> None:
        try:
            found.append(tuple(items()))
        except BaseException as error:
            found.append(error)
        finally:
            done.set()

    def asked() -> None:
        go_on.set()
        assert done.wait(60)

    model = nn.Linear(4, 4)
    optimizer = Slow(model.parameters(), lr=0.1)
    thread = threading.Thread(target=work)
    with ExplorerWriter(str(tmp_path)) as writer:
        watch = writer.watch(model, log_freq=1)
        thread.start()
        assert begun.wait(60)
        optimizer.asked = asked
        model(torch.ones(2, 4)).sum().backward()
        thread.join(60)
        assert go_on.is_set()  # the optimizer was found
        assert found == [tuple(range(100))]
        optimizer.step()
        assert watch.step == 1
        assert watch.faults.list() == []
