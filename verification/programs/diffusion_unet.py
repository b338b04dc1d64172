"""A small diffusion model: noise is predicted by a UNet; bound by its convolutions."""

import argparse
import copy

import torch
from _steps import timed
from torch import nn
from torch.nn import functional
from torch.profiler import record_function

parser = argparse.ArgumentParser()
parser.add_argument("--middle", type=int, default=3, help="blocks in the middle")
parser.add_argument("--average", type=int, default=1, help="0: no moving average of the weights")
parser.add_argument("--steps", type=int, default=20)
arguments = parser.parse_args()


class Part(nn.Module):
    """A normalized convolution that knows the time of diffusion."""

    def __init__(self, inner, outer):
        super().__init__()
        self.norm, self.time = nn.GroupNorm(4, inner), nn.Linear(16, outer)
        self.change = nn.Conv2d(inner, outer, 3, padding=1)

    def forward(self, x, time):
        """Convolve, and add the time."""
        return self.change(functional.silu(self.norm(x))) + self.time(time)[:, :, None, None]


class UNet(nn.Module):
    """Down, middle, up."""

    def __init__(self):
        super().__init__()
        self.start, self.end = nn.Conv2d(3, 24, 3, padding=1), nn.Conv2d(24, 3, 3, padding=1)
        self.down, self.up = Part(24, 48), Part(48 + 24, 24)
        self.middle = nn.ModuleList(Part(48, 48) for _ in range(arguments.middle))

    def forward(self, x, time):
        """Predict the noise."""
        top = self.start(x)
        low = self.down(functional.avg_pool2d(top, 2), time)
        for number, part in enumerate(self.middle):
            with record_function(f"middle.{number}"):
                low = low + part(low, time)
        wide = functional.interpolate(low, scale_factor=2.0)
        return self.end(self.up(torch.cat([wide, top], 1), time))


torch.manual_seed(0)
network = UNet()
smooth = copy.deepcopy(network)
optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
frequencies = torch.arange(1, 9) / 8
for _ in timed(range(arguments.steps)):
    images, noise = torch.rand(14, 3, 24, 24), torch.randn(14, 3, 24, 24)
    when = torch.rand(14, 1)
    time = torch.cat([(when * frequencies).sin(), (when * frequencies).cos()], 1)
    mixed = images * (1 - when[:, :, None, None]) + noise * when[:, :, None, None]
    loss = functional.mse_loss(network(mixed, time), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if arguments.average:
        with record_function("moving_average"), torch.no_grad():
            for kept, new in zip(smooth.parameters(), network.parameters(), strict=True):
                kept.mul_(0.999).add_(new, alpha=0.001)
