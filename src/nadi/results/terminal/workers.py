"""Processes that share the work of a command, and what is said if one of them ends early."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context

from nadi.errors import UsageError


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
