"""Messages along the edges of a graph: index_select, then index_add; no library of graphs."""

import argparse

import torch
from _steps import timed
from torch import nn
from torch.profiler import record_function

parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int, default=4, help="of messages")
parser.add_argument("--degrees", type=int, default=1, help="0: degrees are counted once")
parser.add_argument("--steps", type=int, default=20)
arguments = parser.parse_args()
NODES, EDGES, WIDTH = 3000, 24000, 48

torch.manual_seed(0)
source, target = torch.randint(0, NODES, (2, EDGES))
features, labels = torch.randn(NODES, WIDTH), torch.randint(0, 7, (NODES,))
mixes = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(arguments.rounds))
last = nn.Linear(WIDTH, 7)
network = nn.ModuleList([mixes, last])
optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
degrees = torch.ones(NODES)
for _ in timed(range(arguments.steps)):
    if arguments.degrees:
        with record_function("degrees"):
            for _ in range(4):
                counted = torch.zeros(NODES).scatter_add_(0, target, torch.ones(EDGES))
                degrees = counted.clamp(min=1).index_select(0, target).sqrt()
                degrees = torch.zeros(NODES).index_add_(0, target, degrees).clamp(min=1)
    state = features
    for number, mix in enumerate(mixes):
        with record_function(f"rounds.{number}"):
            sent = state.index_select(0, source)
            summed = torch.zeros(NODES, WIDTH).index_add(0, target, sent)
            state = torch.relu(mix(summed / degrees[:, None])) + state
    loss = nn.functional.cross_entropy(last(state), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
