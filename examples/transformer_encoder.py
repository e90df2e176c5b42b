"""A transformer encoder with several inputs and masks: fill in masked bytes of Python's docstrings.

    python examples/transformer_encoder.py

One of seven bytes is hidden, as in BERT, and predicted from those around it. The encoder takes the
text, the kind of each byte (letter, digit, space, other; hidden bytes keep theirs), a mask of the
padding and a mask that lets each byte attend to its neighbourhood only. All four are inputs of the
graph, and integers and booleans have no gradient: their panels say so.
"""

from __future__ import annotations

import torch
from command_line import command_line
from data import as_bytes, batches, docstrings
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from tensorboard_torchexplorer import ExplorerWriter

LENGTH = 96  # bytes of text looked at
HIDDEN = 1  # the byte that stands for a hidden one; docstrings hold none
PADDING = 0


class TextEncoder(nn.Module):
    """text, kind: int64 [batch, length]; padding: bool [batch, length]; far: bool [length, length], each
    True where not to look. Gives logits [batch, length, 256]."""

    def __init__(self, width: int = 96, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.byte = nn.Embedding(256, width)
        self.kind = nn.Embedding(4, width)
        self.position = nn.Embedding(LENGTH, width)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 256)

    def forward(self, text: Tensor, kind: Tensor, *, padding: Tensor, far: Tensor) -> Tensor:
        places = torch.arange(text.shape[1], device=text.device)
        x = self.byte(text) + self.kind(kind) + self.position(places)
        x = self.encoder(x, mask=far, src_key_padding_mask=padding)
        return self.head(self.norm(x))


def kind(character: str) -> int:
    """0 for letters, 1 for digits, 2 for white space, 3 for all else."""
    tests = [str.isalpha, str.isdigit, str.isspace]
    return next((number for number, test in enumerate(tests) if test(character)), len(tests))


def main() -> None:
    options = command_line(__doc__, "transformer_encoder", steps=600).parse_args()

    torch.manual_seed(0)
    texts = torch.stack([as_bytes(text, LENGTH) for text in docstrings()])
    loader = DataLoader(texts, batch_size=32, shuffle=True, drop_last=True)
    kinds = torch.tensor([kind(chr(byte)) for byte in range(256)])
    places = torch.arange(LENGTH)
    far = (places[:, None] - places).abs() > 24
    model = TextEncoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    with ExplorerWriter(options.logdir) as writer:
        writer.watch(model, log_freq=options.log_freq)
        for step, text in enumerate(batches(loader, options.steps, "transformer_encoder")):
            hidden = (torch.rand(text.shape) < 1 / 7) & (text != PADDING)
            shown = text.masked_fill(hidden, HIDDEN)
            logits = model(shown, kinds[text], padding=text == PADDING, far=far)
            loss = functional.cross_entropy(logits[hidden], text[hidden])
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

            right = (logits[hidden].argmax(-1) == text[hidden]).float().mean().item()
            writer.add_scalar("loss/train", loss.item(), step)
            writer.add_scalar("accuracy/train", right, step)
    print(f"hidden bytes guessed right in the last batch: {right:.1%}")


if __name__ == "__main__":
    main()
