"""Bags of embeddings from twelve tables, then a small network; dense gradients of large tables."""

import argparse

import torch
from _steps import timed
from torch import nn
from torch.profiler import record_function

parser = argparse.ArgumentParser()
parser.add_argument("--tables", type=int, default=12)
parser.add_argument("--top", type=int, default=1, help="0: without the wide layer at the top")
parser.add_argument("--steps", type=int, default=20)
arguments = parser.parse_args()
ROWS, WIDTH, BATCH, ITEMS = 12000, 32, 256, 20

torch.manual_seed(0)
tables = nn.ModuleList(nn.EmbeddingBag(ROWS, WIDTH, mode="sum") for _ in range(arguments.tables))
below, top, last = nn.Linear(WIDTH, 128), nn.Linear(128, 128), nn.Linear(128, 1)
network = nn.ModuleList([tables, below, top, last])
optimizer = torch.optim.Adagrad(network.parameters(), lr=0.01)
for _ in timed(range(arguments.steps)):
    state = torch.zeros(BATCH, WIDTH)
    for number, table in enumerate(tables):
        with record_function(f"tables.{number}"):
            state = state + table(torch.randint(0, ROWS, (BATCH, ITEMS)))
    state = torch.relu(below(state))
    if arguments.top:
        with record_function("top_layer"):
            state = torch.relu(top(state))
    clicks = torch.randint(0, 2, (BATCH, 1)).float()
    loss = nn.functional.binary_cross_entropy_with_logits(last(state), clicks)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
