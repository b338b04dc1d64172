"""A small classifier, recorded twice: as it was yesterday, and with its GELU written by hand.

nadi record --steps 8 --warmup 3 -o yesterday -- python train.py
nadi record --steps 8 --warmup 3 -o today -- python train.py --gelu by-hand
"""

import argparse
import math

import torch
from torch import Tensor, nn


class GeluByHand(nn.Module):
    """The tanh form of GELU, of single operations."""

    def forward(self, x: Tensor) -> Tensor:
        """Give x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3))) / 2."""
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))
        return 0.5 * x * (1.0 + torch.tanh(inner))


def main() -> None:
    """Train for some steps on random data."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gelu", choices=["torch", "by-hand"], default="torch")
    gelu = nn.GELU if parser.parse_args().gelu == "torch" else GeluByHand
    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [nn.Linear(256, 256), gelu()]
    net = nn.Sequential(*layers, nn.Linear(256, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(40):
        x, y = torch.randn(256, 256), torch.randint(10, (256,))
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
