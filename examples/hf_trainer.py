"""The Hugging Face Trainer: one callback, and its own TensorBoard report holds the records.

    python examples/hf_trainer.py

A small GPT-2 from scratch predicts the next byte of Python's docstrings. Gradients are recorded as the
optimizer uses them: summed over the accumulated batches, and clipped.
"""

from __future__ import annotations

import os

import torch
from command_line import command_line
from data import docstrings
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from tensorboard_torchexplorer.integrations.transformers import ExplorerCallback

LENGTH = 128  # bytes of context


def examples(text: Tensor) -> list[dict[str, Tensor]]:
    """Pieces of `text` as the model wants them."""
    return [{"input_ids": piece, "labels": piece} for piece in text.unfold(0, LENGTH, LENGTH)]


def main() -> None:
    options = command_line(__doc__, "hf_trainer", steps=300).parse_args()

    torch.manual_seed(0)
    text = torch.frombuffer(bytearray("\n\n".join(docstrings()).encode()), dtype=torch.uint8).long()
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=256, n_positions=LENGTH, n_embd=96, n_layer=3, n_head=4, bos_token_id=0, eos_token_id=0
        )
    )
    os.environ["TENSORBOARD_LOGGING_DIR"] = options.logdir
    arguments = TrainingArguments(
        output_dir=options.logdir,
        max_steps=options.steps,
        learning_rate=2e-3,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        max_grad_norm=1.0,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=100,
        save_strategy="no",
        report_to="tensorboard",
        dataloader_pin_memory=torch.cuda.is_available(),  # else torch warns
    )
    trainer = Trainer(
        model,
        arguments,
        train_dataset=examples(text[:-50_000]),
        eval_dataset=examples(text[-50_000:])[:64],
        callbacks=[ExplorerCallback(log_freq=options.log_freq, epochs=True)],
    )
    trainer.train()


if __name__ == "__main__":
    main()
