"""An autoencoder of sensor values that Python cleans, one by one, before every step."""

import argparse
import random

import torch
from _steps import timed
from torch import nn
from torch.profiler import record_function

parser = argparse.ArgumentParser()
parser.add_argument("--passes", type=int, default=4, help="of cleaning")
parser.add_argument("--deep", type=int, default=1, help="0: without the inner layer")
parser.add_argument("--steps", type=int, default=20)
arguments = parser.parse_args()

source = random.Random(0)
torch.manual_seed(0)
encode, inner, decode = nn.Linear(128, 256), nn.Linear(256, 256), nn.Linear(256, 128)
parts = nn.ModuleList([encode, inner, decode])
optimizer = torch.optim.SGD(parts.parameters(), lr=0.01)


def clean(values):
    """Smooth values, and replace those that stand out."""
    for _ in range(arguments.passes):
        before = values[0]
        smooth = []
        for value in values:
            if abs(value - before) > 0.8:
                value = before + 0.1 * (value - before)
            before = 0.7 * before + 0.3 * value
            smooth.append(round(before, 6))
        values = smooth
    return values


for _ in timed(range(arguments.steps)):
    raw = [[source.random() for _ in range(128)] for _ in range(128)]
    with record_function("clean"):
        rows = [clean(row) for row in raw]
    x = torch.tensor(rows)
    state = torch.relu(encode(x))
    if arguments.deep:
        with record_function("inner_layer"):
            state = torch.relu(inner(state))
    loss = nn.functional.mse_loss(decode(state), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
