"""Time and peak memory of whole commands, as a user has them."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "SHARED", "Measured", "Read", "best_of", "content_size", "measure", "measure_read", "nadi",
    "peak_memory_mb", "report_read",
]  # fmt: skip

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@dataclass(frozen=True)
class Measured:
    """Best and worst of several runs of one command; ``cpu`` are the least seconds of all cores."""

    best: float
    worst: float
    peak_mb: float
    cpu: float

    def __str__(self) -> str:
        return (
            f"{self.best:.2f} to {self.worst:.2f} s ({self.cpu:.2f} CPU s), "
            f"{self.peak_mb:,.0f} MB at peak"
        )


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

    Peak memory is the highest of all commands measured by this process so far. Python keeps
    what it compiles of its sources, as it does where Nadi is installed.
    """
    environment = {**os.environ, **environment}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    seconds, busy = [], []
    for _ in range(runs):
        begin, before = time.perf_counter(), _children_cpu()
        done = subprocess.run(
            command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env=environment,
        )  # fmt: skip
        if done.returncode:
            sys.exit(f"{' '.join(command)}: {done.stderr.decode()}")
        seconds.append(time.perf_counter() - begin)
        busy.append(_children_cpu() - before)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return Measured(min(seconds), max(seconds), peak, min(busy))


def _children_cpu() -> float:
    """Give the seconds that cores have spent on processes which this one started."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


_READ = r"""
import json, re, sys, time
from pathlib import Path
import nadi
seconds = []
for _ in range(6):
    begin = time.perf_counter()
    trace = nadi.read(sys.argv[1])
    seconds.append(time.perf_counter() - begin)
    if len(seconds) == 1:
        # getrusage would give that of the process that started this one, if it is higher
        status = Path("/proc/self/status").read_text()
        peak = int(re.search(r"VmHWM:\s+(\d+)", status)[1]) * 1024 / 1e6
print(json.dumps([seconds[0], min(seconds), peak, trace.nodes.height]))
"""


@dataclass(frozen=True)
class Read:
    """How ``nadi.read`` of one file did in a process of its own."""

    first: float  # with the loading of compiled kernels
    best: float
    peak_mb: float  # of the whole process, after the first time
    nodes: int


def measure_read(path: Path) -> Read:
    """Read a file six times in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", _READ, str(path)], check=True, stdout=subprocess.PIPE
    )
    return Read(*json.loads(done.stdout))


def report_read(path: Path, content: int, count: int, what: str, of: str = "JSON") -> None:
    """Read a file and print how that went, for so many bytes of ``of`` and so many ``what``."""
    found = measure_read(path)
    print(
        f"{path.name}: {content / 1e6:.0f} MB of {of}, {count:,} {what}: first {found.first:.2f} s,"
        f" best {found.best:.2f} s = {count / found.best / 1e6:.2f} M {what}/s,"
        f" {found.peak_mb:,.0f} MB at peak = {found.peak_mb * 1e6 / content:.1f} times the {of}"
    )
