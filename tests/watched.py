"""What the tests of watching share: a small model of two parts, a loop, all that a model has."""

from __future__ import annotations

import torch
from torch import nn

X = torch.randn(6, 8, generator=torch.Generator().manual_seed(7))


class TwoParts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 4), nn.ReLU())
        self.decoder = nn.Linear(4, 8)

    def forward(self, x):
        return self.decoder(self.encoder(x))


def two_parts() -> TwoParts:
    torch.manual_seed(0)
    return TwoParts()


def train(model, steps: int = 1, optimizer=None) -> None:
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(X).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def everything(model: nn.Module) -> list:
    """All attributes of all modules, dictionaries by identity and by content and order."""
    found = []
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            content = list(value.items()) if isinstance(value, dict) else value
            found.append((path, name, id(value), repr(content) if "hook" in name else type(content)))
    return found
