"""Ranks that a script merged into one Kineto trace, read as the ranks that they were."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from nadi.files.files import RawFile, read_file
from nadi.files.kineto.kineto_events import CATEGORY, OTHER_CATEGORY
from nadi.files.kineto.kineto_trace import MERGED, decode
from nadi.files.trace_files import sniff
from nadi.trace.schema import DEVICE_WORK
from nadi.trace.trace import Trace

__all__ = ["split_ranks"]

_OWN = CATEGORY | OTHER_CATEGORY
_CLEAR = 2 / 3  # of the launches
_DIGITS = "0123456789"
_MOST_RANKS = 1 << 31
_Members: TypeAlias = "dict[str, msgspec.Raw]"
_members_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list_decoder = msgspec.json.Decoder(list[msgspec.Raw])


def split_ranks(path: Path, trace: Trace) -> list[Trace]:
    """Return the ranks of a trace whose operators are of several processes; else the trace alone.

    Scripts that merge ranks add a rank to the arguments of events, or make process ids different:
    by a text around them, such as ``[TP01] 83``, or by numbers. Device work belongs to the process
    of the same text, or to the one whose calls launched two thirds of it. Ranks are the stated
    ones, else the order of the texts or process ids.

    Returns
    -------
    list of Trace
        In order of rank. The trace alone if some device work belongs to no process.
    """
    if not (trace.issues["code"] == MERGED).any():
        return [trace]
    found = sniff(path)
    raw = read_file(path) if found is None else found.events_of(read_file(path))
    header, events = _members(raw)
    rank_of = _rank_of_processes(events)
    parts: dict[int, list[msgspec.Raw]] = defaultdict(list)
    for event in events:
        rank = event.rank
        rank = rank_of.get(event.process, -1) if rank is None else rank
        if rank < 0 and _OWN.get(event.category) in DEVICE_WORK:
            return [trace]
        parts[rank].append(event.written)
    parts.pop(-1, None)
    if len(parts) < 2:
        return [trace]
    ranks = [_decoded(raw, header, parts[rank], rank, len(parts)) for rank in sorted(parts)]
    ranks = [replace(one, provenance=trace.provenance) for one in ranks]
    if found is not None and found.events:  # what another tool's file lacks, its reader knows alone
        known = trace.issues.filter(trace.issues["code"] != MERGED)
        ranks[0] = replace(ranks[0], issues=known)
    return ranks


class _Event(NamedTuple):
    """What of an event tells its rank; -1, NaN and None where it states none."""

    category: str
    process: int | str | None
    time: float
    correlation: int
    rank: int | None
    written: msgspec.Raw


def _members(raw: RawFile) -> tuple[_Members, list[_Event]]:
    """Return a file's other members, and its events; values stay as they are written."""
    content = raw.content.tobytes()
    if content.lstrip()[:1] == b"[":
        header, listed = {}, _list_decoder.decode(content)
    else:
        header = _members_decoder.decode(content)
        listed = _list_decoder.decode(header.pop("traceEvents"))
    return header, [_event(one) for one in listed if bytes(one).lstrip()[:1] == b"{"]


def _event(written: msgspec.Raw) -> _Event:
    members = _members_decoder.decode(written)
    args = members.get("args", msgspec.Raw(b"{}"))
    stated = _members_decoder.decode(args) if bytes(args).lstrip()[:1] == b"{" else {}
    category, process, time = (_value(members, key) for key in ("cat", "pid", "ts"))
    rank, correlation = _value(stated, "rank"), _value(stated, "correlation")
    return _Event(
        category if isinstance(category, str) else "",
        process if type(process) in (int, str) else None,
        time if type(time) in (int, float) else math.nan,
        correlation if type(correlation) is int and correlation > 0 else -1,
        rank if type(rank) is int and 0 <= rank < _MOST_RANKS else None,
        written,
    )


def _value(members: _Members, key: str) -> Any:
    """Return a number or a text; None for all else, and for what no number holds."""
    try:
        return msgspec.json.decode(members[key], type=int | float | str | None)
    except (KeyError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _decoded(
    raw: RawFile, header: _Members, events: list[msgspec.Raw], rank: int, size: int
) -> Trace:
    content = msgspec.json.encode({**header, "traceEvents": events})
    trace = decode(raw.with_content(content))
    return replace(trace, rank=rank, world_size=max(trace.world_size, size))


def _rank_of_processes(events: Sequence[_Event]) -> dict[int | str | None, int]:
    """Return the rank of each process id, of hosts and of devices.

    Empty if a host's event states none.
    """
    hosts = {event.process for event in events if _OWN.get(event.category) == "operator"}
    if None in hosts:
        return {}
    texts = {host: _text_around(host) for host in hosts}
    if None not in texts.values() and len(set(texts.values())) == len(hosts):
        order = {text: rank for rank, text in enumerate(sorted(map(str, texts.values())))}
        pids = {event.process for event in events}
        return {pid: order[text] for pid in pids if (text := _text_around(pid)) in order}
    ordered = sorted(hosts, key=lambda pid: (isinstance(pid, str), pid))
    rank_of = {pid: rank for rank, pid in enumerate(ordered)}
    for pid, counts in _launches(events, hosts).items():
        most, times = counts.most_common(1)[0]
        if times > _CLEAR * counts.total():
            rank_of[pid] = rank_of[most]
    return rank_of


def _launches(
    events: Sequence[_Event], hosts: set[int | str | None]
) -> dict[int | str | None, Counter[int | str | None]]:
    """Count which host launched the work of each device.

    Correlation ids are of a process, and may be equal in several: the launch is the last before.
    """
    callers: dict[int, list[tuple[float, int | str | None]]] = defaultdict(list)
    work = []
    for event in events:
        if event.correlation < 0:
            continue
        if event.process in hosts:
            callers[event.correlation].append((event.time, event.process))
        elif _OWN.get(event.category) in DEVICE_WORK:
            work.append(event)
    launched: dict[int | str | None, Counter[int | str | None]] = defaultdict(Counter)
    for one in work:
        before = [call for call in callers[one.correlation] if call[0] <= one.time]
        if before:
            launched[one.process][max(before, key=lambda call: call[0])[1]] += 1
    return launched


def _text_around(pid: int | str | None) -> str | None:
    """Return a process id without its last number, if it is a text with more than that."""
    if not isinstance(pid, str):
        return None
    end = max(map(pid.rfind, _DIGITS)) + 1
    return (pid[:end].rstrip(_DIGITS) + pid[end:]).strip() or None
