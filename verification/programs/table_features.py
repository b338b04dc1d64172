"""A short function makes features of each column of a table: thirty calls of it in each step."""

import argparse

import torch
from _steps import timed
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--columns", type=int, default=30, help="columns that it makes features of")
parser.add_argument("--ranked", type=int, default=1, help="0: features are not ranked")
parser.add_argument("--steps", type=int, default=20)
arguments = parser.parse_args()
ROWS, COLUMNS = 1024, 30

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3 * COLUMNS, 96), nn.ReLU(), nn.Linear(96, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)


def ranked(column):
    """Give the place of each value among all."""
    return column.argsort().argsort() / ROWS


def features(column):
    """Make three features of a column."""
    low, high = column.quantile(torch.tensor([0.01, 0.99]))
    clipped = column.clamp(low, high)
    scaled = (clipped - clipped.mean()) / clipped.std()
    place = ranked(column) if arguments.ranked else scaled
    return torch.stack([scaled, scaled.abs().log1p(), place], 1)


for _ in timed(range(arguments.steps)):
    table, target = torch.randn(ROWS, COLUMNS).exp(), torch.randn(ROWS, 1)
    made = [features(table[:, column]) for column in range(arguments.columns)]
    rest = table[:, arguments.columns :].repeat(1, 3)
    loss = (model(torch.cat([*made, rest], 1)) - target).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
