"""Programs of which steps wait while no operation runs: a timer, a queue, an event loop.

``_awaited_programs.py NAME SECONDS``: how long is waited in each step.
"""

import asyncio
import queue
import sys
import threading
import time

import torch
from torch.profiler import record_function

STEPS = 18
STORED = 0.005  # seconds of the other wait of the event loop


def step(model, optimizer, batch):
    optimizer.zero_grad()
    for _ in range(4):
        model(batch).pow(2).mean().backward()
    optimizer.step()


def timer(seconds, model, optimizer):
    """Sleep before each step, as for a limit of requests."""
    for _ in range(STEPS):
        with record_function("limit"):
            time.sleep(seconds)
        step(model, optimizer, torch.ones(64, 256))


def from_queue(seconds, model, optimizer):
    """Get batches of a thread that needs longer for one than a step takes."""
    batches = queue.Queue(maxsize=1)

    def produce():
        for _ in range(STEPS):
            time.sleep(seconds)
            batches.put([0.5] * 256)

    threading.Thread(target=produce, daemon=True).start()
    for _ in range(STEPS):
        with record_function("next_batch"):
            row = batches.get()
        step(model, optimizer, torch.tensor(row).expand(64, 256))


def event_loop(seconds, model, optimizer):
    """Await a request and, after the step, a store."""

    async def serve():
        for _ in range(STEPS):
            with record_function("request"):
                await asyncio.sleep(seconds)
            step(model, optimizer, torch.ones(64, 256))
            with record_function("store"):
                await asyncio.sleep(STORED)

    asyncio.run(serve())


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
    program = {"timer": timer, "queue": from_queue, "event_loop": event_loop}[sys.argv[1]]
    program(float(sys.argv[2]), model, torch.optim.SGD(model.parameters(), 0.01))
