"""What the processes of a training with `ranks="all"` run; see test_ranks.py."""

from __future__ import annotations

import datetime
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

from tensorboard_torchexplorer import ExplorerWriter, ranks, unwatch_model, watch_model
from tensorboard_torchexplorer.background import background_of
from tensorboard_torchexplorer.writer import _NOWHERE

STEPS = 4
ROWS = (4, 12)
"""The batch of each rank."""
MANY = 300
"""So many times the batch makes tensors that are not taken whole."""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.head = nn.Linear(8, 3)
        self.expert = nn.Linear(8, 3)

    def forward(self, x, routed=False):
        hidden = self.body(x)
        return self.head(hidden) + (self.expert(hidden) if routed else 0)


def batch(rank: int, step: int, times: int = 1) -> Tensor:
    return torch.randn(times * ROWS[rank], 8, generator=torch.Generator().manual_seed(100 * rank + step))


class Run:
    """One training on each rank: the writer where there is one, and what is needed to check the records."""

    def __init__(self, rank: int, folder: Path, model: nn.Module, **options) -> None:
        self.rank = rank
        self.writer = ExplorerWriter(str(folder)) if rank == 0 else None
        self.model = model
        self.options = {"ranks": "all", "log_freq": 1, "sample_n": None, **options}
        self.seen: dict = {"outputs": [], "gradients": []}

    def watch(self) -> None:
        watch_model(self.writer, self.model, **self.options)

    def step(self, called, optimizer, x, **arguments) -> None:
        out = called(x, **arguments)
        self.seen["outputs"].append(out.detach().clone())
        out.square().mean().backward()
        self.seen["gradients"].append(_local(p.grad for p in self.model.parameters()))
        optimizer.step()
        optimizer.zero_grad()

    def end(self) -> dict:
        unwatch_model(self.writer, self.model)
        if self.writer is not None:
            self.writer.close()
        return self.seen | {"weights": _local(self.model.parameters())}


def _local(tensors) -> list[Tensor | None]:
    return [t if t is None else getattr(t, "to_local", lambda t=t: t)().detach().clone() for t in tensors]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def ddp(rank: int, folder: Path, watched: bool = True, times: int = 1, **options) -> dict:
    run = Run(rank, folder, Net(), **options)
    wrapped = DistributedDataParallel(run.model, find_unused_parameters=True)
    optimizer = sgd(run.model)
    if watched:
        run.watch()
    for step in range(STEPS):
        run.step(wrapped, optimizer, batch(rank, step, times))
    return run.end()


def sampled(rank: int, folder: Path) -> dict:
    return ddp(rank, folder, times=MANY, sample_n=10, bins=5)


def exact(rank: int, folder: Path) -> dict:
    return ddp(rank, folder, times=MANY, sample_n=10, exact=True)


def unwatched(rank: int, folder: Path) -> dict:
    return ddp(rank, folder, watched=False)


def hsdp(rank: int, folder: Path) -> dict:
    """Each rank has all of the parameters: shards of one part, replicated."""
    return fsdp(rank, folder, (dist.get_world_size(), 1))


def fsdp(rank: int, folder: Path, sizes: tuple[int, ...] = (2,)) -> dict:
    model = Net()
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("replicas", "shards")[-len(sizes) :])
    fully_shard(model.body, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return _sharded(rank, folder, model)


def fsdp1(rank: int, folder: Path) -> dict:
    """Cut where half of all elements are, so that parameters lie on one rank, or more on one than on the
    other."""
    return _sharded(
        rank, folder, FullyShardedDataParallel(Net(), device_id=torch.device("cpu"), use_orig_params=True)
    )


def _sharded(rank: int, folder: Path, model: nn.Module) -> dict:
    run = Run(rank, folder, model)
    optimizer = sgd(model)
    run.seen["before"] = []
    run.watch()
    for step in range(STEPS):
        run.seen["before"].append(_local(model.parameters()))
        run.step(model, optimizer, batch(rank, step), routed=True)
    return run.end()


def uneven(rank: int, folder: Path) -> dict:
    """No common collective at all: rank 1 makes two steps, has a NaN in one, and leaves."""
    run = Run(rank, folder, Net())
    optimizer = sgd(run.model)
    run.watch()
    for step in range(STEPS if rank == 0 else 2):
        x = batch(rank, step)
        if rank and step:
            x[0, 0] = torch.nan
            x[1, 1] = -torch.inf
        run.step(run.model, optimizer, x)
    return run.end()


def joined(rank: int, folder: Path) -> dict:
    """Uneven inputs the way of DDP: the rank that has run out answers the collectives of the other."""
    run = Run(rank, folder, Net())
    wrapped = DistributedDataParallel(run.model, find_unused_parameters=True)
    optimizer = sgd(run.model)
    run.watch()
    with wrapped.join():
        for step in range(STEPS if rank == 0 else 2):
            run.step(wrapped, optimizer, batch(rank, step))
    return run.end()


def routed(rank: int, folder: Path) -> dict:
    """The expert runs on rank 0 in the first step, on rank 1 in the others."""
    run = Run(rank, folder, Net())
    optimizer = sgd(run.model)
    run.watch()
    for step in range(STEPS):
        run.step(run.model, optimizer, batch(rank, step), routed=(step == 0) == (rank == 0))
    return run.end()


def alone(rank: int, folder: Path) -> dict:
    """Rank 1 trains but does not watch."""
    run = Run(rank, folder, Net(), name="alone")
    patience, ranks.PATIENCE_SECONDS = ranks.PATIENCE_SECONDS, 0.2
    if rank == 0:
        run.watch()
    optimizer = sgd(run.model)
    for step in range(STEPS):
        run.step(run.model, optimizer, batch(rank, step))
    if rank:
        return run.seen
    seen = run.end()
    ranks.PATIENCE_SECONDS = patience
    return seen


def unread(rank: int, folder: Path) -> dict:
    """Rank 0 does not watch: what rank 1 leaves in the store has a bound."""
    run = Run(rank, folder, Net(), name="unread")
    store = dist.distributed_c10d._get_default_store()
    before = store.num_keys()
    if rank:
        run.watch()
    optimizer = sgd(run.model)
    for step in range(3 * ranks.MAX_WAITING if rank else 1):
        run.step(run.model, optimizer, batch(rank, step))
    if rank:
        run.end()
        background_of(_NOWHERE).flush()
    return {"keys": store.num_keys() - before}


def evaluated(rank: int, folder: Path) -> dict:
    run = Run(rank, folder, Net(), eval_freq=1)
    optimizer = sgd(run.model)
    run.watch()
    for step in range(2):
        run.step(run.model, optimizer, batch(rank, step))
        run.model.eval()
        with torch.no_grad():
            run.model(batch(rank, 10 + step))
        run.model.train()
    return run.end()


TRAININGS = [
    ddp,
    unwatched,
    sampled,
    exact,
    fsdp,
    fsdp1,
    hsdp,
    uneven,
    joined,
    routed,
    evaluated,
    alone,
    unread,
]


def work(rank: int, world: int, folder: str, port: int) -> None:
    """All of it in one process group, since starting processes is what takes long."""
    torch.set_num_threads(1)
    where = Path(folder)
    store = dist.TCPStore("127.0.0.1", port, world, rank == 0)
    dist.init_process_group(
        "gloo", rank=rank, world_size=world, store=store, timeout=datetime.timedelta(seconds=180)
    )
    results = {}
    for training in TRAININGS:
        dist.barrier()
        results[training.__name__] = training(rank, where / training.__name__)
    torch.save(results, where / f"results{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()
