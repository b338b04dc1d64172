"""Programs that wait: for a lock, for a slow rank, for a slow DataLoader; with and without it.

``_wait_programs.py NAME SECONDS``: 0 seconds take the cause away.
"""

import os
import sys
import threading
import time

import torch

STEPS = 16
WORK = 0.006  # seconds of a step that are no wait


class Slow(torch.utils.data.Dataset):
    """Items of which each takes some time."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        time.sleep(self.seconds)
        return torch.ones(64)


def train(model, batches, between=lambda: None):
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for batch in batches:
        optimizer.zero_grad()
        between()
        model(batch).sum().backward()
        time.sleep(WORK)
        optimizer.step()


def lock(seconds):
    """Wait for a lock that another thread has most of the time."""
    shared, done = threading.Lock(), threading.Event()

    def other():
        while not done.is_set():
            with shared:
                torch.ones(8).sum()
                time.sleep(seconds)
            time.sleep(0.001)

    def between():
        with shared:
            pass

    thread = threading.Thread(target=other)
    if seconds:
        thread.start()
    train(torch.nn.Linear(64, 64), [torch.ones(8, 64)] * STEPS, between)
    done.set()
    if seconds:
        thread.join()


def slow_rank(seconds):
    """Wait for rank 1, which sleeps in each step."""
    torch.distributed.init_process_group("gloo")
    is_slow = torch.distributed.get_rank() == 1 and seconds > 0
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    between = (lambda: time.sleep(seconds)) if is_slow else (lambda: None)
    train(model, [torch.ones(8, 64)] * STEPS, between)
    torch.distributed.destroy_process_group()


def slow_loader(seconds):
    """Wait for the worker process of a DataLoader."""
    loader = torch.utils.data.DataLoader(Slow(seconds), batch_size=1, num_workers=1)
    train(torch.nn.Linear(64, 64), loader)


if __name__ == "__main__":
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    {"lock": lock, "slow_rank": slow_rank, "slow_loader": slow_loader}[sys.argv[1]](
        float(sys.argv[2])
    )
