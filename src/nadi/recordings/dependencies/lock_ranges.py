"""Waits for locks, as ``nadi collect --locks`` records them: ranges with names."""

from __future__ import annotations

import re

import numpy as np

from nadi.trace.arrays import Ints
from nadi.trace.schema import THREAD_WORK
from nadi.trace.trace import Trace

__all__ = ["LOCK_WAIT", "WOKEN_BY", "threads_sharing_locks"]

LOCK_WAIT = "nadi::wait "
"""Begin of the name of a range in which a thread waits for a lock; the lock's name follows."""
WOKEN_BY = "nadi::woken by "
"""Begin of the name of a range after it; the id of the thread that freed the lock follows."""


def threads_sharing_locks(trace: Trace, thread: int) -> Ints:
    """Return the threads that a thread waited for at a lock, or that waited for it; int64."""
    told = np.flatnonzero(
        trace.name_mask(f"^{re.escape(WOKEN_BY)}\\d{{1,18}}$") & trace.category_mask(*THREAD_WORK)
    )  # fmt: skip
    names = trace.nodes["name"].gather(told).cast(str)
    by = np.array([int(name[len(WOKEN_BY) :]) for name in names], dtype=np.int64)
    waiter = trace.column("thread")[told]
    return np.unique(np.concatenate([by[waiter == thread], waiter[by == thread]]))
