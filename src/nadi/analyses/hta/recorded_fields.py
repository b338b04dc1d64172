"""Events with the fields of the trace file: pid, tid, stream and every category.

A :class:`~nadi.trace.trace.Trace` has columns for what matters to all; HTA also looks at things
that are attributes: the process, what a synchronization waits for, events that are no nodes.

The events as HTA's parser returns them: rounded times, partners, without the last step.

The rules are numbered P1 to P5 as in ``docs/critical-path.md``.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import polars as pl

from nadi.errors import InputError
from nadi.kernels.sequences import spans_holding
from nadi.trace.arrays import Bools, Floats, Ints
from nadi.trace.attributes import CODES, Attributes
from nadi.trace.schema import ON_DEVICE
from nadi.trace.trace import Trace

EVENTS = {
    "index": pl.Int64,  # position in traceEvents
    "start": pl.Int64,  # ns
    "duration": pl.Int64,  # ns
    "process": pl.Int64,  # pid
    "thread": pl.Int64,  # tid
    "stream": pl.Int64,  # -1 where none is stated
    "correlation": pl.Int64,
    "waits_on_stream": pl.Int64,  # what a synchronization waits for
    "waits_on_record": pl.Int64,  # correlation of the call that recorded the event waited for
    "node": pl.Int64,  # row of the trace's nodes; -1 for an event that is none
    "name": pl.String,
    "category": pl.String,  # Nadi's; as recorded where it is none of Nadi's
}
_NS = 1000
_LATEST = 2**62 // _NS  # us
_FIRST_TEXT = 2**62  # texts instead of numbers for pid and tid are counted from here


@dataclass(frozen=True, eq=False)
class Recorded:
    """The events of a file that have a duration, in file order."""

    table: pl.DataFrame  # columns as in ``EVENTS``; times as recorded, with no base added
    # whether a time stamp has a fraction of a microsecond, or an event none at all
    has_fractions: bool


class _Event(msgspec.Struct):
    name: str = ""
    cat: str | None = None
    pid: int | str = -1
    tid: int | str = -1
    ts: int | float | None = None
    dur: int | float | None = None
    args: dict[str, Any] | None = None


_event_decoder = msgspec.json.Decoder(_Event)


def read_recorded(trace: Trace) -> Recorded:
    """Read the events of a trace, linked or as read from its file. O(events log events).

    - Raises InputError if the trace has no events: it does not come from a device trace.
    """
    rows = np.flatnonzero(trace.column("event") >= 0)
    if rows.size == 0:
        raise InputError(
            trace_name(trace), "the trace contains no device trace events",
            "HTA's rules need a device trace (Kineto) from PyTorch's profiler",
        )  # fmt: skip
    rows = rows[np.argsort(trace.column("event")[rows], kind="stable")]
    table = _nodes(trace, rows)
    others = _others(trace)
    if others.height:
        table = pl.concat([table, others]).sort("index", maintain_order=True)
    start, duration = (table[name].to_numpy() % _NS for name in ("start", "duration"))
    has_fractions = bool(start.any())
    if not has_fractions and duration.any():  # else nothing is rounded, and nobody need look
        has_fractions = _others_have_fractions(trace.attributes)
    return Recorded(table, has_fractions)


def trace_name(trace: Trace) -> str:
    """Return the source files of a trace, for messages."""
    return ", ".join(str(source.path) for source in trace.provenance.sources) or "trace"


def _nodes(trace: Trace, rows: Ints) -> pl.DataFrame:
    """Return the events that are nodes."""
    nodes = trace.nodes[rows]
    on_device = nodes["category"].is_in(ON_DEVICE).to_numpy()
    process = np.where(on_device, nodes["device"].to_numpy(), trace.process)
    thread = np.where(on_device, nodes["stream"].to_numpy(), nodes["thread"].to_numpy())
    attributes = trace.attributes
    place = np.full(trace.nodes.height, -1, dtype=np.int64)
    place[rows] = np.arange(rows.size)
    _set_identities(attributes, "pid", place, process)
    _set_identities(attributes, "tid", place, thread)
    stream = nodes["stream"].to_numpy().copy()
    _set_host_streams(attributes, place, on_device, stream)
    waits = _set_waits(attributes, place, nodes["category"], stream)
    return pl.DataFrame({
        "index": nodes["event"],
        "start": nodes["start"].to_numpy() - added_base_time(attributes),
        "duration": nodes["duration"],
        "process": process,
        "thread": thread,
        "stream": stream,
        "correlation": nodes["correlation"],
        "waits_on_stream": waits[0],
        "waits_on_record": waits[1],
        "node": rows,
        "name": nodes["name"].cast(pl.String),
        "category": nodes["category"].cast(pl.String),
    }, schema=EVENTS)  # fmt: skip


def added_base_time(attributes: Attributes) -> int:
    """Return the time that Nadi added to the recorded ones; HTA does not."""
    rows = rows_of_file(attributes, "baseTimeNanoseconds")
    rows = rows[attributes.node[rows] == -1]
    base = attributes.python_value(int(rows[0])) if rows.size else 0
    is_added = isinstance(base, int) and 0 <= base < 2**62  # as the reader of Kineto's files has it
    return int(base) if is_added else 0


def rows_of_file(attributes: Attributes, name: str) -> Ints:
    """Return the attributes of a name that come from the device file."""
    rows = attributes.rows_named(name)
    found: Ints = rows[attributes.type[rows] == CODES["json"]]
    return found


def rows_holding(attributes: Attributes, rows: Ints, text: bytes) -> Ints:
    """Return the attributes whose bytes contain a text."""
    holds = np.empty(rows.size, dtype=np.bool_)
    spans_holding(
        attributes.bytes(), attributes.value[rows], attributes.length[rows].astype(np.int64),
        np.frombuffer(text, dtype=np.uint8).copy(), holds,
    )  # fmt: skip
    return rows[holds]


def _set_identities(attributes: Attributes, name: str, place: Ints, values: Ints) -> None:
    """Fill in the pid or tid of nodes whose columns do not have it."""
    found = [
        (at, attributes.python_value(int(row)))
        for row in rows_of_file(attributes, name)
        if attributes.node[row] >= 0 and (at := place[attributes.node[row]]) >= 0
    ]
    texts = sorted({str(value) for _, value in found if not _is_small(value)})
    number = {text: _FIRST_TEXT + position for position, text in enumerate(texts)}
    for at, value in found:
        values[at] = value if _is_small(value) else number[str(value)]


def _set_host_streams(attributes: Attributes, place: Ints, on_device: Bools, stream: Ints) -> None:
    """Fill in the stream of host events that state one, as some compilers write them."""
    rows = _args_of(attributes, place, ~on_device)
    for row in rows_holding(attributes, rows, b'"stream"').tolist():
        args = object_at(attributes, row)
        stream[place[attributes.node[row]]] = _integer(args.get("stream"))


def _args_of(attributes: Attributes, place: Ints, wanted: Bools) -> Ints:
    """Return the rows of the args of events; ``place`` is the position of each node among them."""
    rows = rows_of_file(attributes, "args")
    rows = rows[attributes.node[rows] >= 0]
    at = place[attributes.node[rows]]
    return rows[(at >= 0) & wanted[at]]


def _set_waits(
    attributes: Attributes, place: Ints, category: pl.Series, stream: Ints
) -> tuple[Ints, Ints]:
    """Return what synchronizations wait for, and their streams as HTA reads them."""
    on_stream, on_record = np.full((2, stream.size), -1, dtype=np.int64)
    is_sync = (category == "sync").to_numpy()
    for row in _args_of(attributes, place, is_sync).tolist():
        args = object_at(attributes, row)
        k = place[attributes.node[row]]
        stream[k] = _integer(args.get("stream"))
        on_stream[k] = _integer(args.get("wait_on_stream"))
        on_record[k] = _integer(args.get("wait_on_cuda_event_record_corr_id"))
    return on_stream, on_record


def object_at(attributes: Attributes, row: int) -> dict[str, Any]:
    """Return an event or its args as they were; an empty object if they were none."""
    value = attributes.python_value(row)
    return value if isinstance(value, dict) else {}


def _is_small(value: Any) -> bool:
    """Return whether a value is an integer below the codes of strings."""
    return isinstance(value, int) and abs(value) < _FIRST_TEXT


def _integer(value: Any) -> int:
    return value if _is_small(value) else -1


def _others_have_fractions(attributes: Attributes) -> bool:
    """Return whether an event that is not a node has no timestamp or one with a fraction."""
    rows = rows_of_file(attributes, "event").tolist()
    events = (_decoded(attributes.span(row)) for row in rows)
    return any(event is not None and not isinstance(event.ts, int) for event in events)


def _others(trace: Trace) -> pl.DataFrame:
    """Return events with a duration that are not nodes: profiler overhead or unknown kinds.

    All of them are kept, in the file's order, so that their positions are those that no node has.
    """
    attributes = trace.attributes
    rows = rows_of_file(attributes, "event")
    rows = rows[np.argsort(attributes.value[rows], kind="stable")]
    lasting = rows_holding(attributes, rows, b'"dur"')
    index = _positions(trace, rows.size)[np.isin(rows, lasting)]
    found: list[tuple[Any, ...]] = []
    for row, at in zip(lasting.tolist(), index.tolist(), strict=True):
        event = _decoded(attributes.span(row))
        if event is None or event.cat in (None, "Trace") or event.dur is None or event.ts is None:
            continue
        if max(abs(event.ts), abs(event.dur)) > _LATEST:
            continue  # a time that int64 ns cannot represent
        args = event.args or {}
        found.append((
            at, round(event.ts * _NS), round(event.dur * _NS), _integer(event.pid),
            _integer(event.tid), _integer(args.get("stream")), _integer(args.get("correlation")),
            -1, -1, -1, event.name, event.cat,
        ))  # fmt: skip
    return pl.DataFrame(found, schema=EVENTS, orient="row")


def _decoded(content: bytes) -> _Event | None:
    try:
        return _event_decoder.decode(content)
    except msgspec.MsgspecError:
        return None  # other types of fields, which HTA ignores as well


def _positions(trace: Trace, count: int) -> Ints:
    """Return the positions of the events that are not nodes, ascending."""
    of_nodes = trace.column("event")
    of_nodes = of_nodes[of_nodes >= 0]
    free = np.ones(max(of_nodes.size + count, int(of_nodes.max(initial=-1)) + 1), dtype=np.bool_)
    free[of_nodes] = False
    return np.flatnonzero(free)[:count]


_EXACT = 2**53  # integers up to here are exact as a double
_STEP = re.compile(r"ProfilerStep#\d+")
_SYNCS = ("Event Sync", "Context Sync")  # device work whatever their stream


def parse_events(
    traces: Sequence[Trace], at: int, *, include_last_step: bool = False
) -> pl.DataFrame:
    """Return the events of one rank of a job in HTA's order.

    - ``traces``: All ranks: they share the origin of time, and the decision whether to drop a step.
    - ``at``: Position of the rank's trace among them.
    - ``include_last_step``: Keep the last step, which HTA drops if there are several.
    - Returns: The columns of ``recorded.EVENTS``, start since the earliest event of any rank, and
      ``partner``: HTA's ``index_correlation``, the index of the other side of a launch; 0 if that
      was not recorded, -1 for an event without a correlation.
    - Raises InputError if a trace has no events.
    """
    recorded = [read_recorded(trace) for trace in traces]
    tables = [_rounded(one) for one in recorded]
    origin = min(int(table["start"].to_numpy().min()) for table in tables)
    steps = {name for table in tables for name in _steps(table)["name"].unique()}
    events = tables[at].with_columns(pl.col("start") - origin)
    events = events.with_columns(partner=_partners(events))
    return _filtered(events, include_last_step) if len(steps) > 1 else events


def _rounded(recorded: Recorded) -> pl.DataFrame:
    """P1: if a timestamp has a fraction, round starts up and ends down to us."""
    table = recorded.table
    if not recorded.has_fractions:
        return table
    start = _microseconds(table["start"].to_numpy())
    end = np.floor(start + _microseconds(table["duration"].to_numpy()))
    start = np.ceil(start)
    return table.with_columns(
        start=start.astype(np.int64) * _NS, duration=(end - start).astype(np.int64) * _NS
    )


def _microseconds(time: Ints) -> Floats:
    """Convert times in ns to the nearest doubles in us.

    HTA adds and rounds such doubles, whose last bit is worth a quarter of a us for times
    since the epoch: the same must be done here to come to the same whole number.
    """
    # time / 1000 is exact for small times; beyond, the sum of the parts is never near a tie
    return np.where(np.abs(time) < _EXACT, time / _NS, time // _NS + (time % _NS) / _NS)


def _partners(events: pl.DataFrame) -> Ints:
    """P2, P3: pair the two sides of each correlation; of duplicates, the last one counts."""
    correlation = events["correlation"].to_numpy()
    index = events["index"].to_numpy()
    on_device = ((events["stream"] >= 0) & (events["correlation"] >= 0)).to_numpy()
    on_device |= events["name"].is_in(_SYNCS).to_numpy()
    partner: Ints = np.minimum(correlation, 0)
    for own, other in ((on_device, ~on_device), (~on_device, on_device)):
        rows = np.flatnonzero(other & (correlation >= 0))[::-1]
        keys, last = np.unique(correlation[rows], return_index=True)
        if keys.size == 0:
            continue
        mine = np.flatnonzero(own & (correlation >= 0))
        found = np.minimum(np.searchsorted(keys, correlation[mine]), keys.size - 1)
        fits = keys[found] == correlation[mine]
        partner[mine[fits]] = index[rows[last[found[fits]]]]
    return partner


def _steps(events: pl.DataFrame) -> pl.DataFrame:
    names = events["name"].unique()
    is_step = [_STEP.match(name) is not None for name in names]
    steps = names.filter(pl.Series(is_step, dtype=pl.Boolean))
    return events.filter(pl.col("name").is_in(steps.implode()))


def _filtered(events: pl.DataFrame, include_last_step: bool) -> pl.DataFrame:
    """P4, P5: drop the last step and device work without a launch; sort device work first."""
    host = events.filter(pl.col("stream") == -1)
    if not include_last_step:
        steps = _steps(events)["start"]
        if steps.len():
            host = host.filter(pl.col("start") < steps.to_numpy().max())
    launched = host["correlation"].unique()
    device = events.filter(
        (pl.col("stream") != -1) & pl.col("correlation").is_in(launched.implode())
    )
    return pl.concat([device, host])
