"""Which operation waits for which: on its thread, after its launch, on its stream, at a sync."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.issues import IssueLog
from nadi.link.handover import hand_overs, host_work
from nadi.link.nesting import Nesting
from nadi.schema import DEPS, DEVICE_WORK
from nadi.trace import Trace

__all__ = ["BLOCKING_COPY", "find_deps", "launcher_rows"]

_Ints = npt.NDArray[np.int64]
_Pairs = tuple[_Ints, _Ints]

_DEVICE_SYNC = ("cudaDeviceSynchronize", "hipDeviceSynchronize")
_STREAM_SYNC = ("cudaStreamSynchronize", "hipStreamSynchronize")
BLOCKING_COPY = r"(?i)->\s*pageable"


def launcher_rows(trace: Trace) -> _Ints:
    """Find the call that launched each operation.

    Returns
    -------
    int64, shape (nodes,)
        For device work the runtime or driver call of the same correlation id, for
        gloo's work on its own threads the ``c10d`` call that asked for it; else -1.
    """
    launcher = np.full(trace.nodes.height, -1, dtype=np.int64)
    correlation = trace.column("correlation")
    calls = np.flatnonzero(trace.category_mask("runtime", "driver") & (correlation > 0))
    work = np.flatnonzero(trace.category_mask(*DEVICE_WORK) & (correlation > 0))
    launcher[work] = _find(correlation[calls], calls, correlation[work], exact=True)

    rf_id = trace.column("rf_id")
    asked = np.flatnonzero(host_work(trace, "c10d::") & (rf_id > 0))
    done = np.flatnonzero(host_work(trace, "gloo:") & (rf_id > 0))
    # gloo's work takes its id in the call that asks for it: the nearest such call before
    launcher[done] = _find(rf_id[asked], asked, rf_id[done], exact=False)
    return launcher


def _find(keys: _Ints, values: _Ints, wanted: _Ints, *, exact: bool) -> _Ints:
    """Look up the value of each wanted key, or of the greatest key below it; -1 if none."""
    if keys.size == 0:
        return np.full(wanted.size, -1, dtype=np.int64)
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], values[order]
    if exact:
        at = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
        return np.where(keys[at] == wanted, values[at], -1)
    at = np.searchsorted(keys, wanted) - 1
    return np.where(at >= 0, values[at], -1)


def find_deps(trace: Trace, nesting: Nesting, launcher: _Ints, log: IssueLog) -> pl.DataFrame:
    """Find the dependencies within one rank.

    Parameters
    ----------
    trace
        Nodes in their final order; its own deps are not looked at.
    nesting
        Of the same nodes.
    launcher
        int64, shape (nodes,), from :func:`launcher_rows`.
    log
        Takes note of device work without a launch.

    Returns
    -------
    polars.DataFrame
        ``schema.DEPS``. O(nodes log nodes).
    """
    on_device = trace.category_mask(*DEVICE_WORK)
    thread = trace.column("thread")
    # what gloo does within the call itself lies nested in it
    start = trace.column("start")
    elsewhere = on_device | (thread != thread[launcher])
    known = (launcher >= 0) & (start >= 0) & (start[launcher] >= 0) & elsewhere
    launched = np.flatnonzero(known & (start >= start[launcher]))
    log.add(
        "link.before-launch", "warning", int((known & (start < start[launcher])).sum()),
        "operations start before the call that launched them", "clocks may disagree",
    )  # fmt: skip
    log.add(
        "link.no-launch", "info", int((on_device & (launcher < 0)).sum()),
        "device operations whose launch is not in the trace",
        "they start at their measured time",
    )  # fmt: skip
    found: list[tuple[str, _Pairs, bool]] = [
        ("call", _calls(nesting), False),
        ("order", _program_order(trace, nesting), False),
        ("launch", (launcher[launched], launched), False),
        ("stream", _stream_order(trace), False),
        ("sync", _synchronisation(trace, launcher, log), True),
        *((kind, pairs, True) for kind, pairs in hand_overs(trace, nesting)),
    ]
    return pl.concat([_frame(kind, pairs, inferred) for kind, pairs, inferred in found])


def _frame(kind: str, pairs: _Pairs, inferred: bool) -> pl.DataFrame:
    src, dst = pairs
    return DEPS.build(src.size, {"src": src, "dst": dst, "kind": kind, "inferred": inferred})


def _calls(nesting: Nesting) -> _Pairs:
    nested = nesting.parent >= 0
    return nesting.parent_row[nested], nesting.rows[nested]


def _program_order(trace: Trace, nesting: Nesting) -> _Pairs:
    """Link each operation to the one before it with the same parent on the same thread."""
    thread = trace.column("thread")[nesting.rows]
    order = np.lexsort((nesting.rows, nesting.parent, thread))
    same = (np.diff(thread[order]) == 0) & (np.diff(nesting.parent[order]) == 0)
    return nesting.rows[order[:-1][same]], nesting.rows[order[1:][same]]


def _stream_keys(trace: Trace) -> _Ints:
    """Give every stream of every device a number; int64, shape (nodes,), -1 without a stream."""
    device, stream = trace.column("device"), trace.column("stream")
    return np.where(stream >= 0, np.maximum(device, 0) * 2**32 + stream, -1)


def _streams(trace: Trace) -> Iterable[tuple[int, _Ints]]:
    """Give the device work of each stream, in order of start."""
    rows = np.flatnonzero(trace.category_mask(*DEVICE_WORK))
    key = _stream_keys(trace)[rows]
    for stream in np.unique(key):
        yield int(stream), rows[key == stream]


def _stream_order(trace: Trace) -> _Pairs:
    pairs = [(rows[:-1], rows[1:]) for _, rows in _streams(trace)]
    return _concat(pairs)


def _synchronisation(trace: Trace, launcher: _Ints, log: IssueLog) -> _Pairs:
    """Link device work to the host calls that end only after it.

    Device and stream synchronisation wait for what was launched before them, a copy to
    pageable memory for itself. Pairs that the measured times contradict are left out.
    """
    names = trace.nodes["name"].cast(str)
    start = trace.column("start")
    end = start + trace.column("duration")
    is_call = trace.category_mask("runtime", "driver")
    device_syncs = np.flatnonzero(is_call & names.is_in(_DEVICE_SYNC).to_numpy())
    stream_syncs = np.flatnonzero(is_call & names.is_in(_STREAM_SYNC).to_numpy())
    synced_stream = _synced_streams(trace, stream_syncs)
    copies = np.flatnonzero(
        trace.category_mask("memcpy") & names.str.contains(BLOCKING_COPY).to_numpy()
        & (launcher >= 0)
    )  # fmt: skip
    pairs = [(copies, launcher[copies])]
    for stream, rows in _streams(trace):
        work = rows[launcher[rows] >= 0]
        # work of a stream starts in the order of its launches
        launch = np.maximum.accumulate(start[launcher[work]])
        waiting = np.concatenate(
            [device_syncs, stream_syncs[(synced_stream == stream) & (stream >= 0)]]
        )
        last = np.searchsorted(launch, start[waiting]) - 1
        pairs.append((work[last[last >= 0]], waiting[last >= 0]))
    src, dst = _concat(pairs)
    possible = (end[src] <= end[dst]) & (start[src] < end[dst])
    log.add(
        "link.sync-contradicted", "info", int((~possible).sum()),
        "device operations end after a call that should have waited for them",
        "these calls are taken not to have waited",
    )  # fmt: skip
    log.add(
        "link.sync-unknown", "info", int((synced_stream < 0).sum()),
        "stream synchronisations do not say which stream they wait for",
        "record with synchronisation events: "
        "experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True)",
    )  # fmt: skip
    return src[possible], dst[possible]


def _synced_streams(trace: Trace, calls: _Ints) -> _Ints:
    """Tell which stream each stream synchronisation waits for; -1 where nothing tells.

    The recording says so in a synchronisation event of the same correlation id; else it
    is taken to be the stream of the last copy launched before on the same thread.
    """
    correlation, stream = trace.column("correlation"), _stream_keys(trace)
    events = np.flatnonzero(trace.category_mask("sync") & (correlation > 0) & (stream >= 0))
    stated = _find(correlation[events], stream[events], correlation[calls], exact=True)
    thread = trace.column("thread")
    copies = np.flatnonzero(trace.category_mask("memcpy") & (correlation > 0))
    launches = np.flatnonzero(trace.category_mask("runtime", "driver"))
    launch = _find(correlation[launches], launches, correlation[copies], exact=True)
    copies, launch = copies[launch >= 0], launch[launch >= 0]
    guessed = np.full(calls.size, -1, dtype=np.int64)
    for t in np.unique(thread[calls]):
        mine, theirs = thread[calls] == t, thread[launch] == t
        guessed[mine] = _find(launch[theirs], stream[copies[theirs]], calls[mine], exact=False)
    return np.where(stated >= 0, stated, guessed)


def _concat(pairs: list[_Pairs]) -> _Pairs:
    none = np.empty(0, dtype=np.int64)
    return (
        np.concatenate([none, *(src for src, _ in pairs)]),
        np.concatenate([none, *(dst for _, dst in pairs)]),
    )
