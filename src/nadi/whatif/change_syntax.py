"""The text syntax of changes: ``scale aten::mm kind=kernel rank=0,2 0.5``.

A change that moves device work to another stream.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl

from nadi.errors import Parameter, UsageError, check_kind
from nadi.graph.edges.job_graph import ends_after
from nadi.graph.event_graph import EdgeKind, Edges, EventGraph, make_edges
from nadi.recordings.dependencies.tensor_dependencies import tensor_deps
from nadi.trace.arrays import Bools, Ints
from nadi.trace.rows import nearest
from nadi.trace.schema import TENSOR_DEPS
from nadi.units import parse_ns, parse_rate
from nadi.whatif.balance_change import Balance
from nadi.whatif.changes import (
    CUTTABLE,
    AddDependency,
    Change,
    CutDependencies,
    NoGaps,
    NoOverhead,
    OnNetwork,
    Remove,
    Scale,
    SetTime,
    is_on_device,
    join,
)
from nadi.whatif.launch_changes import Fuse, Graphed
from nadi.whatif.selection import CONDITIONS, KINDS, WAIT, Selection, compile_expression, select
from nadi.whatif.wait_changes import ScaleWait


@dataclass(frozen=True)
class MoveToStream:
    """Move device work to another stream of its device.

    The work follows what was launched before it on the new stream, and no longer waits for its
    old stream. Waits for the old stream become waits for both parts, and both parts keep the
    waits of the old stream. Where operands are recorded, work also waits
    for the work whose data it uses; where they are not, nothing says what else the order of
    the old stream kept apart.
    """

    selection: Selection
    stream: int

    def __str__(self) -> str:
        return f"move {self.selection} to {self.stream}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; nothing before ``since`` (ns since the origin) changes.

        Raises
        ------
        UsageError
            If none of the operations runs on a device.
        """
        on_device = is_on_device(graph)
        old_stream = graph.op_stream
        moved = select(graph, self.selection) & on_device
        if not moved.any():
            raise UsageError(
                str(self), "none of these operations runs on a device", "choose device work"
            )
        moved &= old_stream != self.stream
        moved &= graph.time[0 : 2 * graph.num_ops : 2] >= since
        stream = np.where(moved, self.stream, old_stream)
        work, launched = np.flatnonzero(on_device), _launched(graph)
        launched[graph.time[0 : 2 * graph.num_ops : 2] < since] = -1  # nothing comes before these
        old = _order(graph, work, old_stream, launched)
        new = _order(graph, work, stream, launched)
        kept, placed = _stream_edges(graph, old, new)
        waits = join(_waits_of_both(graph, old, moved), _data_edges(graph, moved))
        waits = Edges(*(column[graph.time[waits.dst] >= since] for column in waits))
        edges = join(join(kept, placed), waits)
        return replace(graph, op_stream=stream).rewired(edges, since)


@dataclass(frozen=True)
class _Order:
    """Device work by stream, in execution order."""

    ops: Ints  # int64, shape (work,)
    # place, first: int64, shape (ops,): the place of each operation in ``ops``, and of the first of
    # its stream; -1 of operations on threads
    place: Ints
    first: Ints
    before: Ints  # int64, shape (ops,): the operation before it on its stream, or -1


def _launched(graph: EventGraph) -> Ints:
    """Return when each operation was enqueued on its recorded stream; ns, shape (ops,).

    A stream runs its work in the order of launches: so no work counts as launched before
    what ran before it.
    """
    recorded = graph.gather("stream").to_numpy()
    call = graph.recorded_launchers
    begun = graph.time[0 : 2 * graph.num_ops : 2]
    launched = np.where(call >= 0, begun[call], begun)
    work = np.flatnonzero(is_on_device(graph))
    order = _order(graph, work, recorded, begun)
    bounds = np.flatnonzero(order.before[order.ops] < 0)
    for ops in np.split(order.ops, bounds[1:]):
        launched[ops] = np.maximum.accumulate(launched[ops])
    return launched


def _order(graph: EventGraph, work: Ints, stream: Ints, moment: Ints) -> _Order:
    """Sort work by rank, device, stream and moment, then by recorded order."""
    device = graph.gather("device").to_numpy()
    keys = (stream[work], device[work], graph.op_trace[work])
    order = np.lexsort((work, moment[work], *keys))
    ops = work[order]
    is_first = np.ones(ops.size, dtype=np.bool_)
    is_first[1:] = np.logical_or.reduce([np.diff(key[order]) != 0 for key in keys])
    place, first, before = np.full((3, graph.num_ops), -1, dtype=np.int64)
    place[ops] = np.arange(ops.size)
    first[ops] = np.maximum.accumulate(np.where(is_first, np.arange(ops.size), 0))
    follows = np.flatnonzero(~is_first)
    before[ops[follows]] = ops[follows - 1]
    return _Order(ops, place, first, before)


def _stream_edges(graph: EventGraph, old: _Order, new: _Order) -> tuple[Edges, Edges]:
    """Keep edges between unchanged neighbors; new neighbors get the usual gap."""
    edges = graph.edges
    of_stream = edges.kind == EdgeKind.STREAM
    usual = int(np.median(edges.weight[of_stream])) if of_stream.any() else 0
    op = np.minimum(edges.dst // 2, graph.num_ops - 1)
    gone = (of_stream | ends_after(graph)) & (old.before[op] != new.before[op])
    kept = Edges(*(column[~gone] for column in edges))
    placed = np.flatnonzero((new.before >= 0) & (old.before != new.before))
    return kept, make_edges(2 * new.before[placed] + 1, 2 * placed, usual, EdgeKind.STREAM, placed)


def _waits_of_both(graph: EventGraph, old: _Order, moved: Bools) -> Edges:
    """Make waits for a divided stream wait for both parts, and both parts keep its waits.

    A call that waits for the work that it launched waits for no stream.
    """
    edges, num_ops = graph.edges, moved.size
    to = np.minimum(edges.dst // 2, num_ops - 1)
    of = np.minimum(edges.src // 2, num_ops - 1)
    waits = edges.kind == EdgeKind.SYNC
    of_stream = waits & (edges.src % 2 == 1) & (graph.recorded_launchers[of] != to)
    on_end = np.flatnonzero(of_stream & (old.place[of] >= 0))
    last = _last_of_other(old, moved)[of[on_end]]
    here = on_end[last >= 0]
    out = Edges(*(column[here] for column in edges))._replace(src=2 * last[last >= 0] + 1)
    on_start = np.flatnonzero(waits & (edges.dst % 2 == 0) & (old.place[to] >= 0))
    following = _next_of_other(old, moved)[to[on_start]]
    here = on_start[following >= 0]
    into = Edges(*(column[here] for column in edges))._replace(
        dst=2 * following[following >= 0], op=following[following >= 0]
    )
    return join(out, into)


def _last_of_other(old: _Order, moved: Bools) -> Ints:
    """Return the last work before it on its stream that was moved if it was not, or -1."""
    is_moved, places = moved[old.ops], np.arange(old.ops.size)
    last = [np.maximum.accumulate(np.where(is_moved == one, places, -1)) for one in (False, True)]
    at = np.where(is_moved, *last)
    found = np.full(moved.size, -1, dtype=np.int64)
    there = at >= old.first[old.ops]
    found[old.ops[there]] = old.ops[at[there]]
    return found


def _next_of_other(old: _Order, moved: Bools) -> Ints:
    """Return the next work after it on its stream that was moved if it was not, or -1."""
    is_moved, places = moved[old.ops], np.arange(old.ops.size)
    far = old.ops.size
    following = [
        np.minimum.accumulate(np.where(is_moved == one, places, far)[::-1])[::-1]
        for one in (False, True)
    ]
    at = np.where(is_moved, *following)
    found = np.full(moved.size, -1, dtype=np.int64)
    there = np.flatnonzero(at < far)
    there = there[old.first[old.ops[at[there]]] == old.first[old.ops[there]]]
    found[old.ops[there]] = old.ops[at[there]]
    return found


def _data_edges(graph: EventGraph, moved: Bools) -> Edges:
    """Add data dependencies between works of which one was moved."""
    src, dst = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    operator = _operators(graph)
    for number, trace in enumerate(graph.job.traces):
        work = np.flatnonzero((graph.op_trace == number) & (operator >= 0))
        if not moved[work].any():
            continue
        deps = trace.deps.filter(trace.deps["kind"].is_in(TENSOR_DEPS))
        deps = (
            (deps if deps.height else tensor_deps(trace))
            .select("src", "dst")
            .unique(maintain_order=True)
        )
        of_row = pl.DataFrame({
            "row": graph.op_row[operator[work]], "op": work, "moved": moved[work],
        })  # fmt: skip
        pairs = (
            deps.join(of_row, left_on="src", right_on="row")
            .join(of_row, left_on="dst", right_on="row", suffix="_after")
            .filter(pl.col("moved") != pl.col("moved_after"))
        )
        src.append(pairs["op"].to_numpy())
        dst.append(pairs["op_after"].to_numpy())
    before, after = np.concatenate(src), np.concatenate(dst)
    return make_edges(2 * before + 1, 2 * after, 0, EdgeKind.SYNC, after)


def _operators(graph: EventGraph) -> Ints:
    """Return the innermost operator that launched device work, or -1; shape (ops,)."""
    is_operator = (graph.gather("category") == "operator").to_numpy()
    found = nearest(graph.recorded_launchers, graph.op_parent, is_operator)
    found[~is_on_device(graph)] = -1
    return found


FORMS = {
    "scale": "scale [wait] SELECT FACTOR",
    "set": "set SELECT TIME",
    "remove": "remove [wait] SELECT",
    "balance": "balance SELECT",
    "fuse": "fuse SELECT",
    "cuda-graph": "cuda-graph SELECT",
    "move": "move SELECT to STREAM",
    "add": "add SELECT -> SELECT",
    "cut": "cut KIND SELECT",
    "no-overhead": "no-overhead [SELECT]",
    "no-gaps": "no-gaps",
    "network": "network BANDWIDTH [LATENCY]",
    "balanced": "balanced ranks",
}
_MOST_VALUES = 1_000
_SELECT = "where SELECT is a regular expression for names and conditions such as kind=kernel"
_QUOTED = r"""'(?:[^']|'')*'(?!\S)|"(?:[^"]|"")*"(?!\S)"""
_WORD = re.compile(rf"(?<!\S)(?:({'|'.join(CONDITIONS)})=)?({_QUOTED}|\S+)")
_MOST = 2**62
_CUTTABLE = {kind.name.lower(): kind for kind in CUTTABLE}


def given_changes(changes: str | Change | Iterable[str | Change]) -> list[Change]:
    """Return changes as values, of which one or each is a value, or a text of one.

    - Raises UsageError if one is neither, or no valid change.
    """
    several = changes if isinstance(changes, list | tuple) else [changes]
    return [parse_change(one) if isinstance(one, str) else _value(one) for one in several]


def _value(change: Any) -> Change:
    if not hasattr(change, "apply"):
        raise UsageError(
            Parameter("changes"), f"{change!r} is of type {type(change).__name__}, and no change",
            "give a text such as 'scale gemm 0.5', or a value of nadi.whatif",
        )  # fmt: skip
    return change  # type: ignore[no-any-return]


def parse_change(text: str) -> Change:
    """Parse a change as written on the command line, such as ``scale gemm 0.5``.

    Raises
    ------
    UsageError
        If the text is not a valid change.
    """
    check_kind("text", text, str, "write it as 'scale gemm 0.5'")
    verb, _, rest = text.strip().partition(" ")
    if verb not in FORMS:
        raise UsageError(
            f"change {text!r}", "is not a known change", f"one of: {'; '.join(FORMS.values())}"
        )
    try:
        return _PARSERS[verb](rest.strip())
    except ValueError as error:
        remedy = f"write {FORMS[verb]}"
        if "SELECT" in remedy:
            remedy = f"{remedy}, {_SELECT}"
        raise UsageError(f"change {text!r}", str(error), remedy) from None


def parse_selection(text: str) -> Selection:
    """Parse a selection: a regular expression for the name, and conditions, in any order.

    Conditions are ``kind=``, ``rank=``, ``stream=``, ``thread=``, ``step=`` and ``in=``; several
    values are separated by commas. A quoted expression may contain anything; quotes inside are
    doubled. A single ``.`` selects all operations.

    Raises
    ------
    ValueError
        If a condition is invalid.
    """
    name, conditions = _split(text)
    for expression in (name, conditions.get("in", "")):
        compile_expression(expression)
    kinds = tuple(_values("kind", conditions))
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(f"kind={kind} is not one of {', '.join(KINDS)}")
    steps = tuple(_values("step", conditions))
    if not all(re.fullmatch(r"[\w-]+", step) for step in steps):
        raise ValueError(f"step={conditions['step']}: expected numbers or kinds of steps")
    return Selection(
        name=name,
        kinds=kinds,
        ranks=_numbers("rank", conditions),
        streams=_numbers("stream", conditions),
        threads=_numbers("thread", conditions),
        inside=conditions.get("in", ""),
        steps=steps,
    )


def _split(text: str) -> tuple[str, dict[str, str]]:
    """Separate the conditions from the name."""
    conditions: dict[str, str] = {}
    words: list[str] = []
    rest, at = [], 0
    for found in _WORD.finditer(text):
        key, value = found[1], found[2]
        if key is None and value.removesuffix("=") in CONDITIONS and value.endswith("="):
            raise ValueError(f"{value} says nothing")
        if key is None:
            words.append(value)
            continue
        if key in conditions:
            raise ValueError(f"{key}= is given twice: separate several values with commas")
        conditions[key] = _unquoted(value)
        rest.append(text[at : found.start()].strip())
        at = found.end()
    rest.append(text[at:].strip())
    if words == ["."]:
        return "", conditions
    return _unquoted(words[0]) if len(words) == 1 else " ".join(filter(None, rest)), conditions


def _unquoted(word: str) -> str:
    if re.fullmatch(_QUOTED, word):
        return word[1:-1].replace(2 * word[0], word[0])
    return word


def _values(key: str, conditions: dict[str, str]) -> list[str]:
    values = [value.strip() for value in conditions.get(key, "").split(",")]
    if key in conditions and not all(values):
        raise ValueError(f"{key}={conditions[key]}: a value is missing")
    return [value for value in values if value]


def _numbers(key: str, conditions: dict[str, str]) -> tuple[int, ...]:
    values = _values(key, conditions)
    if not all(map(_is_number, values)):
        raise ValueError(f"{key}={conditions[key]}: expected numbers with commas between them")
    return tuple(int(value) for value in values)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < len(str(_MOST))


def parse_values(text: str, parameter: str = "text") -> list[str]:
    """Parse the values of a sweep: a list ``0.5,1,2``, or ``0.5:2:0.25`` (from, to, step).

    Parameters
    ----------
    parameter
        Whose value it is, for errors.

    Raises
    ------
    UsageError
        If a range is invalid or has over 1,000 values.
    """
    if ":" not in text:
        return [value.strip() for value in text.split(",") if value.strip()]
    try:
        first, last, step = (Decimal(part) for part in text.split(":"))
        steps = (last - first) / step
        count = int(steps) + 1 if 0 <= steps < _MOST_VALUES else 0
    except (ArithmeticError, ValueError):
        count = 0
    if not count:
        raise UsageError(
            Parameter(parameter, text),
            "is not a range of at most 1,000 values",
            "write from:to:step",
        )
    return [str(first + k * step) for k in range(count)]


def _chosen(text: str) -> Selection:
    if not text:
        raise ValueError("does not select any operations")
    return parse_selection(text)


def _with_last_word(text: str) -> tuple[Selection, str]:
    words = text.split()
    if len(words) < 2:
        raise ValueError("is not a known change: a word is missing")
    return _chosen(text[: len(text) - len(words[-1])].strip()), words[-1]


def _of_waits(text: str) -> tuple[bool, str]:
    """Return whether a text begins with the word ``wait``, and the text without it."""
    first, _, rest = text.partition(" ")
    return (True, rest.strip()) if first == WAIT else (False, text)


def _remove(text: str) -> Change:
    waits, rest = _of_waits(text)
    return ScaleWait(parse_selection(rest), 0.0) if waits else Remove(_chosen(rest))


def _scale(text: str) -> Change:
    waits, rest = _of_waits(text)
    # all waits, if nothing but the factor follows
    selection, last = _with_last_word(rest if not waits or " " in rest else f". {rest}")
    try:
        factor = float(last)
    except ValueError:
        raise ValueError(f"expected a number, got {last!r}") from None
    if not (math.isfinite(factor) and factor >= 0):
        raise ValueError(f"the factor {last} is not a finite number of 0 or more")
    return ScaleWait(selection, factor) if waits else Scale(selection, factor)


def _set(text: str) -> SetTime:
    selection, last = _with_last_word(text)
    return SetTime(selection, _time(last))


def _move(text: str) -> MoveToStream:
    before, to, last = text.rpartition(" to ")
    if not to or not _is_number(last.strip()):
        raise ValueError("does not name a stream")
    return MoveToStream(_chosen(before), int(last))


def _add(text: str) -> AddDependency:
    arrows = [found for found in _WORD.finditer(text) if found[0] == "->"]
    if len(arrows) != 1:
        raise ValueError("needs exactly one arrow between spaces")
    source, target = text[: arrows[0].start()], text[arrows[0].end() :]
    return AddDependency(_chosen(source.strip()), _chosen(target.strip()))


def _cut(text: str) -> CutDependencies:
    kind, _, rest = text.partition(" ")
    if kind not in _CUTTABLE:
        raise ValueError(f"{kind!r} is not one of {', '.join(_CUTTABLE)}")
    return CutDependencies(_CUTTABLE[kind], _chosen(rest.strip()))


def _network(text: str) -> OnNetwork:
    words = text.split()
    if len(words) not in (1, 2):
        raise ValueError("expected a bandwidth and an optional latency")
    return OnNetwork(parse_rate(words[0]), _time(words[1]) if len(words) == 2 else 0)


def _time(text: str) -> int:
    time = parse_ns(text)
    if time >= _MOST:
        raise ValueError(f"{text} exceeds a century")
    return time


def _no_overhead(text: str) -> NoOverhead:
    return NoOverhead(parse_selection(text) if text else Selection(kinds=("device",)))


def _no_gaps(text: str) -> NoGaps:
    if text:
        raise ValueError("takes no arguments")
    return NoGaps()


def _balanced(text: str) -> Balance:
    if text != "ranks":
        raise ValueError("does not say what is balanced")
    return Balance()


_PARSERS: dict[str, Callable[[str], Change]] = {
    "scale": _scale,
    "set": _set,
    "remove": _remove,
    "balance": lambda text: Balance(_chosen(text)),
    "fuse": lambda text: Fuse(_chosen(text)),
    "cuda-graph": lambda text: Graphed(_chosen(text)),
    "move": _move,
    "add": _add,
    "cut": _cut,
    "no-overhead": _no_overhead,
    "no-gaps": _no_gaps,
    "network": _network,
    "balanced": _balanced,
}
