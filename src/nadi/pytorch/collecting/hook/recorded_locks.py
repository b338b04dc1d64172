"""Locks whose waits are ranges of the recording: for whom a thread waits, and how long."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

LOCK_WAIT = "nadi::wait "
WOKEN_BY = "nadi::woken by "


def name_locks(torch: Any, is_recording: Callable[[], bool]) -> None:
    """Make ``threading.Lock`` give locks that record waits; it does not change older ones.

    A range ``nadi::wait FILE:LINE`` lasts from the call until the lock is free; the line is where
    the lock was made. ``nadi::woken by THREAD`` follows, with the id of the thread that freed it.
    """
    make = threading.Lock
    noted = torch.profiler.record_function

    class Lock:
        """A lock of ``threading`` that records waits."""

        def __init__(self) -> None:
            self._lock = make()
            caller = sys._getframe(1)
            self._name = f"{os.path.basename(caller.f_code.co_filename)}:{caller.f_lineno}"
            self._freed_by = 0

        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
            """Take the lock; a wait is recorded."""
            if self._lock.acquire(False):
                return True
            if not blocking:
                return False
            if not is_recording():
                return self._lock.acquire(True, timeout)
            with noted(LOCK_WAIT + self._name):
                got = self._lock.acquire(True, timeout)
            if got:
                with noted(WOKEN_BY + str(self._freed_by)):
                    pass
            return got

        def release(self) -> None:
            """Free the lock."""
            self._freed_by = threading.get_native_id()
            self._lock.release()

        def locked(self) -> bool:
            """Return whether some thread has it."""
            return self._lock.locked()

        def __enter__(self) -> bool:
            return self.acquire()

        def __exit__(self, *_: object) -> None:
            self.release()

        def _at_fork_reinit(self) -> None:
            self._lock = make()

    threading.Lock = Lock  # type: ignore[assignment]
