"""Small training programs, which verification/replayed.py records and replays.

``python verification/_replay_programs.py NAME FOLDER`` records one, and prints the median time of
a step without a recorder, in ns. Operators take most of it: a replay has no Python in between.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

import nadi

STEPS, WARMUP, TIMED = 2, 3, 12


class Attention(nn.Module):
    """Embeddings, two layers of attention, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(2000, 256)
        layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(256, 2000)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.words(ids)))


def _trained(
    model: nn.Module, make: Callable[[], torch.Tensor], classes: int
) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)

    def step() -> None:
        given = make()
        found = model(given).flatten(0, -2) if given.dtype == torch.long else model(given)
        loss = functional.cross_entropy(found, torch.zeros(len(found), dtype=torch.long) % classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def perceptron() -> Callable[[], None]:
    """Train three linear layers."""
    sizes = (512, 1024, 1024, 10)
    layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
    model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    return _trained(model, lambda: torch.rand(1024, 512), 10)


def convolutions() -> Callable[[], None]:
    """Train convolutions with batch norm and pooling."""
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip
    return _trained(model, lambda: torch.rand(16, 3, 64, 64), 10)


def attention() -> Callable[[], None]:
    """Train a small transformer with embeddings."""
    return _trained(Attention(), lambda: torch.randint(0, 2000, (8, 64)), 2000)


def autocast() -> Callable[[], None]:
    """Train linear layers in bfloat16."""
    step = perceptron()

    def mixed() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            step()

    return mixed


def bags() -> Callable[[], None]:
    """Train bags of embeddings, as recommendation models have them."""
    tables = nn.ModuleList(nn.EmbeddingBag(20_000, 64, mode="sum") for _ in range(4))
    top = nn.Linear(256, 2)
    optimizer = torch.optim.SGD([*tables.parameters(), *top.parameters()], lr=0.1)

    def step() -> None:
        ids = torch.randint(0, 20_000, (4096, 8))
        loss = top(torch.cat([table(ids) for table in tables], 1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


PROGRAMS = {one.__name__: one for one in (perceptron, convolutions, attention, autocast, bags)}


def run(make: Callable[[], Callable[[], None]], folder: str) -> int:
    """Record a program, and return the median time of a step without a recorder, in ns."""
    torch.manual_seed(0)
    step, times = make(), []
    for number in range(WARMUP + TIMED):
        start = time.perf_counter_ns()
        step()
        if number >= WARMUP:
            times.append(time.perf_counter_ns() - start)
    with nadi.record(folder, steps=STEPS, warmup=1, overwrite=True) as recording:
        for _ in range(2 * STEPS + 1):
            step()
            recording.step()
    return int(statistics.median(times))


def _data_parallel() -> Callable[[], None]:
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 10))
    )
    return _trained(model, lambda: torch.rand(1024, 256), 10)


def _rank(rank: int, size: int, store: str, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    time_ns = run(_data_parallel, folder)
    if rank == 0:
        Path(store + ".time").write_text(str(time_ns))
    dist.destroy_process_group()


def run_ranks(size: int, folder: str) -> int:
    """Record data parallelism among processes, and return the time of a step of rank 0, in ns."""
    with tempfile.TemporaryDirectory() as place:
        store = str(Path(place) / "store")
        torch.multiprocessing.spawn(_rank, (size, store, folder), nprocs=size)
        return int(Path(store + ".time").read_text())


if __name__ == "__main__":
    name, folder = sys.argv[1:]
    if name.startswith("ddp"):
        print(run_ranks(int(name[3:]), folder))
    else:
        print(run(PROGRAMS[name], folder))
