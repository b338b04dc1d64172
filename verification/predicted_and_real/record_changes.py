"""Record a small training program before and after true changes (torch on the CPU).

    python verification/predicted_and_real/record_changes.py [FILE]

Each case is recorded with one and with two ranks (gloo), on an otherwise idle machine and with one
core kept busy. The speed of a virtual machine drifts by a tenth within seconds. Both programs
therefore run in the same processes, each rank on its own core, and are recorded right after each
other, three times in turns. ``FILE`` (``recordings.tar.xz`` beside this program) holds
``RANKS-LOAD/CASE/ROUND/before`` with the pairs of all ranks and ``.../after`` with the marks of
steps in their device traces: their times are what is predicted.
``verification/predicted_and_real.py`` predicts each change from ``before`` and compares it with
``after``; it needs no torch.
"""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn
from torch.profiler import record_function
from torch.utils.data import DataLoader, Dataset

import nadi

STEPS, WARMUP, UNRECORDED, ROUNDS = 3, 1, 8, 3


class Program(NamedTuple):
    """One variant of the program."""

    hidden: int = 192
    batch: int = 1024
    layers: int = 4
    sleep_ms: float = 0.0
    load_ms: float = 0.0
    svds: int = 0  # on rank 1


CASES = {
    "remove-sleep": (Program(sleep_ms=60), Program()),
    "remove-svds": (Program(svds=60), Program()),
    "half-layers": (Program(), Program(layers=2)),
    "half-batch": (Program(), Program(batch=512)),
    "double-hidden": (Program(384, 256), Program(768, 256)),
    "faster-loader": (Program(load_ms=80), Program(load_ms=40)),
}


class Samples(Dataset):  # type: ignore[type-arg]
    """Batches that take a time to load."""

    def __init__(self, program: Program, count: int) -> None:
        self.program, self.count = program, count
        self.batch = torch.randn(program.batch, program.hidden)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.program.load_ms / 1e3)
        return self.batch


class Block(nn.Module):
    """A layer, whose forward is annotated with its name."""

    def __init__(self, hidden: int, name: str) -> None:
        super().__init__()
        self.name = name
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the layer."""
        with record_function(self.name):
            return x + self.down(nn.functional.gelu(self.up(x)))


class Training:
    """A program that can run."""

    def __init__(self, program: Program, rank: int, world_size: int) -> None:
        torch.manual_seed(rank)
        self.program, self.rank = program, rank
        model: nn.Module = nn.Sequential(
            *(Block(program.hidden, f"layers.{layer}") for layer in range(program.layers))
        )
        self.model = nn.parallel.DistributedDataParallel(model) if world_size > 1 else model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        self.matrix = torch.randn(96, 96)

    def run(self, num_steps: int, end_step: Callable[[], None] = lambda: None) -> None:
        """Train for some steps."""
        for batch in DataLoader(Samples(self.program, num_steps), batch_size=None):
            self.model(batch).square().mean().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            if self.program.sleep_ms:
                with record_function("write_checkpoint"):
                    time.sleep(self.program.sleep_ms / 1e3)
            for _ in range(self.program.svds if self.rank == 1 else 0):
                torch.linalg.svd(self.matrix)
            end_step()


def run_rank(rank: int, world_size: int, folder: Path, meeting: str) -> None:
    """Record all cases on one rank."""
    os.sched_setaffinity(0, {rank})
    torch.set_num_threads(1)
    os.environ["RANK"] = str(rank)
    if world_size > 1:
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=rank, world_size=world_size
        )
    for name, programs in CASES.items():
        if world_size == 1 and any(program.svds for program in programs):
            continue
        trainings = [Training(program, rank, world_size) for program in programs]
        for training in trainings:
            training.run(UNRECORDED)
        for place in (folder / name / str(number) for number in range(ROUNDS)):
            for when, training in zip(("before", "after"), trainings, strict=True):
                with nadi.record(place / when, steps=STEPS, warmup=WARMUP) as recording:
                    training.run(STEPS + WARMUP, recording.step)
                keep_needed(recording, only_marks=when == "after")
    if world_size > 1:
        torch.distributed.destroy_process_group()


def keep_needed(recording: nadi.pytorch.Recording, *, only_marks: bool) -> None:
    """Keep the files as text, which compresses better together, or the marks of steps only."""
    device = json.loads(gzip.decompress(recording.device.read_bytes()))
    recording.device.unlink()
    if only_marks:
        recording.host.unlink()
        device["traceEvents"] = [
            event for event in device["traceEvents"] if event["name"].startswith("ProfilerStep#")
        ]
    recording.device.with_suffix("").write_text(json.dumps(device))


def keep_busy(core: int) -> None:
    """Compute on a core until the process is ended."""
    os.sched_setaffinity(0, {core})
    while True:
        pass


def record_all(folder: Path, world_size: int) -> None:
    """Record all cases with a number of ranks."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as meeting:
        ranks = [
            context.Process(target=run_rank, args=(rank, world_size, folder, f"{meeting}/store"))
            for rank in range(world_size)
        ]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
            if rank.exitcode:
                sys.exit(rank.exitcode)


def main(file: Path) -> None:
    """Record everything."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for world_size in (1, 2):
            record_all(folder / f"{world_size}-idle", world_size)
        spawn = multiprocessing.get_context("spawn")
        other = spawn.Process(target=keep_busy, args=(1,), daemon=True)
        other.start()
        for world_size in (1, 2):
            record_all(folder / f"{world_size}-busy", world_size)
        other.terminate()
        with tarfile.open(file, "w:xz") as archive:
            for path in sorted(folder.rglob("*.json")):
                archive.add(path, path.relative_to(folder), filter=without_owner)


def without_owner(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Keep nothing of who made a file, and when."""
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).with_name("recordings.tar.xz"))
