"""What the processes of a distributed training run; see test_modes_distributed.py."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

from tensorboard_torchexplorer.writer import ExplorerWriter

STEPS = 3
DDP_KINDS = {
    "plain": {},
    "bucket view": {"gradient_as_bucket_view": True},
    "static graph": {"static_graph": True},
    "unused": {"find_unused_parameters": True},
    "no_sync": {},
}
FSDP_KINDS = ("fully_shard", "original parameters", "flat parameters", "watched before")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.head = nn.Linear(8, 3)
        self.spare = nn.Linear(8, 3)

    def forward(self, x, spare=False):
        hidden = self.body(x)
        return self.head(hidden) + (self.spare(hidden) if spare else 0)


def batch(rank: int, step: int, part: int = 0) -> torch.Tensor:
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(100 * rank + 10 * step + part))


def train_ddp(rank: int, folder: Path, kind: str, watched: bool) -> dict:
    torch.manual_seed(0)
    model = Net()
    ddp = DistributedDataParallel(model, **DDP_KINDS[kind])
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    writer = ExplorerWriter(str(folder / f"rank{rank}"))
    if watched:
        writer.watch(ddp if kind != "plain" else model, log_freq=1, sample_n=None)
    gradients = []
    for step in range(STEPS):
        parts = 3 if kind == "no_sync" else 1
        for part in range(parts):
            last = part == parts - 1
            with contextlib.nullcontext() if last else ddp.no_sync():
                ddp(batch(rank, step, part), spare=kind != "unused").square().mean().backward()
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
        optimizer.step()
        optimizer.zero_grad()
    writer.close()
    return {"weights": model.state_dict(), "gradients": gradients}


def sharded(model: Net, kind: str) -> nn.Module:
    if kind == "fully_shard":
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        fully_shard(model.body, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model
    options = {"device_id": torch.device("cpu"), "use_orig_params": kind != "flat parameters"}
    model.body = FullyShardedDataParallel(model.body, **options)
    return FullyShardedDataParallel(model, **options)


def local(tensors: Iterable[tuple[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Copies of what this rank has of them, by their names in the model as it was written."""
    return {
        name.replace("_fsdp_wrapped_module.", ""): getattr(t, "to_local", lambda t=t: t)().detach().clone()
        for name, t in tensors
    }


def train_fsdp(rank: int, folder: Path, kind: str, watched: bool) -> dict:
    torch.manual_seed(0)
    model = Net()
    writer = ExplorerWriter(str(folder / f"rank{rank}"))
    if watched and kind == "watched before":
        writer.watch(model, log_freq=1, sample_n=None)
    called = sharded(model, kind)
    optimizer = torch.optim.SGD(called.parameters(), lr=0.1, momentum=0.9)
    if watched and kind != "watched before":
        writer.watch(called, log_freq=1, sample_n=None)
    gradients, before = [], []
    for step in range(STEPS):
        before.append(local(called.named_parameters()))
        called(batch(rank, step), spare=True).square().mean().backward()
        gradients.append(local((n, p.grad) for n, p in called.named_parameters() if p.grad is not None))
        optimizer.step()
        optimizer.zero_grad()
    writer.close()
    return {"weights": local(called.named_parameters()), "gradients": gradients, "before": before}


def work(rank: int, world: int, folder: str) -> None:
    """All of it in one process group, since starting processes is what takes long."""
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", world)
    dist.init_process_group(
        "gloo", rank=rank, world_size=world, store=store, timeout=datetime.timedelta(seconds=180)
    )
    results = {}
    for watched in (False, True):
        for kind in DDP_KINDS:
            where = Path(folder, f"{kind}-{watched}")
            results[kind, watched] = train_ddp(rank, where, kind, watched)
        for kind in FSDP_KINDS:
            results[kind, watched] = train_fsdp(rank, Path(folder, f"{kind}-{watched}"), kind, watched)
    torch.save(results, f"{folder}/results{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()
