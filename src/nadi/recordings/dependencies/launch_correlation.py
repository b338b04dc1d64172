"""Find the launch call of device work by correlation id, of gloo's work by record function id."""

from __future__ import annotations

import re

import numpy as np

from nadi.trace.arrays import Bools, Ints
from nadi.trace.schema import DEVICE_WORK, THREAD_WORK
from nadi.trace.trace import Trace

__all__ = ["communication_calls", "find_rows", "host_work", "launcher_rows"]

_CALLS = r"^c10d::|^_?c10d_functional(_autograd)?::wait_tensor$"


def launcher_rows(trace: Trace) -> Ints:
    """Find the call that launched each operation.

    Returns
    -------
    int64, shape (nodes,)
        For device work the runtime or driver call of the same correlation id, for gloo's work on
        its own threads the ``c10d`` call that issued it; else -1.
    """
    launcher = np.full(trace.nodes.height, -1, dtype=np.int64)
    correlation = trace.column("correlation")
    calls = np.flatnonzero(trace.category_mask("runtime", "driver") & (correlation > 0))
    work = np.flatnonzero(trace.category_mask(*DEVICE_WORK) & (correlation > 0))
    launcher[work] = find_rows(correlation[calls], calls, correlation[work])

    is_done = host_work(trace, "gloo:")
    if not is_done.any():
        return launcher
    rf_id = trace.column("rf_id")
    asked = np.flatnonzero(host_work(trace, "c10d::") & (rf_id > 0))
    done = np.flatnonzero(is_done & (rf_id > 0))
    # gloo's work gets its id within the call that issues it: take the nearest call before
    launcher[done] = find_rows(rf_id[asked], asked, rf_id[done], nearest=True)
    without = np.flatnonzero(is_done & (rf_id <= 0))
    if without.size:
        calls = np.flatnonzero(host_work(trace, "c10d::"))
        left = calls[~np.isin(calls, launcher[done])]
        launcher[without] = _calls_in_order(trace, left, without)
    return launcher


def _calls_in_order(trace: Trace, calls: Ints, work: Ints) -> Ints:
    """Return the call of each work of gloo without an id; the recorder may end before it has one.

    The k-th work of a type has the k-th call of that type, if there are as many, and each call
    begins before its work; else -1.
    """
    start = trace.column("start")
    types = [
        [_type_of(name) for name in trace.nodes["name"].gather(rows).cast(str)]
        for rows in (calls, work)
    ]
    of_call, of_work = (np.array(one, dtype=np.str_) for one in types)
    found = np.full(work.size, -1, dtype=np.int64)
    for one in np.unique(of_work):
        asked, done = (
            rows[np.flatnonzero(kind == one)] for rows, kind in ((calls, of_call), (work, of_work))
        )
        asked, done = (rows[np.argsort(start[rows], kind="stable")] for rows in (asked, done))
        if asked.size == done.size and (start[asked] <= start[done]).all():
            found[np.searchsorted(work, done)] = asked
    return found


def _type_of(name: str) -> str:
    """Return what ``c10d::allreduce_`` and ``gloo:all_reduce`` have in common."""
    plain = name.partition(" ")[0].rpartition(":")[2].replace("_", "")
    for ending in ("coalesced", "tensor", "into", "base"):
        plain = plain.removesuffix(ending)
    return "allreduce" if plain == "reducescatter" else plain  # as gloo runs it


def host_work(trace: Trace, prefix: str) -> Bools:
    """Return which nodes are timed host operations whose name has a prefix."""
    named = trace.name_mask(f"^{re.escape(prefix)}")
    return named & trace.category_mask(*THREAD_WORK) & (trace.column("start") >= 0)


def communication_calls(trace: Trace) -> Bools:
    """Return which operators ask for communication or wait for it: their own time is no work.

    Functional collectives (DTensor, FSDP, torch.compile) wait in an operator, ``wait_tensor``.
    """
    return trace.name_mask(_CALLS) & trace.category_mask("operator")


def find_rows(keys: Ints, rows: Ints, wanted: Ints, *, nearest: bool = False) -> Ints:
    """Look up the row of each wanted key.

    Parameters
    ----------
    keys, rows
        int64, shape (rows,), in any order.
    wanted
        int64, shape (wanted,).
    nearest
        Whether to accept the greatest key below, instead of the key itself.

    Returns
    -------
    int64, shape (wanted,)
        -1 for keys that are not found. O(n log n).
    """
    if keys.size == 0:
        return np.full(wanted.size, -1, dtype=np.int64)
    order = np.argsort(keys, kind="stable")
    keys, rows = keys[order], rows[order]
    if nearest:
        at = np.searchsorted(keys, wanted) - 1
        return np.where(at >= 0, rows[at], -1)
    at = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
    return np.where(keys[at] == wanted, rows[at], -1)
