"""Recordings of many ranks, and one that is larger than the memory it may take.

Usage: python benchmarks/large_recordings.py [RANKS [GB]]   (64 ranks of 400,000 events, 2 GB)

A recording of a training step is repeated; ranks are links to one file. Each command is a process
of its own; memory is that of its largest process. Asked are 64 ranks in under 60 s on 2 cores, and
10 GB in under 2 GB of memory: analyses that need no operators, and any step.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from _measure import nadi
from hta_critical_path import write_copies

_COPIES = 9  # of 45,000 events
_ANALYSES = ("temporal", "kernels", "idle", "all")
_OF_A_FILE = ("kernels", "idle", "annotation-kernels", "launches", "bandwidth", "queue", "flame")
_BLOCK = 20  # copies that are written at once
_LATER = 100_000_000  # us, more than these last; and more than the number of correlations
_RUN = """
import resource, subprocess, sys, time
begin = time.perf_counter()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
seconds = time.perf_counter() - begin
used = resource.getrusage(resource.RUSAGE_CHILDREN)
cpu = used.ru_utime + used.ru_stime
print(f"{seconds:.1f} s, {cpu:.1f} CPU s, {used.ru_maxrss / 1e6:.2f} GB")
"""
_MOVED = re.compile(rb'("ts": |"correlation": |"ProfilerStep#)(\d+)')


def measured(*arguments: str) -> str:
    """Run a command; gives wall and CPU seconds, and memory.

    A process in between has little memory, which would count for the command it starts.
    """
    done = subprocess.run(
        [sys.executable, "-c", _RUN, *nadi(*arguments)], check=True, stdout=subprocess.PIPE
    )
    return done.stdout.decode().strip()


def ranks(count: int, place: Path) -> None:
    """Analyse many ranks."""
    first = place / "rank0.json"
    write_copies(first, _COPIES)
    for rank in range(1, count):
        os.link(first, place / f"rank{rank}.json")
    size = first.stat().st_size
    for name in _ANALYSES:
        print(f"{name} of {count} ranks of {size / 1e6:.0f} MB: "
              f"{measured('analyze', name, str(place))}", flush=True)  # fmt: skip


def one_file(gigabytes: float, place: Path) -> None:
    """Analyse a large file, and a step of it."""
    file = place / "large.json"
    write_copies(file, _BLOCK)
    head, _, rest = file.read_bytes().partition(b"[\n")
    events = rest[: rest.rindex(b"\n]}")]
    with file.open("wb") as out:
        out.write(head + b"[\n" + events)
        block = 1
        while out.tell() < gigabytes * 1e9:
            out.write(b",\n" + _moved(events, block))
            block += 1
        out.write(b"\n]}\n")
    size = f"{file.stat().st_size / 1e9:.1f} GB"
    print(f"a step of {size}: {measured('analyze', 'kernels', str(file), '--step', '102')}")
    for name in _OF_A_FILE:
        print(f"{name} of {size}: {measured('analyze', name, str(file))}", flush=True)


def _moved(events: bytes, block: int) -> bytes:
    """Give events with later times, and other correlations and numbers of steps."""
    return _MOVED.sub(lambda m: m[1] + b"%d" % (int(m[2]) + block * _LATER), events)


def main() -> None:
    """Print a line per command."""
    given = sys.argv[1:]
    with tempfile.TemporaryDirectory() as place:
        one_file(float(given[1]) if len(given) > 1 else 2.0, Path(place))
    with tempfile.TemporaryDirectory() as place:
        ranks(int(given[0]) if given else 64, Path(place))


if __name__ == "__main__":
    main()
