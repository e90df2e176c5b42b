"""A VQ-VAE on handwritten digits: where gradients stop, and how they get past.

    python examples/vqvae.py                               # van den Oord et al. (2017)
    python examples/vqvae.py --quantizer hard              # without the straight-through estimator

Choosing the nearest code is not differentiable. In the graph the quantizer therefore has no edge
that a gradient could take to the decoder, only a dashed one for the values. The straight-through
estimator leads the gradient around it, an edge from encoder to decoder; with `hard` that edge is
missing and the encoder's gradient norms show the commitment loss alone.
"""

from __future__ import annotations

import torch
from command_line import command_line
from data import batches, digits
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from tensorboard_torchexplorer import ExplorerWriter


class Quantizer(nn.Module):
    """Each vector of [batch, channels, height, width] replaced by the nearest of `codes` vectors."""

    def __init__(self, codes: int, channels: int) -> None:
        super().__init__()
        self.codebook = nn.Embedding(codes, channels)

    def forward(self, z: Tensor) -> Tensor:
        vectors = z.detach().movedim(1, -1)
        nearest = torch.cdist(vectors.flatten(0, 2), self.codebook.weight).argmin(1)
        return self.codebook(nearest).view(vectors.shape).movedim(-1, 1)


class VQVAE(nn.Module):
    """Images to (reconstruction, codebook loss + commitment loss)."""

    def __init__(self, quantizer: str, width: int = 32, codes: int = 64, channels: int = 16) -> None:
        super().__init__()
        self.straight_through = quantizer == "straight-through"
        self.encoder = nn.Sequential(
            nn.Conv2d(1, width, 4, stride=2, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 4, stride=2, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, channels, 1),
        )
        self.quantizer = Quantizer(codes, channels)
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(channels, width, 4, stride=2, padding=1),
            nn.ReLU(inplace=True),
            nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1),
            nn.Tanh(),
        )

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        z = self.encoder(images)
        quantized = self.quantizer(z)
        loss = functional.mse_loss(quantized, z.detach()) + 0.25 * functional.mse_loss(z, quantized.detach())
        # The value of `quantized`; the gradient of the decoder goes to `z` or, if hard, nowhere.
        code = quantized.detach()
        if self.straight_through:
            code = z + (code - z).detach()
        return self.decoder(code), loss


def main() -> None:
    parser = command_line(__doc__, "vqvae", steps=600)
    parser.add_argument("--quantizer", choices=["straight-through", "hard"], default="straight-through")
    options = parser.parse_args()

    torch.manual_seed(0)
    train, test = digits()
    loader = DataLoader(train, batch_size=32, shuffle=True, drop_last=True)
    model = VQVAE(options.quantizer)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    with ExplorerWriter(options.logdir) as writer:
        writer.watch(model, log_freq=options.log_freq)
        for step, (images, _) in enumerate(batches(loader, options.steps, "vqvae")):
            reconstruction, codes_loss = model(images)
            error = functional.mse_loss(reconstruction, images)
            (error + codes_loss).backward()
            optimizer.step()
            optimizer.zero_grad()
            writer.add_scalar("loss/reconstruction", error.item(), step)
            writer.add_scalar("loss/codes", codes_loss.item(), step)

        model.eval()
        with torch.no_grad():
            images, _ = test[:]
            reconstruction, _ = model(images)
        writer.add_images("test/reconstruction", torch.cat([images[:8], reconstruction[:8]]) / 2 + 0.5)
    error = functional.mse_loss(reconstruction, images)
    print(f"test error {error:.4f}, {error / images.var():.1%} of the images' variance")


if __name__ == "__main__":
    main()
