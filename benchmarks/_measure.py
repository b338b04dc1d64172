"""Time and peak memory of whole commands, as a user has them."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "SHARED", "Measured", "best_of", "content_size", "measure", "nadi", "peak_memory_mb",
]  # fmt: skip

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@dataclass(frozen=True)
class Measured:
    """Best and worst of several runs of one command."""

    best: float
    worst: float
    peak_mb: float

    def __str__(self) -> str:
        return f"{self.best:.2f} to {self.worst:.2f} s, {self.peak_mb:,.0f} MB at peak"


def content_size(file: Path) -> int:
    """Give the size of a gzip file's content, which its last four bytes state."""
    return int.from_bytes(file.read_bytes()[-4:], "little")


def nadi(*arguments: str) -> list[str]:
    """Give the command that runs Nadi with this Python."""
    return [sys.executable, "-m", "nadi", *arguments]


def best_of(work: Callable[[], object], runs: int = 5) -> float:
    """Do some work several times in this process; gives the shortest time in seconds."""
    seconds = []
    for _ in range(runs):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def peak_memory_mb() -> float:
    """Give the highest memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(command: list[str], runs: int = 3, **environment: str) -> Measured:
    """Run a command several times, one process each.

    Peak memory is the highest of all commands measured by this process so far.
    """
    seconds = []
    for _ in range(runs):
        begin = time.perf_counter()
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, **environment},
        )  # fmt: skip
        seconds.append(time.perf_counter() - begin)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return Measured(min(seconds), max(seconds), peak)
