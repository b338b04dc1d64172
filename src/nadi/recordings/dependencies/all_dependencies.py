"""Find all dependencies within a rank: threads, launches, streams, synchronization."""

import numpy as np
import polars as pl

from nadi.recordings.dependencies.device_calls import StreamWork, device_calls, stream_work
from nadi.recordings.dependencies.operator_nesting import Nesting, report_sampling
from nadi.recordings.dependencies.synchronization import synchronization
from nadi.recordings.dependencies.thread_handovers import (
    forward_to_backward,
    hand_overs,
    waits_for_polled_work,
)
from nadi.trace.arrays import Ints
from nadi.trace.issues import IssueLog
from nadi.trace.schema import DEP_KINDS, DEPS, DEVICE_WORK
from nadi.trace.trace import Trace

_FOLLOWING = 10  # of programmatic dependent launches, one or two overlap
_LAUNCHES = r"^(cuda|hip|cu)Launch(Kernel|CooperativeKernel)"
_Pairs = tuple[Ints, Ints]


def find_deps(
    trace: Trace, device: Trace, nesting: Nesting, launcher: Ints, log: IssueLog
) -> pl.DataFrame:
    """Find the dependencies within one rank.

    - ``trace``: Nodes in their final order; its own deps are ignored.
    - ``device``: The device trace behind it.
    - ``nesting``: Of the same nodes.
    - ``launcher``: int64, shape (nodes,), from
      :func:`nadi.recordings.dependencies.device_calls.launcher_rows`.
    - ``log``: Records device operations without a launch, and waits that cannot be found.
    - Returns: ``schema.DEPS``. O(nodes log nodes).
    """
    on_device = trace.category_mask(*DEVICE_WORK)
    thread = trace.column("thread")
    # what gloo does within the call itself is nested in it
    start = trace.column("start")
    elsewhere = on_device | (thread != thread[launcher])
    known = (launcher >= 0) & (start >= 0) & (start[launcher] >= 0) & elsewhere
    launched = np.flatnonzero(known & (start >= start[launcher]))
    log.add(
        "link.before-launch", "warning", int((known & (start < start[launcher])).sum()),
        "operations start before the call that launched them",
        "clocks may disagree; no launch dependency is added for them",
    )  # fmt: skip
    log.add(
        "link.no-launch", "info", int((on_device & (launcher < 0)).sum()),
        "device operations have no launch call in the trace",
        "they start at their measured time",
    )  # fmt: skip
    report_sampling(device, log)
    work = stream_work(trace, launcher)
    _report_odd_work(trace, work, log)
    here = device_calls(trace, launcher, work)
    found: list[tuple[str, _Pairs, bool]] = [
        ("call", _calls(nesting), False),
        ("order", _program_order(trace, nesting), False),
        ("launch", (launcher[launched], launched), False),
        ("stream", work.order(), False),
        *synchronization(here, device, log),
        ("thread", forward_to_backward(trace), False),
        *((kind, pairs, True) for kind, pairs in hand_overs(trace, nesting)),
        *((kind, pairs, True) for kind, pairs in waits_for_polled_work(here, nesting)),
    ]
    return _table(found)


def _report_odd_work(trace: Trace, work: StreamWork, log: IssueLog) -> None:
    """Record work whose duration cannot be right, and launches of which no kernel was recorded."""
    end = (trace.column("start") + trace.column("duration"))[work.rows]
    stream = np.repeat(np.arange(work.keys.size), np.diff(work.ptr))
    outlasts = (end[:-_FOLLOWING] > end[_FOLLOWING:]) & (
        stream[:-_FOLLOWING] == stream[_FOLLOWING:]
    )
    log.add(
        "link.outlasts", "warning", int(outlasts.sum()),
        f"device operations end after the {_FOLLOWING} that follow them on their stream: their "
        "durations are likely corrupt",
        "record again, or analyse a part without them with --window",
    )  # fmt: skip
    launches = trace.name_mask(_LAUNCHES) & trace.category_mask("runtime", "driver")
    log.add(
        "link.no-kernels", "warning",
        int(launches.sum()) if not trace.category_mask("kernel").any() else 0,
        "calls launch kernels, and the recording has none",
        "see what the profiler printed: CUPTI may have failed, or its buffers were full",
    )  # fmt: skip


def _table(found: list[tuple[str, _Pairs, bool]]) -> pl.DataFrame:
    """Make one table of pairs of each kind: a table of each takes several times as long."""
    kinds, pairs, inferred = zip(*found, strict=True)
    src, dst = (np.concatenate(side) for side in zip(*pairs, strict=True))
    count = [one.size for one, _ in pairs]
    code = np.repeat([DEP_KINDS.index(kind) for kind in kinds], count)
    return DEPS.build(src.size, {
        "src": src, "dst": dst, "inferred": np.repeat(inferred, count),
        "kind": code,
    })  # fmt: skip


def _calls(nesting: Nesting) -> _Pairs:
    nested = nesting.parent >= 0
    return nesting.parent_row[nested], nesting.rows[nested]


def _program_order(trace: Trace, nesting: Nesting) -> _Pairs:
    """Link each operation to the one before it with the same parent on the same thread.

    An operation that outlives its parent is linked to the next that starts after its end.
    """
    rows = nesting.rows
    thread = trace.column("thread")[rows]
    order = np.lexsort((rows, nesting.parent, thread))
    same = (np.diff(thread[order]) == 0) & (np.diff(nesting.parent[order]) == 0)
    src, dst = rows[order[:-1][same]], rows[order[1:][same]]
    late, following = _after_overlaps(trace, nesting, thread)
    return np.concatenate([src, late]), np.concatenate([dst, following])


def _after_overlaps(trace: Trace, nesting: Nesting, thread: Ints) -> _Pairs:
    """Link operations that outlive their parent to the next operation of their thread."""
    rows = nesting.rows
    start = trace.column("start")[rows]
    end = start + trace.column("duration")[rows]
    nested = nesting.parent >= 0
    outlives = np.flatnonzero(nested & (end > end[nesting.parent]))
    found = np.full(outlives.size, -1, dtype=np.int64)
    for t in np.unique(thread[outlives]):
        theirs = np.flatnonzero(thread == t)
        mine = np.flatnonzero(thread[outlives] == t)
        at = np.searchsorted(start[theirs], end[outlives[mine]])
        inside = at < theirs.size
        found[mine[inside]] = theirs[at[inside]]
    known = (found >= 0) & (found != outlives)
    return rows[outlives[known]], rows[found[known]]
