"""GPT-2 from Hugging Face, small and from scratch: predict the next byte of Python's docstrings.

    python examples/gpt.py

The model is transformers' own code, unchanged: keyword arguments, an output object, a cache, and an
output layer that shares its weight with the embedding.
"""

from __future__ import annotations

import math

import torch
from command_line import command_line
from data import batches, docstrings
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel

from tensorboard_torchexplorer import ExplorerWriter

LENGTH = 128  # bytes of context


def main() -> None:
    options = command_line(__doc__, "gpt", steps=600).parse_args()

    torch.manual_seed(0)
    text = torch.frombuffer(bytearray("\n\n".join(docstrings()).encode()), dtype=torch.uint8).long()
    train, test = text[:-50_000].unfold(0, LENGTH, LENGTH), text[-50_000:].unfold(0, LENGTH, LENGTH)
    loader = DataLoader(train, batch_size=16, shuffle=True, drop_last=True)
    config = GPT2Config(
        vocab_size=256, n_positions=LENGTH, n_embd=96, n_layer=3, n_head=4, bos_token_id=0, eos_token_id=0
    )
    model = GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    with ExplorerWriter(options.logdir) as writer:
        writer.watch(model, log_freq=options.log_freq)
        for step, tokens in enumerate(batches(loader, options.steps, "gpt")):
            loss = model(input_ids=tokens, labels=tokens).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            writer.add_scalar("loss/train", loss.item(), step)

        model.eval()
        with torch.no_grad():
            loss = model(input_ids=test[:64], labels=test[:64]).loss.item()
        writer.add_scalar("loss/test", loss, options.steps)
    print(f"test loss {loss / math.log(2):.2f} bits per byte (8 is guessing)")


if __name__ == "__main__":
    main()
