"""A GAN on handwritten digits: two models, two optimizers, one tab.

    python examples/gan.py

Both models are watched under names of their own, and handing each its optimizer says whose updates
count as its steps. The discriminator runs three times a step: after its own update for that of the
generator, then on real and on made images. Of several forwards in a step the first is recorded.
"""

from __future__ import annotations

import torch
from command_line import command_line
from data import batches, digits
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from tensorboard_torchexplorer import ExplorerWriter

NOISE = 32


class Generator(nn.Module):
    """Noise [batch, NOISE] to images [batch, 1, 32, 32] in -1..1."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.project = nn.Linear(NOISE, 4 * width * 4 * 4)
        self.up1 = self._up(4 * width, 2 * width)
        self.up2 = self._up(2 * width, width)
        self.image = nn.Sequential(nn.ConvTranspose2d(width, 1, 4, 2, 1), nn.Tanh())

    @staticmethod
    def _up(channels_in: int, channels: int) -> nn.Sequential:
        return nn.Sequential(
            nn.ConvTranspose2d(channels_in, channels, 4, 2, 1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
        )

    def forward(self, noise: Tensor) -> Tensor:
        x = self.project(noise).unflatten(1, (-1, 4, 4))
        return self.image(self.up2(self.up1(x)))


class Discriminator(nn.Sequential):
    """Images [batch, 1, 32, 32] to logits [batch, 1]: real or made."""

    def __init__(self, width: int = 32) -> None:
        super().__init__(
            nn.Conv2d(1, width, 4, 2, 1),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Flatten(),
            nn.Linear(2 * width * 8 * 8, 1),
        )


def judged(logits: Tensor, real: bool) -> Tensor:
    """The loss of a discriminator whose images are all real, or all made."""
    return functional.binary_cross_entropy_with_logits(logits, torch.full_like(logits, float(real)))


def main() -> None:
    options = command_line(__doc__, "gan", steps=600).parse_args()

    torch.manual_seed(0)
    train, _ = digits()
    loader = DataLoader(train, batch_size=32, shuffle=True, drop_last=True)
    generator, discriminator = Generator(), Discriminator()
    generator_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    discriminator_optimizer = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))

    with ExplorerWriter(options.logdir) as writer:
        writer.watch(generator, "generator", log_freq=options.log_freq, optimizer=generator_optimizer)
        writer.watch(
            discriminator, "discriminator", log_freq=options.log_freq, optimizer=discriminator_optimizer
        )
        for step, (images, _) in enumerate(batches(loader, options.steps, "gan")):
            made = generator(torch.randn(len(images), NOISE))

            discriminator_optimizer.zero_grad()
            doubt = judged(discriminator(images), real=True) + judged(
                discriminator(made.detach()), real=False
            )
            doubt.backward()
            discriminator_optimizer.step()

            generator_optimizer.zero_grad()
            fooled = judged(discriminator(made), real=True)
            fooled.backward()
            generator_optimizer.step()

            writer.add_scalar("loss/discriminator", doubt.item(), step)
            writer.add_scalar("loss/generator", fooled.item(), step)

        generator.eval()
        with torch.no_grad():
            writer.add_images("made", generator(torch.randn(16, NOISE)) / 2 + 0.5)
    print(f"losses: discriminator {doubt.item():.3f}, generator {fooled.item():.3f}")


if __name__ == "__main__":
    main()
