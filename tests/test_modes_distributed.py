"""DistributedDataParallel and both kinds of FSDP in two processes: no hang, one writer, the gradients that
count."""

from __future__ import annotations

import pytest
import torch
from torch import multiprocessing

from tensorboard_torchexplorer.reader import read
from tensorboard_torchexplorer.schema import Status
from tests.distributed_training import DDP_KINDS, FSDP_KINDS, STEPS, work
from tests.recording import assert_row_holds, read_back

WORLD = 2


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder, and the results of each rank."""
    folder = tmp_path_factory.mktemp("distributed")
    multiprocessing.spawn(work, (WORLD, str(folder)), nprocs=WORLD)
    return folder, [torch.load(folder / f"results{rank}.pt", weights_only=False) for rank in range(WORLD)]


@pytest.mark.parametrize("kind", [*DDP_KINDS, *FSDP_KINDS])
def test_training_is_bitwise_that_without_watching_on_every_rank(kind, trained):
    for results in trained[1]:
        plain, watched = results[kind, False], results[kind, True]
        for name, weight in plain["weights"].items():
            assert torch.equal(weight, watched["weights"][name]), name
        for one, other in zip(plain["gradients"], watched["gradients"], strict=True):
            assert all(torch.equal(one[name], other[name]) for name in one)
        assert len(plain["gradients"]) == STEPS


@pytest.mark.parametrize("kind", [*DDP_KINDS, *FSDP_KINDS])
def test_rank_0_writes_and_no_other(kind, trained):
    folder = trained[0] / f"{kind}-True"

    assert read_back(str(folder / "rank0")).steps == [0, 1, 2]
    assert not read(str(folder / "rank1"))
    assert not [run for run in read(str(folder)).values() if run.problems]


@pytest.mark.parametrize("kind", DDP_KINDS)
def test_c27_the_reduced_gradient_is_shown_under_the_paths_of_the_model(kind, trained):
    folder, results = trained
    seen = read_back(str(folder / f"{kind}-True" / "rank0"))

    assert [m.path for m in seen.graph.modules if "module" in m.path] == []
    assert "head" in seen.ids()
    for step, gradients in enumerate(results[0][kind, True]["gradients"]):
        for name in ("body.0.weight", "head.bias"):
            path, _, leaf = name.rpartition(".")
            assert torch.equal(gradients[name], results[1][kind, True]["gradients"][step][name])
            assert_row_holds(seen.row(path, "param", "grad", leaf, step), gradients[name], rel=1e-5)
    assert seen.status("head", "output", "grad", "output") == Status.OK
    assert seen.history.infos[-1].forwards == (3 if kind == "no_sync" else 1)
    assert seen.history.infos[-1].faults == []
    spare = seen.status("spare", "param", "grad", "weight")
    assert spare == (Status.NO_GRADIENT if kind == "unused" else Status.OK)


@pytest.mark.parametrize("kind", FSDP_KINDS)
def test_c28_sharded_parameters_are_shown_as_the_local_shard(kind, trained):
    folder, results = trained
    seen = read_back(str(folder / f"{kind}-True" / "rank0"))
    mine = results[0][kind, True]
    modules = {module.path: module for module in seen.graph.modules}
    flat = kind == "flat parameters"
    flagged = {path for path, module in modules.items() if module.flags == ["sharded: local shard 1/2"]}

    assert [node.id for node in seen.graph.nodes] == [".", "body", "body/0", "body/1", "head", "spare"]
    assert modules[""].class_name == "Net"
    assert modules["body"].class_name == "Sequential"
    # Of the outermost wrapper nothing is known to who watched before it was there.
    assert flagged | ({"head", "spare"} if kind == "watched before" else set()) == (
        {"", "body"} if flat else {"body.0", "head", "spare"}
    )
    for step in range(STEPS):
        for name in ("_flat_param", "body._flat_param") if flat else ("body.0.weight", "head.weight"):
            path, _, leaf = name.rpartition(".")
            assert_row_holds(
                seen.row(path, "param", "value", leaf, step), mine["before"][step][name], rel=1e-5
            )
            assert_row_holds(
                seen.row(path, "param", "grad", leaf, step), mine["gradients"][step][name], rel=1e-5
            )
        assert seen.status("body", "output", "grad", "output", step) == Status.OK
    assert seen.history.infos[-1].faults == []


def test_what_has_no_element_on_this_rank_is_empty(trained):
    """`FullyShardedDataParallel` cuts where half of all elements are, not each parameter in two."""
    seen = read_back(str(trained[0] / "original parameters-True" / "rank0"))

    assert trained[1][0]["original parameters", True]["before"][0]["body.0.bias"].numel() == 0
    for kind in ("value", "grad"):
        assert seen.status("body.0", "param", kind, "bias") == Status.EMPTY
        assert seen.status("body.0", "param", kind, "weight") == Status.OK
