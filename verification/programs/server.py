"""A server: requests come through a queue from a client thread, which thinks between them."""

import argparse
import queue
import threading
import time

import torch
from _steps import timed
from torch import nn
from torch.profiler import record_function

parser = argparse.ArgumentParser()
parser.add_argument("--thinking", type=float, default=30, help="ms between answer and request")
parser.add_argument("--blocks", type=int, default=4)
parser.add_argument("--steps", type=int, default=20)
arguments = parser.parse_args()
requests, answers = queue.Queue(), queue.Queue()


def client():
    """Ask, wait for the answer, think."""
    torch.manual_seed(1)
    for _ in range(arguments.steps):
        time.sleep(arguments.thinking / 1e3)
        requests.put(torch.randn(48, 256))
        answers.get()
    requests.put(None)


torch.manual_seed(0)
blocks = nn.ModuleList(
    nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256))
    for _ in range(arguments.blocks)
).eval()
thread = threading.Thread(target=client)
thread.start()
for request in timed(iter(requests.get, None)):
    with torch.inference_mode():
        state = request
        for number, block in enumerate(blocks):
            with record_function(f"blocks.{number}"):
                state = state + block(state)
        answers.put(state.softmax(1).argmax(1).tolist())
thread.join()
