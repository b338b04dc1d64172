"""Every analysis on a trace of a million events: each under 1 s after reading, all under 5 s.

Usage: python benchmarks/analyses.py [COPIES]

22 copies of a recording of a training step are a million events. HTA takes 31 s to read as many,
and 11.8 s for what operators launch in 216,000 (../shared/peers/hta.md).
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from _measure import peak_memory_mb
from hta_critical_path import write_copies

import nadi
from nadi.analyses import ANALYSES, events_of


def main() -> None:
    copies = int(sys.argv[1]) if len(sys.argv) > 1 else 22
    small, _, _ = _read_copies(1)
    for one in ANALYSES:  # compiled kernels
        if not one.of_job:
            _timed(lambda one=one: one(events_of(small)))
    trace, reading, _ = _read_copies(copies)
    print(
        f"{trace.nodes.height:,} events: read in {reading:.2f} s, "
        f"{peak_memory_mb():,.0f} MB at peak"
    )
    events, total, busy = _timed(lambda: events_of(trace))
    _, nesting, more = _timed(lambda: events.parent)
    total, busy = total + nesting, busy + more
    print(f"{total:6.2f} s {busy:6.2f} CPU s  launches and nesting, shared by all")
    slowest = 0.0
    for one in ANALYSES:
        if one.of_job:
            continue
        found, seconds, cpu = _timed(lambda one=one: one(events))
        rows = f"{found.height:,} rows" if found is not None else "not recorded"
        print(f"{seconds:6.2f} s {cpu:6.2f} CPU s  {one.name}: {rows}")
        total, busy = total + seconds, busy + cpu
        slowest = max(slowest, seconds)
    print(
        f"all in {total:.2f} s ({busy:.2f} CPU s), the slowest in {slowest:.2f} s, "
        f"{peak_memory_mb():,.0f} MB at peak"
    )


def _read_copies(copies):  # type: ignore[no-untyped-def]
    """Write a trace and read it; gives it, and wall and CPU seconds of reading."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        write_copies(path, copies)
        return _timed(lambda: nadi.read(path))


def _timed(work):  # type: ignore[no-untyped-def]
    """Do some work; gives its result, None if the recording lacks something, wall and CPU s."""
    begin, before = time.perf_counter(), time.process_time()
    try:
        found = work()
    except nadi.errors.InputError:
        found = None
    return found, time.perf_counter() - begin, time.process_time() - before


if __name__ == "__main__":
    main()
