"""Processes that share the work of a command, and what is said if one of them ends early.

How much memory a process may take.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from nadi.errors import UsageError

__all__ = ["available_memory", "worker_processes"]


@contextmanager
def worker_processes(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Give processes for as long as the block lasts; work that has not begun then is dropped.

    They are spawned: a forked process could deadlock on threads that it does not have. A spawned
    one begins the user's program anew, which has to keep its work under a guard.

    Raises
    ------
    UsageError
        If a process ends early.
    """
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        try:
            yield pool
        except BrokenProcessPool:
            raise UsageError(
                "", "a worker process ended early",
                "check free memory; a script must start its work under if __name__ == '__main__'",
            ) from None  # fmt: skip
        finally:
            pool.shutdown(cancel_futures=True)


_SYSTEM = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")  # of a container
_AVAILABLE = re.compile(r"MemAvailable:\s+(\d+) kB")


def available_memory() -> int:
    """Return the bytes that are free or can be freed, at most those of the container.

    Where the system does not say, the memory that is installed.
    """
    free = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    if (found := _AVAILABLE.search(_text(_SYSTEM))) is not None:
        free.append(int(found[1]) * 1024)
    limit, used = (_text(_GROUP / f"memory.{name}").strip() for name in ("max", "current"))
    if limit.isdecimal() and used.isdecimal():
        free.append(max(int(limit) - int(used), 0))
    return min(free)


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
