"""Small random models of the `transformers` package, in training as their users train them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from models_register import Built
from torch import Tensor, nn

TRANSFORMERS: dict[str, Callable[[], Built]] = {}

TOKENS = torch.randint(4, 60, (2, 7), generator=torch.Generator().manual_seed(5))
SOUND = torch.randn(2, 400, generator=torch.Generator().manual_seed(5))
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


@model
def mixtral() -> tuple[nn.Module, dict[str, Any]]:
    """A mixture of experts, with the loss that spreads the tokens over them."""
    config = transformers.MixtralConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        num_local_experts=4,
        num_experts_per_tok=2,
        output_router_logits=True,
    )
    return transformers.MixtralForCausalLM(config), {"input_ids": TOKENS, "labels": TOKENS}


@model
def mamba() -> tuple[nn.Module, dict[str, Any]]:
    """A state space model."""
    config = transformers.MambaConfig(vocab_size=64, hidden_size=16, state_size=4, num_hidden_layers=2)
    return transformers.MambaForCausalLM(config), {"input_ids": TOKENS, "labels": TOKENS}


@model
def wav2vec2() -> tuple[nn.Module, dict[str, Any]]:
    """Convolutions on sound, a parametrized one among them, masks written in place; CTC."""
    config = transformers.Wav2Vec2Config(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        conv_dim=(8, 8),
        conv_stride=(5, 2),
        conv_kernel=(10, 3),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
        mask_time_length=2,
    )
    arguments = {"input_values": SOUND, "labels": TOKENS[:, :4] % 31 + 1}
    return transformers.Wav2Vec2ForCTC(config), arguments


@model
def whisper() -> tuple[nn.Module, dict[str, Any]]:
    """Encoder of sound, decoder of text."""
    config = transformers.WhisperConfig(
        vocab_size=64,
        d_model=16,
        encoder_layers=1,
        decoder_layers=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        num_mel_bins=8,
        max_source_positions=10,
        max_target_positions=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    arguments = {"input_features": SOUND.reshape(2, -1)[:, :160].reshape(2, 8, 20), "labels": TOKENS}
    return transformers.WhisperForConditionalGeneration(config), arguments


def llama_under_checkpoints(reentrant: bool) -> tuple[nn.Module, dict[str, Any]]:
    found, _ = TRANSFORMERS["llama"]()
    found.gradient_checkpointing_enable({"use_reentrant": reentrant})
    found.enable_input_require_grads()
    return found, {"input_ids": TOKENS, "labels": TOKENS}


@model
def llama_under_reentrant_checkpoints() -> tuple[nn.Module, dict[str, Any]]:
    return llama_under_checkpoints(True)


@model
def llama_under_checkpoints_with_saved_states() -> tuple[nn.Module, dict[str, Any]]:
    return llama_under_checkpoints(False)
