"""A transformer of one, two or four tensor parallel processes or pipeline stages.

``python verification/_split_programs.py tp|pp N FOLDER`` records it, and prints the median time of
a step without a recorder, in ns. verification/scaled.py compares what is recorded with the
recording of one process, scaled.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from _replay_programs import run
from torch import nn
from torch.nn import functional

LAYERS, WIDTH, HEADS, SEQUENCE, BATCH = 4, 256, 8, 64, 4
MICRO_BATCHES = 4


class _Sum(torch.autograd.Function):
    """Sums the output of all ranks; its gradient is that of each."""

    @staticmethod
    def forward(ctx: Any, given: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(given)
        return given

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


class _Copy(torch.autograd.Function):
    """Gives each rank its input, whose gradient is the sum of all."""

    @staticmethod
    def forward(ctx: Any, given: torch.Tensor) -> torch.Tensor:
        return given

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(gradient)
        return gradient


class Layer(nn.Module):
    """A layer of a transformer, or the part of one that a rank has."""

    def __init__(self, ranks: int) -> None:
        super().__init__()
        own = WIDTH // ranks
        self.heads, self.ranks = HEADS // ranks, ranks
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.inputs = nn.Linear(WIDTH, 3 * own)
        self.outputs = nn.Linear(own, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * own), nn.Linear(4 * own, WIDTH, bias=False)

    def _whole(self, given: torch.Tensor) -> torch.Tensor:
        return _Sum.apply(given) if self.ranks > 1 else given

    def _each(self, given: torch.Tensor) -> torch.Tensor:
        return _Copy.apply(given) if self.ranks > 1 else given

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        batch, length, _ = given.shape
        query, key, value = (
            one.reshape(batch, length, self.heads, -1).transpose(1, 2)
            for one in self.inputs(self._each(self.first(given))).chunk(3, -1)
        )
        found = functional.scaled_dot_product_attention(query, key, value)
        found = found.transpose(1, 2).reshape(batch, length, -1)
        given = given + self._whole(self.outputs(found))
        hidden = functional.gelu(self.up(self._each(self.second(given))))
        return given + self._whole(self.down(hidden))


def _shared(ranks: int, folder: str) -> int:
    """Train with so many tensor parallel ranks."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Layer(ranks) for _ in range(LAYERS)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)

    def step() -> None:
        loss = model(torch.rand(BATCH, SEQUENCE, WIDTH)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return run(lambda: step, folder)


def _staged(rank: int, stages: int, folder: str) -> int:
    """Train with so many stages, in the order of 1F1B."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Layer(1) for _ in range(LAYERS // stages)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
    shape = (BATCH, SEQUENCE, WIDTH)
    sent: list[tuple[Any, torch.Tensor]] = []  # and what is on its way

    def send(given: torch.Tensor, to: int) -> None:
        sent.append((dist.isend(given, to), given))

    def forward() -> tuple[torch.Tensor, torch.Tensor]:
        given = torch.rand(shape)
        if rank:
            given = torch.empty(shape)
            dist.recv(given, rank - 1)
            given.requires_grad_()
        found = model(given)
        if rank < stages - 1:
            send(found.detach(), rank + 1)
            return given, found
        return given, found.square().mean()

    def backward(given: torch.Tensor, found: torch.Tensor) -> None:
        if rank < stages - 1:
            gradient = torch.empty(shape)
            dist.recv(gradient, rank + 1)
            found.backward(gradient)
        else:
            found.backward()
        if rank and given.grad is not None:
            send(given.grad, rank - 1)

    def step() -> None:
        optimizer.zero_grad()
        held = [forward() for _ in range(min(stages - rank - 1, MICRO_BATCHES))]
        for _ in range(MICRO_BATCHES - len(held)):
            held.append(forward())
            backward(*held.pop(0))
        for one in held:
            backward(*one)
        for work, _ in sent:
            work.wait()
        sent.clear()
        optimizer.step()

    return run(lambda: step, folder)


def _rank(rank: int, way: str, size: int, store: str, folder: str) -> None:
    torch.set_num_threads(1)
    if size > 1:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    taken = _shared(size, folder) if way == "tp" else _staged(rank, size, folder)
    if rank == 0:
        Path(store + ".time").write_text(str(taken))
    if size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    way, size, folder = sys.argv[1:]
    with tempfile.TemporaryDirectory() as place:
        store = str(Path(place) / "store")
        torch.multiprocessing.spawn(_rank, (way, int(size), store, folder), nprocs=int(size))
        print(Path(store + ".time").read_text())
