"""Two LSTMs after each other tag sequences; bound by the long first one."""

import argparse

import torch
from _steps import timed
from torch import nn
from torch.profiler import record_function

parser = argparse.ArgumentParser()
parser.add_argument("--second", type=int, default=1, help="0: without the second LSTM")
parser.add_argument("--penalty", type=int, default=1, help="0: without the penalty on weights")
parser.add_argument("--steps", type=int, default=20)
arguments = parser.parse_args()

torch.manual_seed(0)
letters = nn.Embedding(300, 64)
encoder, second = nn.LSTM(64, 128, batch_first=True), nn.LSTM(128, 128, batch_first=True)
tags = nn.Linear(128, 12)
parts = nn.ModuleList([letters, encoder, second, tags])
optimizer = torch.optim.SGD(parts.parameters(), lr=0.05, momentum=0.9)
for _ in timed(range(arguments.steps)):
    x, y = torch.randint(0, 300, (32, 20)), torch.randint(0, 12, (32, 20))
    with record_function("encoder"):
        state, _ = encoder(letters(x))
    if arguments.second:
        with record_function("second_lstm"):
            state, _ = second(state)
    loss = nn.functional.cross_entropy(tags(state).flatten(0, 1), y.flatten())
    if arguments.penalty:
        with record_function("penalty"):
            for weight in parts.parameters():
                for row in weight.flatten().split(2048):
                    loss = loss + 1e-6 * row.pow(2).sum()
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
