"""A residual network with batch normalization; Python stacks of modules are not recorded."""

import argparse

import torch
from _steps import timed
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--norm", type=int, default=1, help="0: without batch normalization")
parser.add_argument("--metric", type=int, default=1, help="0: accuracies are not computed")
parser.add_argument("--steps", type=int, default=20)
arguments = parser.parse_args()


class Residual(nn.Module):
    """Two convolutions beside an identity."""

    def __init__(self, width):
        super().__init__()
        norm = nn.BatchNorm2d if arguments.norm else lambda _: nn.Identity()
        self.one, self.norm_one = nn.Conv2d(width, width, 3, padding=1, bias=False), norm(width)
        self.two, self.norm_two = nn.Conv2d(width, width, 3, padding=1, bias=False), norm(width)

    def forward(self, x):
        """Add to what comes."""
        return torch.relu(x + self.norm_two(self.two(torch.relu(self.norm_one(self.one(x))))))


torch.manual_seed(0)
network = nn.Sequential(
    nn.Conv2d(3, 24, 3, stride=2, padding=1), Residual(24), Residual(24),
    nn.Conv2d(24, 48, 3, stride=2, padding=1), Residual(48), nn.AdaptiveAvgPool2d(1),
    nn.Flatten(), nn.Linear(48, 20),
)  # fmt: skip
optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
for _ in timed(range(arguments.steps)):
    x, y = torch.rand(14, 3, 40, 40), torch.randint(0, 20, (14,))
    out = network(x)
    loss = nn.functional.cross_entropy(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if arguments.metric:
        with torch.profiler.record_function("accuracies"), torch.no_grad():
            for limit in torch.linspace(0, 1, 16):
                sure = out.softmax(1).max(1).values > limit
                for kind in range(3):
                    ((out.argmax(1) == y) & (y == kind) & sure).float().mean()
