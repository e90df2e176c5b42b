"""`ranks="all"` in two processes that share a TCP store: records of the samples of both."""

from __future__ import annotations

import socket

import numpy as np
import pytest
import torch
from torch import multiprocessing

from tensorboard_torchexplorer import ExplorerWriter, watch_model
from tensorboard_torchexplorer.ranks import MAX_WAITING
from tensorboard_torchexplorer.schema import Status
from tests.plugin_client import Loaded
from tests.ranks_training import MANY, ROWS, STEPS, Net, batch, work
from tests.recording import assert_row_holds, norms, read_back

WORLD = 2


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The folder, and what each rank saw of each training of ranks_training.py."""
    folder = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(work, (WORLD, str(folder), port), nprocs=WORLD)
    return folder, [torch.load(folder / f"results{rank}.pt") for rank in range(WORLD)]


@pytest.fixture
def trained(results):
    """`trained(name)`: the records of a training, and what each rank saw of it."""
    folder, seen = results
    return lambda name, phase="train": (
        read_back(str(folder / name), phase=phase),
        [rank[name] for rank in seen],
    )


def test_tensors_are_those_of_all_ranks(trained):
    seen, ranks = trained("ddp")

    assert seen.steps == list(range(STEPS))
    assert [info.ranks for info in seen.history.infos] == [WORLD] * STEPS
    for step in range(STEPS):
        outputs = torch.cat([rank["outputs"][step] for rank in ranks])
        inputs = torch.cat([batch(rank, step) for rank in range(WORLD)])
        # d mean(out ** 2) / d out, on each rank by itself
        gradients = [norms(2 * rank["outputs"][step] / rank["outputs"][step].numel()) for rank in ranks]
        assert_row_holds(seen.row(".", "output", "value", "output", step), outputs)
        assert_row_holds(seen.row("body", "input", "value", "input", step), inputs)
        assert_row_holds(seen.row("head", "output", "grad", "output", step), torch.cat(gradients), rel=1e-5)
    assert [info.faults for info in seen.history.infos if info.faults] == []


def test_parameters_that_every_rank_has_count_once(trained):
    seen, ranks = trained("ddp")
    names = [name for name, _ in Net().named_parameters()]
    for step in range(STEPS):
        gradient = ranks[0]["gradients"][step][names.index("head.weight")]
        assert torch.equal(gradient, ranks[1]["gradients"][step][names.index("head.weight")])
        assert_row_holds(seen.row("head", "param", "grad", "weight", step), gradient, rel=1e-5)


def test_the_training_is_bitwise_that_without_watching(results):
    for rank in results[1]:
        for one, other in zip(rank["unwatched"]["weights"], rank["ddp"]["weights"], strict=True):
            assert torch.equal(one, other)


def test_samples_are_pooled_in_proportion_to_the_sizes(trained):
    seen, ranks = trained("sampled")
    row = seen.row("body", "input", "value", "input", 1)
    inputs = torch.cat([batch(rank, 1, MANY) for rank in range(WORLD)]).numpy()
    sizes = [MANY * rows * 8 for rows in ROWS]

    # 10 of the larger tensor, and as large a share of the smaller.
    assert row["sampled"] == 10 + round(10 / sizes[1] * sizes[0])
    assert row["size"] == sum(sizes)
    assert (row["min"], row["max"]) == (inputs.min(), inputs.max())
    assert ranks[1]["outputs"][1].shape[0] == MANY * ROWS[1]


def test_exact_moments_are_those_of_all_elements_of_all_ranks(trained):
    seen, ranks = trained("exact")
    outputs = torch.cat([rank["outputs"][2] for rank in ranks]).double()
    row = seen.row(".", "output", "value", "output", 2)

    assert row["sampled"] < row["size"] == outputs.numel()
    np.testing.assert_allclose(row["mean"], outputs.mean(), rtol=1e-5)
    np.testing.assert_allclose(row["std"], outputs.std(correction=0), rtol=1e-5)


@pytest.mark.parametrize("kind", ["fsdp", "fsdp1"])
def test_shards_add_up_to_the_whole_parameter(kind, trained):
    seen, ranks = trained(kind)
    modules = {module.path: module for module in seen.graph.modules}
    names = [name for name, _ in Net().named_parameters()]

    assert modules["body.0"].flags == ["sharded: all shards, of which shard 1/2 here"]
    for step in range(STEPS):
        for name in ("body.0.weight", "head.weight", "expert.bias"):
            path, _, leaf = name.rpartition(".")
            for what, key in (("value", "before"), ("grad", "gradients")):
                parts = [rank[key][step][names.index(name)] for rank in ranks]
                whole = torch.cat([part for part in parts if part is not None])
                assert whole.numel() == Net().get_parameter(name).numel()
                assert_row_holds(seen.row(path, "param", what, leaf, step), whole, rel=1e-5)


def test_a_replicated_shard_counts_once(trained):
    seen, ranks = trained("hsdp")
    names = [name for name, _ in Net().named_parameters()]

    for step in range(STEPS):
        before = ranks[0]["before"][step][names.index("head.weight")]
        assert_row_holds(seen.row("head", "param", "value", "weight", step), before)
        assert seen.row("head", "output", "value", "output", step)["size"] == sum(ROWS) * 3


def test_a_rank_that_leaves_is_missing_and_holds_nothing_up(trained):
    seen, ranks = trained("uneven")

    assert [len(rank["outputs"]) for rank in ranks] == [STEPS, 2]
    assert [info.ranks for info in seen.history.infos] == [2, 2, 1, 1]
    assert [info.missing for info in seen.history.infos] == [[], [], [1], [1]]
    assert seen.row(".", "output", "value", "output", 0)["size"] == sum(ROWS) * 3
    assert_row_holds(seen.row(".", "output", "value", "output", 3), ranks[0]["outputs"][3])


def test_the_tab_is_told_which_ranks_a_step_holds(results):
    (run,) = Loaded(results[0] / "uneven").json("runs")["runs"]
    steps = Loaded(results[0] / "uneven").json("steps", run=run["name"], model=run["models"][0]["name"])

    assert steps["ranks"] == [[0, 2], [1, 2], [2, 1, 1], [3, 1, 1]]


def test_nan_and_inf_of_any_rank_are_counted(trained):
    row = trained("uneven")[0].row("body", "input", "value", "input", 1)
    finite = torch.cat(
        [batch(0, 1).flatten(), batch(1, 1).flatten()[[i for i in range(96) if i not in (0, 9)]]]
    )

    assert (row["nan"], row["posinf"], row["neginf"]) == (1, 0, 1)
    assert (row["min"], row["max"]) == (finite.min(), finite.max())


def test_ranks_that_run_out_of_batches_under_join_are_missing(trained):
    seen, ranks = trained("joined")

    assert len(ranks[1]["outputs"]) == 2
    assert [info.ranks for info in seen.history.infos] == [2, 2, 1, 1]


def test_what_only_another_rank_has_run_is_there_once_rank_0_knows_it(trained):
    seen, _ = trained("routed")
    sizes = [int(row["size"]) for row in seen.series["expert", "output", "value", "output"]]
    expert = next(i for i, node in enumerate(seen.graph.nodes) if node.id == "expert")

    assert sizes == [ROWS[0] * 3, *[ROWS[1] * 3] * (STEPS - 1)]
    assert all(any(a <= expert < a + n for a, n in info.ran) for info in seen.history.infos)


def test_evaluations_are_pooled_as_well(trained):
    seen, _ = trained("evaluated", "eval")

    assert [info.ranks for info in seen.history.infos] == [WORLD] * 2
    assert_row_holds(
        seen.row("body", "input", "value", "input", 0), torch.cat([batch(rank, 10) for rank in range(WORLD)])
    )


def test_a_rank_that_does_not_watch_is_named(trained):
    seen, _ = trained("alone")
    (fault,) = seen.history.infos[-1].faults

    assert [info.ranks for info in seen.history.infos] == [1] * STEPS
    assert fault.place == "values of rank 1"
    assert "nothing came for step 0" in fault.error


def test_what_nobody_reads_does_not_pile_up_in_the_store(results):
    # Of each part its head, its values, and the key that says they are there.
    assert results[1][1]["unread"]["keys"] == 3 * MAX_WAITING


def test_one_process_is_all_ranks(tmp_path):
    model = Net()
    with ExplorerWriter(str(tmp_path)) as writer:
        writer.watch(model, log_freq=1, ranks="all")
        model(batch(0, 0)).sum().backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
    seen = read_back(str(tmp_path))

    assert seen.history.infos[0].ranks == 1
    assert seen.status("head", "output", "value", "output") == Status.OK


def test_a_process_that_writes_needs_a_writer():
    with pytest.raises(ValueError, match="writer=None"):
        watch_model(None, Net())


def test_a_wrong_choice_of_ranks_is_named(tmp_path):
    with ExplorerWriter(str(tmp_path)) as writer, pytest.raises(ValueError, match="ranks='some'"):
        writer.watch(Net(), ranks="some")
