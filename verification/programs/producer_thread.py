"""A thread prepares batches in Python and puts them into a queue that the trainer waits for."""

import argparse
import queue
import threading
import time

import torch
from _steps import timed
from torch import nn
from torch.profiler import record_function

parser = argparse.ArgumentParser()
parser.add_argument("--read", type=float, default=45, help="ms that reading a batch takes")
parser.add_argument("--layers", type=int, default=3)
parser.add_argument("--steps", type=int, default=20)
arguments = parser.parse_args()
batches: queue.Queue = queue.Queue(maxsize=2)


def produce():
    """Read batches from slow storage."""
    for _ in range(arguments.steps):
        time.sleep(arguments.read / 1e3)  # releases the interpreter, as reading does
        batches.put((torch.rand(64, 256), torch.rand(64, 256)))
    batches.put(None)


torch.manual_seed(0)
layers = nn.ModuleList(nn.Linear(256, 256) for _ in range(arguments.layers))
optimizer = torch.optim.Adam(layers.parameters())
threading.Thread(target=produce).start()
for x, y in timed(iter(batches.get, None)):
    for number, layer in enumerate(layers):
        with record_function(f"layers.{number}"):
            x = torch.tanh(layer(x))
    optimizer.zero_grad()
    nn.functional.mse_loss(x, y).backward()
    optimizer.step()
