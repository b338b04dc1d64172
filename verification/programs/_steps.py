"""What the programs share: the time of every step, on standard output."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def timed(items: Iterable[Item]) -> Iterator[Item]:
    """Give the items of a loop; after each, print the wall and the CPU time of its step in ms."""
    wall, cpu = time.perf_counter(), time.process_time()
    for item in items:
        yield item
        now, used = time.perf_counter(), time.process_time()
        print(f"STEP {1e3 * (now - wall):.4f} {1e3 * (used - cpu):.4f}", flush=True)
        wall, cpu = now, used
