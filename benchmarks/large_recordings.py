"""Recordings of many ranks, and one that is larger than the memory it may take.

Usage: python benchmarks/large_recordings.py [RANKS [GB]]   (64 ranks of 400,000 events, 2 GB)

A recording of a training step is repeated; ranks are links to one file. Each command is a process
of its own; memory is that of its largest process. Asked are 64 ranks in under 60 s on 2 cores, and
a step of a file of any size in under 2 GB.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from _measure import nadi
from hta_critical_path import write_copies

PLACE = Path("/tmp/nadi-benchmark-large")
TARGET = PLACE.with_suffix(".json")
_COPIES = 9  # of 45,000 events
_ANALYSES = ("temporal", "kernels", "idle", "all")
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


def ranks(count: int) -> None:
    """Analyse many ranks."""
    write_copies(TARGET, _COPIES)
    for rank in range(count):
        os.link(TARGET, PLACE / f"rank{rank}.json")
    size = TARGET.stat().st_size
    for name in _ANALYSES:
        print(f"{name} of {count} ranks of {size / 1e6:.0f} MB: "
              f"{measured('analyze', name, str(PLACE))}", flush=True)  # fmt: skip
    for file in PLACE.iterdir():
        file.unlink()


def one_file(gigabytes: float) -> None:
    """Analyse a step of a large file."""
    write_copies(TARGET, _BLOCK)
    head, _, rest = TARGET.read_bytes().partition(b"[\n")
    events = rest[: rest.rindex(b"\n]}")]
    file = PLACE / "large.json"
    with file.open("wb") as out:
        out.write(head + b"[\n" + events)
        block = 1
        while out.tell() < gigabytes * 1e9:
            out.write(b",\n" + _moved(events, block))
            block += 1
        out.write(b"\n]}\n")
    print(f"a step of {file.stat().st_size / 1e9:.1f} GB: "
          f"{measured('analyze', 'kernels', str(file), '--step', '102')}")  # fmt: skip


def _moved(events: bytes, block: int) -> bytes:
    """Give events with later times, and other correlations and numbers of steps."""
    return _MOVED.sub(lambda m: m[1] + b"%d" % (int(m[2]) + block * _LATER), events)


def main() -> None:
    """Print a line per command."""
    given = sys.argv[1:]
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir()
    try:
        one_file(float(given[1]) if len(given) > 1 else 2.0)
        ranks(int(given[0]) if given else 64)
    finally:
        shutil.rmtree(PLACE)
        TARGET.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
