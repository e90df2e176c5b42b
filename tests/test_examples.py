"""Each example, run for two steps: what it is there to show is in the records it writes."""

from __future__ import annotations

import re
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tensorboard_torchexplorer import read
from tensorboard_torchexplorer.schema import Edge, Graph, Node, StepInfo

EXAMPLES = Path(__file__).parent.parent / "examples"


@dataclass
class Recorded:
    """What an example wrote of one model."""

    graph: Graph
    steps: list[StepInfo]

    def node(self, id: str) -> Node:
        return next(node for node in self.graph.nodes if node.id == id)

    def edges(self, level: str = ".") -> set[str]:
        """Edges of a level as `a -> b`, data-only ones as `a ~> b`, ends by their ids' last parts."""
        at = self.graph.nodes.index(self.node(level))
        arrows = {"gradient": "->", "data": "~>"}
        return {
            f"{self._end(edge, 0)} {arrows[edge.kind]} {self._end(edge, 1)}"
            for edge in self.graph.edges
            if edge.level == at
        }

    def _end(self, edge: Edge, which: int) -> str:
        end = (edge.source, edge.target)[which]
        return (
            self.graph.nodes[end.index].id.split("/")[-1] if end.kind == "node" else f"{end.kind} {end.index}"
        )


def run(name: str, logdir: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> dict[str, Recorded]:
    """Two steps of an example in this process, both logged: the models it recorded, by name."""
    arguments = ["--steps", "2", "--log-freq", "1", "--logdir", str(logdir), *options]
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
    monkeypatch.syspath_prepend(str(EXAMPLES))
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    models = read(logdir)["."]
    return {name: Recorded(model.graph, model.history().infos) for name, model in models.items()}


def assert_two_clean_steps(model: Recorded) -> None:
    assert [info.step for info in model.steps] == [0, 1]
    assert [fault for info in model.steps for fault in info.faults] == []


def test_every_example_has_a_test_here():
    examples = {path.stem for path in EXAMPLES.glob("*.py")} - {"command_line", "data"}

    assert {
        name for name in examples if not any(test.startswith(f"test_{name}_") for test in globals())
    } == set()


def test_resnet18_writes_scalars_and_records_into_one_file(tmp_path, monkeypatch, capsys):
    """Its graph is compared edge by edge in test_end_to_end.py."""
    model = run("resnet18", tmp_path, monkeypatch)["ResNet18"]
    (path,) = tmp_path.iterdir()
    scalars = EventAccumulator(str(path)).Reload()

    assert_two_clean_steps(model)
    assert [event.step for event in scalars.Scalars("loss/train")] == [0, 1]
    assert set(scalars.Tags()["scalars"]) >= {"accuracy/train", "accuracy/test"}
    assert re.search(r"test accuracy \d+\.\d%", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("quantizer", "around"), [("straight-through", {"encoder -> decoder"}), ("hard", set())]
)
def test_vqvae_leads_no_gradient_through_the_quantizer(quantizer, around, tmp_path, monkeypatch):
    model = run("vqvae", tmp_path, monkeypatch, "--quantizer", quantizer)["VQVAE"]
    edges = model.edges()

    assert_two_clean_steps(model)
    assert "quantizer ~> decoder" in edges
    assert {edge for edge in edges if edge.endswith("-> decoder") and "~" not in edge} == around


def test_transformer_encoder_has_four_inputs_with_their_names(tmp_path, monkeypatch):
    model = run("transformer_encoder", tmp_path, monkeypatch)["TextEncoder"]
    inputs = [(port.name, port.dtype) for port in model.node(".").inputs]

    assert_two_clean_steps(model)
    assert inputs == [("text", "int64"), ("kind", "int64"), ("padding", "bool"), ("far", "bool")]
    assert {"byte -> encoder", "kind -> encoder", "position -> encoder"} <= model.edges()


def test_gpt_shares_the_weight_of_its_embedding(tmp_path, monkeypatch):
    model = run("gpt", tmp_path, monkeypatch)["GPT2LMHeadModel"]
    shared = {f"{m.path}.{p.name}": p.shared for m in model.graph.modules for p in m.parameters if p.shared}

    assert_two_clean_steps(model)
    assert shared == {"lm_head.weight": "transformer.wte.weight"}
    assert {"h.0 -> h.1", "h.1 -> h.2"} <= model.edges("transformer")


def test_gan_records_two_models_with_their_own_steps(tmp_path, monkeypatch):
    models = run("gan", tmp_path, monkeypatch)
    generator, discriminator = models["generator"], models["discriminator"]

    assert set(models) == {"generator", "discriminator"}
    assert_two_clean_steps(generator)
    assert_two_clean_steps(discriminator)
    assert [info.forwards for info in generator.steps] == [1, 1]
    # Before its first update it only judges for itself, and after its last one no step of its own ends.
    assert [info.forwards for info in discriminator.steps] == [2, 3]


@pytest.mark.filterwarnings("ignore")  # Lightning's own
def test_lightning_module_shows_its_training_step_in_epochs(tmp_path, monkeypatch):
    model = run("lightning_module", tmp_path, monkeypatch)["Classifier"]

    assert_two_clean_steps(model)
    assert {"input 0 -> features", "features -> head", "head -> criterion"} <= model.edges()
    assert [info.time for info in model.steps] == [0, 1 / 46]


@pytest.mark.filterwarnings("ignore")  # Transformers' own
def test_hf_trainer_records_into_its_own_report(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", "")  # set by the example, so to be put back
    model = run("hf_trainer", tmp_path, monkeypatch)["GPT2LMHeadModel"]
    (path,) = tmp_path.glob("events.out.tfevents.*")

    assert_two_clean_steps(model)
    assert [info.forwards for info in model.steps] == [2, 2]
    assert "train/loss" in EventAccumulator(str(path)).Reload().Tags()["scalars"]


def test_ddp_pools_the_samples_of_two_processes(tmp_path, monkeypatch):
    model = run("ddp", tmp_path, monkeypatch)["Sequential"]

    assert_two_clean_steps(model)
    assert [info.ranks for info in model.steps] == [2, 2]


def test_attach_makes_the_attention_weights_an_output(tmp_path, monkeypatch):
    model = run("attach", tmp_path, monkeypatch)["PatchClassifier"]
    named = {
        (model.graph.nodes[s.node].id, s.group, s.kind) for s in model.graph.series if s.name == "weights"
    }

    assert_two_clean_steps(model)
    assert named == {
        (f"attention.{layer}", "output", kind) for layer in range(2) for kind in ("value", "grad")
    }


def test_mixed_precision_records_what_was_computed_in_bfloat16(tmp_path, monkeypatch):
    model = run("mixed_precision", tmp_path, monkeypatch)["Sequential"]
    dtypes = {port.dtype for node in model.graph.nodes for port in node.outputs}

    assert_two_clean_steps(model)
    assert "bfloat16" in dtypes
