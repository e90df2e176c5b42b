"""Replicas, threads that share weights, and processes that inherit or are sent a watched model."""

from __future__ import annotations

import copy
import multiprocessing
import os
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tensorboard_torchexplorer.reader import read
from tensorboard_torchexplorer.schema import Status
from tensorboard_torchexplorer.writer import ExplorerWriter
from tests.recording import read_back

X = torch.randn(6, 8, generator=torch.Generator().manual_seed(7))


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


def step(net, optimizer, x=X):
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def train(net, steps=1, lr=0.1):
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    return [step(net, optimizer) for _ in range(steps)]


def no_faults(folder) -> None:
    for run in read(str(folder)).values():
        assert not run.problems
        for one in run.values():
            for phase in ("train", "eval"):
                assert all(not info.faults for info in one.history(phase).infos)


# --- replicas in threads ---------------------------------------------------------------------------------


def replicas(net, count):
    """What DataParallel makes, which needs CUDA: modules that share all attributes but parameters."""
    copies = []
    for _ in range(count):
        twin = {module: module._replicate_for_data_parallel() for module in net.modules()}
        for module, other in twin.items():
            other._modules = {name: twin[child] for name, child in module._modules.items()}
            other._parameters = {}
            for name, parameter in module._parameters.items():
                setattr(other, name, parameter * 1)
        copies.append(twin[net])
    return copies


class Replicated(nn.Module):
    def __init__(self, inner) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x):
        nets, parts = replicas(self.inner, 2), [x[:3], x[3:]]
        with ThreadPoolExecutor(2) as threads:
            return torch.cat(list(threads.map(lambda net, part: net(part), nets, parts)))


@pytest.mark.parametrize("what", ["inner", "outer", "both"])
def test_replicas_run_as_unwatched(what, tmp_path):
    plain, watched = Replicated(model()), Replicated(model())
    wanted = train(plain, 4)
    with ExplorerWriter(str(tmp_path)) as writer:
        if what != "outer":
            writer.watch(watched.inner, "inner", log_freq=2)
        if what != "inner":
            writer.watch(watched, "outer", log_freq=2)
        assert train(watched, 4) == wanted
    for one, other in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(one, other)
    name = "outer" if what == "outer" else "inner"
    seen = read_back(str(tmp_path), name)
    assert seen.steps == [0, 2]
    assert seen.status("inner.0" if name == "outer" else "0", "param", "grad", "weight") == Status.OK
    if name == "outer":
        assert seen.status(".", "output", "grad", "output") == Status.OK


# --- threads that share weights --------------------------------------------------------------------------


def in_turns(net, count, steps, log):
    """Threads that train the same weights, strictly in turns, each a whole step."""
    turn, done = threading.Condition(), [0]

    def work(number):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        for _ in range(steps):
            with turn:
                turn.wait_for(lambda: done[0] % count == number)
                log.append(step(net, optimizer))
                done[0] += 1
                turn.notify_all()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


def test_threads_that_train_in_turns_count_their_steps_together(tmp_path):
    plain, watched, wanted, seen = model(), model(), [], []
    in_turns(plain, 3, 4, wanted)
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(watched, log_freq=5)
        in_turns(watched, 3, 4, seen)

    assert seen == wanted
    assert read_back(str(tmp_path)).steps == [0, 5, 10]
    no_faults(tmp_path)


def test_threads_that_race_keep_training(tmp_path):
    """Hogwild, with gradients of each thread's own, and evaluation by all: nothing is deterministic, but
    nothing may break and no step is missing. A forward that begins while another thread's evaluation is
    being recorded runs unobserved, and its record says so."""
    net, errors = nn.Sequential(*[nn.Linear(8, 8) for _ in range(20)]), []

    def sharing():
        twin = copy.deepcopy(net)
        for mine, yours in zip(twin.parameters(), net.parameters(), strict=True):
            mine.data = yours.data
        return twin

    with ExplorerWriter(str(tmp_path)) as writer:
        watch = writer.watch(net, log_freq=1, eval_freq=1)

        def work(trained):
            try:
                for _ in range(20):
                    train(trained, 1, lr=1e-4)
                    with torch.no_grad():
                        net(X)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(one,)) for one in (net, sharing(), sharing())]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)

    assert errors == []
    assert len(watch.faults) == 0
    seen = read_back(str(tmp_path))
    assert len(seen.steps) == 20
    outputs = [seen.status("19", "output", "value", "output", at) for at in range(20)]
    weights = [seen.status("19", "param", "value", "weight", at) for at in range(20)]
    assert set(outputs) <= {Status.OK, Status.NOT_OBSERVED}
    assert outputs.count(Status.OK) >= 10
    assert set(weights) == {Status.OK}
    no_faults(tmp_path)


def test_steps_beside_a_long_evaluation_are_no_steps_without_a_forward(tmp_path):
    """The evaluation is what is being looked at. The forwards that it lets pass were seen all the same."""

    class Waits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = model()

        def forward(self, x):
            if not torch.is_grad_enabled():
                inside.set()
                assert done.wait(60)
            return self.net(x)

    def evaluate() -> None:
        with torch.no_grad():
            net(X)

    net, inside, done = Waits(), threading.Event(), threading.Event()
    with ExplorerWriter(str(tmp_path)) as writer:
        watch = writer.watch(net, log_freq=1, eval_freq=1)
        train(net)
        thread = threading.Thread(target=evaluate)
        thread.start()
        assert inside.wait(60)
        train(net, 4)
        done.set()
        thread.join(60)
        train(net)

    assert watch.faults.list() == []
    seen = read_back(str(tmp_path))
    outputs = [seen.status("net/0", "output", "value", "output", at) for at in range(6)]
    assert outputs == [Status.OK, *[Status.NOT_OBSERVED] * 4, Status.OK]


def test_training_in_another_thread_after_a_forward_in_this_one(tmp_path):
    net = model()
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(net, log_freq=10)
        net(X)
        thread = threading.Thread(target=train, args=(net, 40))
        thread.start()
        thread.join(60)
    seen = read_back(str(tmp_path))

    assert len(seen.steps) >= 2
    assert seen.status("0", "output", "grad", "output") == Status.OK


# --- processes -------------------------------------------------------------------------------------------


class UsesModel(Dataset):
    def __init__(self, net, watch=None) -> None:
        self.net, self.watch = net, watch

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index):
        with torch.no_grad():
            evaluated = self.net(X + index).sum()
        trained = copy.deepcopy(self.net)
        loss = step(self.net if index % 2 else trained, torch.optim.SGD(self.net.parameters(), lr=0.0))
        return evaluated, loss, os.getpid()


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_whose_dataset_holds_the_watched_model(context, tmp_path):
    """C45: it pickles, the worker computes the same and writes nothing."""
    torch.set_num_threads(1)
    net = model()
    wanted = [UsesModel(model())[index][:2] for index in range(4)]
    with ExplorerWriter(str(tmp_path)) as writer:
        watch = writer.watch(net, log_freq=1, eval_freq=1)
        train(net, 1, lr=0.0)
        loss = net(X).sum()  # a record is open while the workers start
        loader = DataLoader(
            UsesModel(net, watch), num_workers=1, batch_size=None, multiprocessing_context=context
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # fork in a process with threads
            found = list(loader)
        loss.backward()
        torch.optim.SGD(net.parameters(), lr=0.0).step()
        train(net, 1, lr=0.0)

    assert [(value.item(), loss) for value, loss, _ in found] == [(v.item(), loss) for v, loss in wanted]
    assert os.getpid() not in {pid for _, _, pid in found}
    assert read_back(str(tmp_path)).steps == [0, 1, 2]
    assert read_back(str(tmp_path), phase="eval").steps == []
    assert len(list(tmp_path.iterdir())) == 1
    no_faults(tmp_path)


def hogwild(net, results, number):
    torch.set_num_threads(1)
    results.put((number, train(net, 3, lr=0.0), "_compiled_call_impl" in vars(net)))


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_processes_that_train_shared_weights(context, tmp_path):
    net = model().share_memory()
    wanted = train(model(), 3, lr=0.0)
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(net, log_freq=1)
        methods = multiprocessing.get_context(context)
        results = methods.Queue()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            process = methods.Process(target=hogwild, args=(net, results, 0))
            process.start()
        number, losses, slot = results.get(timeout=100)
        process.join(60)
        assert process.exitcode == 0
        train(net, 2, lr=0.0)

    assert (number, losses) == (0, wanted)
    assert slot == (context == "fork")
    assert read_back(str(tmp_path)).steps == [0, 1]


def test_a_forked_child_neither_writes_nor_hangs_at_its_end(tmp_path):
    net = model()
    with ExplorerWriter(str(tmp_path)) as writer:
        watch = writer.watch(net, log_freq=1)
        train(net, 2)
        loss = net(X).sum()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            code = 1
            try:
                torch.set_num_threads(1)
                train(net, 3)
                idle = watch.step == 2  # nothing is even counted here
                writer.unwatch(net)
                writer.watch(net, "again", log_freq=1)
                code = 0 if idle else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        loss.backward()
        torch.optim.SGD(net.parameters(), lr=0.1).step()
    (run,) = read(str(tmp_path)).values()

    assert list(run.models) == ["Sequential"]
    assert read_back(str(tmp_path)).steps == [0, 1, 2]
