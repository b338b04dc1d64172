"""Find threads that only wait: Python frames around a queue, a socket or a timer."""

from __future__ import annotations

import numpy as np

from nadi.trace.arrays import Bools
from nadi.trace.runtime_calls import pattern
from nadi.trace.schema import THREAD_WORK
from nadi.trace.trace import Trace

__all__ = ["waiting_threads", "working_calls"]

_COMMUNICATION = ("gloo:", "c10d::")
_NO_WORK = ("event query", "capture mode", "device sync", "stream sync", "event sync")


def waiting_threads(trace: Trace) -> Bools:
    """Return which nodes run on threads that only wait.

    Such a thread has Python frames, and no operator, communication or call that launches work or
    copies: a queue's writer, a progress bar, a DataLoader's pin thread, NCCL's watchdog. Its frames
    last as long as the recording, and say nothing about what the job waits for. If no other thread
    works, none counts as waiting.

    Returns
    -------
    bool, shape (nodes,)
        O(nodes); where no Python frames are recorded, no thread is found.
    """
    found = np.zeros(trace.nodes.height, dtype=np.bool_)
    framed = trace.category_mask("python")
    if not framed.any():
        return found
    on_thread = trace.category_mask(*THREAD_WORK) & (trace.column("start") >= 0)
    rows = np.flatnonzero(on_thread)
    threads, thread = np.unique(trace.column("thread")[rows], return_inverse=True)
    has_frames = np.bincount(thread[framed[rows]], minlength=threads.size) > 0
    works = np.bincount(thread[_work(trace)[rows]], minlength=threads.size) > 0
    if works.any():
        found[rows] = (has_frames & ~works)[thread]
    return found


def _work(trace: Trace) -> Bools:
    """Return which nodes are work, or mark a step; bool, shape (nodes,)."""
    names = "|".join(f"^{prefix}" for prefix in (*_COMMUNICATION, "ProfilerStep#"))
    named = trace.category_mask("annotation") & trace.name_mask(names)
    return trace.category_mask("operator") | working_calls(trace) | named


def working_calls(trace: Trace) -> Bools:
    """Return which nodes are calls of a runtime that do more than wait; bool, shape (nodes,)."""
    calls = trace.category_mask("runtime", "driver")
    return calls & ~trace.name_mask(pattern(*_NO_WORK))
