"""Where integers choose: quantizers, embeddings, routing; and values that leave torch. See models.py."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from models_register import Built, case, mean_square, on
from torch import Tensor, nn


class VectorQuantizer(nn.Module):
    """The quantiser of a VQ-VAE: nearest code, with or without the straight-through estimator."""

    def __init__(self, codes: int, size: int, straight_through: bool) -> None:
        super().__init__()
        self.codebook = nn.Embedding(codes, size)
        self.straight_through = straight_through

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        flat = z.permute(0, 2, 3, 1).reshape(-1, z.shape[1])
        nearest = torch.cdist(flat, self.codebook.weight).argmin(1)
        codes = self.codebook(nearest).view(z.shape[0], z.shape[2], z.shape[3], -1).permute(0, 3, 1, 2)
        loss = F.mse_loss(codes, z.detach()) + 0.25 * F.mse_loss(codes.detach(), z)
        if self.straight_through:
            codes = z + (codes - z).detach()
        return loss, codes, nearest


class VQVAE(nn.Module):
    def __init__(self, straight_through: bool) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 8, 4, 2, 1), nn.ReLU(inplace=True), nn.Conv2d(8, 4, 3, 1, 1)
        )
        self.quantizer = VectorQuantizer(16, 4, straight_through)
        self.decoder = nn.Sequential(
            nn.Conv2d(4, 8, 3, 1, 1), nn.ReLU(True), nn.ConvTranspose2d(8, 3, 4, 2, 1)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        loss, quantized, codes = self.quantizer(self.encoder(x))
        return loss, self.decoder(quantized), codes


def vqvae(straight_through: bool) -> Built:
    x = torch.randn(2, 3, 8, 8)

    def run(model: nn.Module) -> Tensor:
        loss, reconstruction, _ = model(x)
        return loss + F.mse_loss(reconstruction, x)

    return VQVAE(straight_through), run


VQVAE_TOP = "in0 > encoder > quantizer > decoder > out1; quantizer > out0; quantizer ..> out2"


@case(
    {
        ".": VQVAE_TOP,
        "encoder": "in0 > 0 > 1 > 2 > out0",
        # connected: the loss, and the codes through z + (codes - z).detach()
        "quantizer": "in0 > out0; in0 > out1; in0 ..> out2; in0 ..> codebook > out0; codebook ..> out1",
    }
)
def vqvae_straight_through() -> Built:
    return vqvae(straight_through=True)


@case(
    {
        ".": VQVAE_TOP,
        # disconnected: the codes are looked up by integers
        "quantizer": "in0 > out0; in0 ..> out2; in0 ..> codebook > out0; codebook > out1",
    }
)
def vqvae_hard() -> Built:
    return vqvae(straight_through=False)


class HardQuantizer(nn.Module):
    """The disconnection at the top level itself."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(8, 8)
        self.codebook = nn.Embedding(16, 8)
        self.decoder = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z = self.encoder(x)
        nearest = torch.cdist(z, self.codebook.weight).argmin(-1)
        return self.decoder(self.codebook(nearest)), nearest, z


@case(
    {
        ".": """in0 > encoder > out2; encoder ..> codebook > decoder > out0
                encoder ..> out1""",
        "codebook": "in0 ..> out0",
    }
)
def hard_quantizer() -> Built:
    x = torch.randn(5, 8)

    def run(model: nn.Module) -> Tensor:
        decoded, _, z = model(x)
        return mean_square(decoded, z)

    return HardQuantizer(), run


@case({".": "in0 ..> embed > 1 > out0", "embed": "in0 ..> out0"})
def embedding() -> Built:
    model = nn.Sequential()
    model.add_module("embed", nn.Embedding(10, 4))
    model.add_module("1", nn.Linear(4, 2))
    return model, on(torch.randint(10, (3, 5)))


@case({".": "in0 ..> 0 > 1 > out0"})
def embedding_bag() -> Built:
    return nn.Sequential(nn.EmbeddingBag(10, 4), nn.Linear(4, 2)), on(torch.randint(10, (3, 5)))


class MixtureOfExperts(nn.Module):
    """Routing by integers: which expert sees a sample is not differentiable, how much it counts is."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(4, 3)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.out = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
        total = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, slots = (chosen == number).nonzero(as_tuple=True)
            total.index_add_(0, rows, expert(x[rows]) * weights[rows, slots, None])
        return self.out(total)


@case(
    {
        ".": """in0 > gate > out > out0
                in0 > experts.0 > out; in0 > experts.1 > out; in0 > experts.2 > out
                gate ..> experts.0; gate ..> experts.1; gate ..> experts.2"""
    }
)
def mixture_of_experts() -> Built:
    return MixtureOfExperts(), on(torch.randn(16, 4))


class NumpyRoundTrip(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        array = h.detach().numpy()
        return self.b(torch.from_numpy(array) + 1) + self.b(torch.tensor(h.tolist())) + h


@case({".": "in0 > a > out0; a ..> b > out0; b#1 > out0"})
def numpy_round_trip() -> Built:
    """Shared memory is followed; numbers that became Python objects are not."""
    return NumpyRoundTrip(), on(torch.randn(3, 4))
