"""Time of operators, as PyTorch's ``key_averages()`` sums it: by name, by shape, by call stack."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from nadi.analyses.recorded.call_stacks import call_stacks, self_times
from nadi.analyses.recorded.events import RankEvents, per_rank
from nadi.errors import InputError, UsageError
from nadi.graph.operand_shapes import stated_shapes
from nadi.graph.windows import MARK
from nadi.recordings.dependencies.thread_handovers import waiting_threads
from nadi.trace.arrays import Bools, Ints, numbered_texts, text_codes

_BY = ("name", "shape", "stack")
_SHOWN = {"name": 24, "shape": 12, "stack": 8}  # rows of a page
_STEP = re.compile(rf"^{MARK}#\d+$")
_UNSEEN = (
    "aten::is_leaf", "aten::output_nr", "aten::_version", "profiler::_record_function_enter",
    "profiler::_record_function_enter_new", "profiler::_record_function_exit",
)  # fmt: skip
_HOLDS_WORK = ("operator", "annotation", "python")
_SUMS = ("self_host_ns", "host_ns", "self_device_ns", "device_ns", "kernels")
_WORKING = "working_ns"  # of the self time, that of threads that do not only wait


@per_rank("operators", "host events", uses=("arguments", "launches"))
def operator_times(events: RankEvents, by: str = "name", frames: int = 5) -> pl.DataFrame:
    """Sum the calls of threads by name: how often, how long alone, how long with what they call.

    The rules are those of ``key_averages()`` of PyTorch's profiler. A call that is all that a call
    of the same name calls is no call of its own. Device work counts for what launches it: an
    operator, an annotation or a Python function, not for the call of CUDA's or HIP's runtime. One
    rule differs: a call that outlives the one around it counts there for the time that both take,
    where the profiler counts it wholly or not at all, so that its self times can be below 0.

    Parameters
    ----------
    events
        A job, a trace, or several.
    by
        ``name``; ``shape``, with the shapes of the inputs (``record_shapes=True``); or ``stack``,
        with the Python functions around the call (``with_stack=True``).
    frames
        So many Python functions, the innermost first.

    Returns
    -------
    polars.DataFrame
        A row per name and kind, those with most self time on the host or on the device first:
        ``name``, ``kind`` (operator, annotation, runtime, driver, python), ``shape`` or ``stack``,
        ``count``, ``self_host_ns``, ``percent`` of all self time on the host but that of threads
        that only wait in Python, such as that of a progress bar, which have 0, ``host_ns`` (with
        nested calls; calls in calls of the same name count in both), ``self_device_ns``,
        ``device_ns``, ``kernels`` (with nested calls).
        O(events * depth).

    Raises
    ------
    UsageError
        If ``by`` is none of these, or ``frames`` is below 1.
    """
    if by not in _BY or frames < 1:
        what = f"by is {by!r}" if by not in _BY else f"frames is {frames}"
        raise UsageError("operators", what, f"by is one of {', '.join(_BY)}; frames is 1 or more")
    stacks = call_stacks(events)
    is_seen = np.zeros(events.table.height, dtype=np.bool_)
    is_seen[stacks["row"].to_numpy()] = ~stacks["name"].is_in(_UNSEEN).to_numpy()
    is_seen &= ~_repeats(events, is_seen)
    rows = np.flatnonzero(is_seen)
    names = events.table["name"].gather(rows).cast(pl.String)
    host = self_times(events, rows, _seen_above(events, is_seen))
    device = _device_times(events, is_seen)
    waits = waiting_threads(events.trace)
    node = rows if events.node is None else events.node[rows]
    columns = {
        "name": names.map_elements(_joined_steps, return_dtype=pl.String),
        "kind": events.table["category"].gather(rows).cast(pl.String),
        **_detail(events, rows, by, frames), "count": np.ones(rows.size, dtype=np.int64),
        "self_host_ns": host, "host_ns": events.column("duration")[rows],
        "self_device_ns": device[0][rows], "device_ns": device[1][rows],
        "kernels": device[2][rows],
        _WORKING: np.where((node >= 0) & waits[node], 0, host),
    }  # fmt: skip
    return _summed(pl.DataFrame(columns))


def describe_operators(ranks: Sequence[RankEvents]) -> dict[str, list[dict[str, Any]]]:
    """Sum the calls of all ranks, without Python functions: what a page shows.

    - Returns: ``name``, ``shape`` and ``stack``: the rows of :func:`operator_times` with most self
      time on the host or on the device, over all ranks; those by shape and by stack are empty if
      nothing of them is recorded, and all are if no rank has calls.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for by in _BY:
        try:
            table = pl.concat([operator_times(events, by=by) for events in ranks])
        except InputError:
            return {by: [] for by in _BY}
        table = table.drop("rank", "percent").filter(pl.col("kind") != "python")
        whole = _summed(table.with_columns(pl.col("self_host_ns").alias(_WORKING)))
        if by != "name" and (whole[by] == "").all():
            whole = whole.clear()
        found[by] = whole.head(_SHOWN[by]).to_dicts()
    return found


def _summed(calls: pl.DataFrame) -> pl.DataFrame:
    """Sum calls of a name, a kind and what else distinguishes them."""
    keys = [name for name in calls.columns if name not in ("count", _WORKING, *_SUMS)]
    grouped = calls.group_by(keys).agg(pl.sum("count", _WORKING), *map(pl.sum, _SUMS))
    most = pl.max_horizontal(_WORKING, "self_device_ns")
    return grouped.sort(most, *keys, descending=[True, *(False for _ in keys)]).select(
        *keys, "count", "self_host_ns",
        percent=100 * pl.col(_WORKING) / pl.sum(_WORKING),
        host_ns="host_ns", self_device_ns="self_device_ns", device_ns="device_ns",
        kernels="kernels",
    )  # fmt: skip


def _joined_steps(name: str) -> str:
    return f"{MARK}*" if _STEP.match(name) else name


def _repeats(events: RankEvents, is_seen: Bools) -> Bools:
    """Return the calls that are all that a call of the same name calls.

    A call that begins where another of no duration ends is not in it.
    """
    names, start = text_codes(events.table["name"]), events.column("start")
    around = _seen_above(events, is_seen)
    nested = np.flatnonzero(is_seen & (around >= 0))
    nested = nested[start[nested] < events.end[around[nested]]]
    above = around[nested]
    num_inner = np.bincount(above, minlength=names.size)
    found = np.zeros(names.size, dtype=np.bool_)
    found[nested[(names[above] == names[nested]) & (num_inner[above] == 1)]] = True
    return found


def _seen_above(events: RankEvents, is_seen: Bools) -> Ints:
    """Return the nearest counted call around each event, or -1."""
    return events.around(events.parent, is_seen)


def _device_times(events: RankEvents, is_seen: Bools) -> Ints:
    """Return per event the time of work it launches itself, with nested calls, and its pieces."""
    work = events.work[events.launcher[events.work] >= 0]
    holder = events.around(events.launcher[work], is_seen & events.is_of(*_HOLDS_WORK))
    work, holder = work[holder >= 0], holder[holder >= 0]
    duration = events.column("duration")[work]
    found = np.zeros((3, events.table.height), dtype=np.int64)
    np.add.at(found[0], holder, duration)
    above = _seen_above(events, is_seen)
    while holder.size:
        np.add.at(found[1], holder, duration)
        np.add.at(found[2], holder, 1)
        holder = above[holder]
        kept = holder >= 0
        holder, duration = holder[kept], duration[kept]
    return found


def _detail(events: RankEvents, rows: Ints, by: str, frames: int) -> dict[str, pl.Series]:
    """Return the column that distinguishes calls of one name."""
    if by == "shape":
        return {"shape": _shapes(events, rows)}
    return {"stack": _frames(events, rows, frames)} if by == "stack" else {}


def _shapes(events: RankEvents, rows: Ints) -> pl.Series:
    """Return the shapes of the inputs of calls; empty if none are recorded."""
    stated = stated_shapes(events.trace)
    texts = np.full(events.trace.nodes.height, "", dtype=object)
    texts[stated["node"].to_numpy()] = stated["text"].to_numpy()
    node = rows if events.node is None else events.node[rows]
    return pl.Series(np.where(node >= 0, texts[node], ""), dtype=pl.String)


def _frames(events: RankEvents, rows: Ints, frames: int) -> pl.Series:
    """Return the Python functions around calls, the innermost first, one below the other."""
    is_python = events.is_of("python")
    codes, names = numbered_texts(events.table["name"])
    found = [""] * rows.size
    known: dict[int, str] = {-1: ""}
    around = events.around(events.parent, is_python)
    for at, frame in enumerate(around[rows].tolist()):
        if frame not in known:
            path: list[str] = []
            one = frame
            while one >= 0 and len(path) < frames:
                path.append(names[codes[one]])
                one = int(around[one])
            known[frame] = "\n".join(path)
        found[at] = known[frame]
    return pl.Series(found, dtype=pl.String)
