"""Small random models of the `transformers` package, in training as their users train them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from models import Built
from torch import Tensor, nn

TRANSFORMERS: dict[str, Callable[[], Built]] = {}

TOKENS = torch.randint(4, 60, (2, 7), generator=torch.Generator().manual_seed(5))
IMAGES = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(5))


def model(function: Callable[[], tuple[nn.Module, dict[str, Any]]]) -> Callable[[], Built]:
    """Register a model under the name of the function that builds it and its keyword arguments."""

    def build() -> Built:
        torch.manual_seed(0)
        model, arguments = function()

        def run(model: nn.Module) -> Tensor:
            return model(**arguments).loss

        return model.train(), run

    TRANSFORMERS[function.__name__] = build
    return build


@model
def gpt2() -> tuple[nn.Module, dict[str, Any]]:
    config = transformers.GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=2, n_head=2)
    return transformers.GPT2LMHeadModel(config), {"input_ids": TOKENS, "labels": TOKENS}


@model
def llama() -> tuple[nn.Module, dict[str, Any]]:
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=16,
    )
    return transformers.LlamaForCausalLM(config), {"input_ids": TOKENS, "labels": TOKENS}


@model
def bert() -> tuple[nn.Module, dict[str, Any]]:
    config = transformers.BertConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=16,
    )
    mask = torch.ones_like(TOKENS)
    mask[0, 5:] = 0
    arguments = {"input_ids": TOKENS, "attention_mask": mask, "labels": torch.tensor([0, 1])}
    return transformers.BertForSequenceClassification(config), arguments


@model
def vit() -> tuple[nn.Module, dict[str, Any]]:
    config = transformers.ViTConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=16,
        patch_size=8,
    )
    arguments = {"pixel_values": IMAGES, "labels": torch.tensor([0, 1])}
    return transformers.ViTForImageClassification(config), arguments


@model
def t5() -> tuple[nn.Module, dict[str, Any]]:
    config = transformers.T5Config(
        vocab_size=64, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0
    )
    return transformers.T5ForConditionalGeneration(config), {"input_ids": TOKENS, "labels": TOKENS}
