"""A plain function computes a penalty on the weights of a classifier: most of its training."""

import argparse

import torch
from _steps import timed
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--penalized", type=int, default=12, help="layers that have the penalty")
parser.add_argument("--hidden", type=int, default=12, help="layers of the model that are used")
parser.add_argument("--steps", type=int, default=20)
arguments = parser.parse_args()
WIDTH, BATCH = 192, 256

torch.manual_seed(0)
layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(12))
head = nn.Linear(WIDTH, 10)
optimizer = torch.optim.SGD([*layers.parameters(), *head.parameters()], lr=1e-3)


def score(batch):
    """Classify a batch."""
    for layer in layers[: arguments.hidden]:
        batch = batch + torch.relu(layer(batch))
    return head(batch)


def penalty():
    """Say how far rows of the weights are from orthogonal to each other."""
    total = torch.zeros(())
    for layer in layers[: arguments.penalized]:
        rows = layer.weight @ layer.weight.T
        total = total + (rows - torch.eye(WIDTH)).pow(2).sum()
    return total


for _ in timed(range(arguments.steps)):
    batch, label = torch.randn(BATCH, WIDTH), torch.randint(10, (BATCH,))
    loss = nn.functional.cross_entropy(score(batch), label)
    if arguments.penalized:
        loss = loss + 1e-4 * penalty()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
