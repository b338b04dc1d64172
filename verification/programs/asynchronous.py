"""An asyncio loop: every step awaits a batch from slow storage, trains, and awaits a log."""

import argparse
import asyncio

import torch
from _steps import timed
from torch import nn
from torch.profiler import record_function

parser = argparse.ArgumentParser()
parser.add_argument("--fetch", type=float, default=24, help="ms until a batch is there")
parser.add_argument("--log", type=float, default=8, help="ms until a log is written; 0: none")
parser.add_argument("--steps", type=int, default=20)
arguments = parser.parse_args()

torch.manual_seed(0)
network = nn.Sequential(nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 64))
optimizer = torch.optim.Adam(network.parameters())


async def batch():
    """Fetch a batch."""
    with record_function("fetch"):
        await asyncio.sleep(arguments.fetch / 1e3)
    return torch.randn(96, 512), torch.randn(96, 64)


async def main():
    """Train."""
    for _ in timed(range(arguments.steps)):
        x, y = await batch()
        loss = nn.functional.mse_loss(network(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if arguments.log:
            with record_function("write_log"):
                await asyncio.sleep(arguments.log / 1e3)


asyncio.run(main())
