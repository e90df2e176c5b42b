"""The tracer and the slow independent oracle agree, on random modules and on models of the field."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from levels import Traced
from models import CASES
from oracle import Answer, answer, record, tensors
from random_models import SHAPE, Program, build, programs
from torch import Tensor, nn

from tensorboard_torchexplorer.capture.calls import Call
from tensorboard_torchexplorer.schema import End

BEYOND_THE_ORACLE = {
    "identity_residual": "one object for both summands: the tracer names both sources",
    "enable_grad_inside_no_grad": "runs the level with gradients on from the start",
    "mixture_of_experts": "other numbers are routed to other experts",
    "numpy_round_trip": "numbers that became Python objects",
    "encoder_fused_in_eval": "nested tensors",
    "lstm_on_a_packed_sequence": "other lengths give other shapes",
    "lazy": "parameters that don't exist yet",
    "child_writes_to_its_argument": "a part of an argument is written to",
    "child_writes_to_its_argument_frozen": "a part of an argument is written to",
    "grandchild_writes_to_its_argument": "a part of an argument is written to",
    "child_writes_to_detached_memory": "a part of an argument is written to",
    "flattened_in_place": "a view passes into a child that writes to it",
    "passed_by_attribute": "an attribute",
    "left_as_attribute": "an attribute",
    "closure": "a closure",
    "written_through_another_attribute": "an attribute",
    "buffer_written_by_child": "a buffer",
    "branches": "state of the module decides",
    "error_caught_inside": "a call that raises",
    "lists_as_arguments": "a generator",
    "generator_as_root_input": "a generator",
    "checkpoint_reentrant": "a reentrant checkpoint",
    "nested_checkpoint_reentrant": "a reentrant checkpoint",
    "checkpoint_of_a_function": "a reentrant checkpoint",
    "function_that_calls_modules": "runs them without gradients",
    "gradient_in_forward": "differentiates a child's result",
    "functional_gradient": "torch.func",
    "vmapped": "torch.func",
    "inside_a_transform": "torch.func",
    "scripted": "scripted modules take no hooks",
    "autocast": "the context is the caller's",
    "float8": "no arithmetic on float8",
    "meta_tensors": "no values",
    "sparse_tensors": "no elementwise comparison",
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tensors of a few elements: more threads only wait for one another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def source_name(end: End) -> str:
    return {"input": f"in{end.index}", "output": f"out{end.index}", "node": f"#{end.index}"}[end.kind]


def found(call: Call) -> Answer:
    """What the tracer has found, in the oracle's words."""
    links: dict[str, set[tuple[str, str]]] = {"gradient": set(), "data": set()}
    for (source, target), (kind, _) in call.links.items():
        links[kind].add((source_name(source), source_name(target)))
    return Answer(links["gradient"], links["data"])


def assert_agreement(build_model: Callable[[], nn.Module], run: Callable[[Any], Any]) -> int:
    """All levels of a model have the oracle's edges; gives the number of levels."""
    recorded = record(build_model(), run)
    traced = Traced(build_model(), run)
    assert traced.faults == []
    assert [type(call.module).__name__ for call in recorded] == [
        type(call.module).__name__ for call in traced.tree.calls
    ]
    for theirs, ours in zip(recorded, traced.tree.calls, strict=True):
        assert found(ours) == answer(theirs), ours.id
    return len(recorded)


@pytest.mark.parametrize("name", [name for name in CASES if name not in BEYOND_THE_ORACLE])
@pytest.mark.filterwarnings("default")  # of torch's older features, which some models are about
def test_small_models_have_the_oracles_edges(name: str) -> None:
    _, run = CASES[name].build()

    assert assert_agreement(lambda: CASES[name].build()[0], run) > 0


# --- Models of the field -----------------------------------------------------------------------------

TOKENS = torch.arange(16).reshape(2, 8) * 7 % 50
LABELS = (TOKENS + 1) % 50
MASK = torch.ones_like(TOKENS).masked_fill(TOKENS > 45, 0)
SMALL = {"vocab_size": 60, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}


def gpt2(layers: int = 2) -> tuple[nn.Module, Callable[[Any], Tensor]]:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_positions=16, n_embd=16, n_layer=layers, n_head=2, use_cache=False, **SMALL
    )
    model = transformers.GPT2LMHeadModel(config)
    return model, lambda model: model(input_ids=TOKENS, attention_mask=MASK, labels=LABELS).loss


def llama() -> tuple[nn.Module, Callable[[Any], Tensor]]:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        use_cache=False,
        **SMALL,
    )
    return transformers.LlamaForCausalLM(config), lambda model: model(input_ids=TOKENS, labels=LABELS).loss


def bert() -> tuple[nn.Module, Callable[[Any], Tensor]]:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        **SMALL,
    )
    kinds = (torch.arange(8) > 3).long().expand(2, 8).contiguous()

    def run(model: Any) -> Tensor:
        return model(input_ids=TOKENS, attention_mask=MASK, token_type_ids=kinds, labels=LABELS).loss

    return transformers.BertForMaskedLM(config), run


def vit() -> tuple[nn.Module, Callable[[Any], Tensor]]:
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=16,
        patch_size=4,
    )
    images = torch.linspace(-1, 1, 2 * 3 * 16 * 16).reshape(2, 3, 16, 16)
    labels = torch.tensor([0, 1])
    model = transformers.ViTForImageClassification(config)
    return model, lambda model: model(pixel_values=images, labels=labels).loss


def t5() -> tuple[nn.Module, Callable[[Any], Tensor]]:
    transformers = pytest.importorskip("transformers")
    config = transformers.T5Config(
        vocab_size=60,
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=2,
        num_heads=2,
        decoder_start_token_id=0,
        use_cache=False,
    )
    model = transformers.T5ForConditionalGeneration(config)
    return model, lambda model: model(input_ids=TOKENS, labels=LABELS).loss


@pytest.mark.parametrize("make", [gpt2, llama, bert, vit, t5])
def test_transformers_have_the_oracles_edges(make: Callable[[], Any]) -> None:
    _, run = make()

    def seeded() -> nn.Module:
        torch.manual_seed(0)
        return make()[0].train()

    assert assert_agreement(seeded, run) > 30


# --- Random modules ----------------------------------------------------------------------------------


def seeded(program: Program) -> nn.Module:
    torch.manual_seed(0)
    return build(program, {})


def inputs(program: Program) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(SHAPE, generator=generator) for _ in range(program.inputs)]


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(programs())
def test_random_modules_have_the_oracles_edges(program: Program) -> None:
    assert_agreement(lambda: seeded(program), lambda model: model(*inputs(program)))


class Trained:
    """What one step leaves behind: outputs, gradients, the state of the generator, the error if any."""

    def __init__(self, program: Program, traced: bool) -> None:
        model = seeded(program)
        torch.manual_seed(2)
        x = inputs(program)
        self.outputs = tensors(Traced(model, lambda model: model(*x)).result if traced else model(*x))
        loss = torch.zeros(())
        for output in self.outputs:
            loss = loss + output.square().mean()
        self.error = ""
        if loss.requires_grad:
            try:
                loss.backward()
            except RuntimeError as error:  # a tensor that backward needs was changed in place
                self.error = str(error)
        self.random = torch.get_rng_state()
        self.gradients = [parameter.grad for parameter in model.parameters()]
        self.nodes = [output.grad_fn.name() if output.grad_fn else "" for output in self.outputs]


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(programs())
def test_random_modules_are_not_changed_by_tracing(program: Program) -> None:
    plain, traced = Trained(program, traced=False), Trained(program, traced=True)

    assert (traced.error, traced.nodes) == (plain.error, plain.nodes)
    assert torch.equal(traced.random, plain.random)
    for ours, theirs in zip(
        [*traced.outputs, *traced.gradients], [*plain.outputs, *plain.gradients], strict=True
    ):
        assert (ours is None) == (theirs is None)
        assert ours is None or torch.equal(ours, theirs)
