"""Ranks that a script merged into one Kineto trace, read as the ranks that they were."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from nadi.formats.files import RawFile, read_file
from nadi.formats.kineto.kineto_trace import MERGED, decode
from nadi.model.trace import Trace

__all__ = ["split_ranks"]

_HOST = ("cpu_op", "Operator")
_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")
_CLEAR = 2 / 3  # of the launches
_NUMBER = re.compile(r"\d+(?=\D*$)")  # the last one


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
    raw = read_file(path)
    found = msgspec.json.decode(raw.content.tobytes())
    header, events = ({}, found) if isinstance(found, list) else (found, found["traceEvents"])
    events = [event for event in events if isinstance(event, dict)]
    rank_of = _rank_of_processes(events)
    parts: dict[int, list[Any]] = defaultdict(list)
    for event in events:
        rank = _stated_rank(event)
        rank = rank_of.get(_process(event), -1) if rank is None else rank
        if rank < 0 and event.get("cat") in _DEVICE:
            return [trace]
        parts[rank].append(event)
    parts.pop(-1, None)
    if len(parts) < 2:
        return [trace]
    return [
        _decoded(raw, header, parts[rank], rank, len(parts)) for rank in sorted(parts)
    ]  # fmt: skip


def _decoded(
    raw: RawFile, header: dict[str, Any], events: list[Any], rank: int, size: int
) -> Trace:
    content = msgspec.json.encode({**header, "traceEvents": events})
    given = np.frombuffer(content, dtype=np.uint8).copy()
    trace = decode(replace(raw, content=given))
    return replace(trace, rank=rank, world_size=max(trace.world_size, size))


def _stated_rank(event: dict[str, Any]) -> int | None:
    args = event.get("args")
    rank = args.get("rank") if isinstance(args, dict) else None
    return rank if isinstance(rank, int) and rank >= 0 else None


def _process(event: dict[str, Any]) -> Hashable:
    pid = event.get("pid")
    return pid if isinstance(pid, (int, str)) else None


def _rank_of_processes(events: Sequence[dict[str, Any]]) -> dict[Hashable, int]:
    """Return the rank of each process id, of hosts and of devices."""
    hosts = {_process(event) for event in events if event.get("cat") in _HOST}
    texts = {host: _text_around(host) for host in hosts}
    if None not in texts.values() and len(set(texts.values())) == len(hosts):
        order = {text: rank for rank, text in enumerate(sorted(map(str, texts.values())))}
        pids = {_process(event) for event in events}
        return {pid: order[text] for pid in pids if (text := _text_around(pid)) in order}
    ordered = sorted(hosts, key=lambda pid: (isinstance(pid, str), pid))
    rank_of = {pid: rank for rank, pid in enumerate(ordered)}
    for pid, counts in _launches(events, hosts).items():
        most, times = counts.most_common(1)[0]
        if times > _CLEAR * counts.total():
            rank_of[pid] = rank_of[most]
    return rank_of


def _launches(
    events: Sequence[dict[str, Any]], hosts: set[Hashable]
) -> dict[Hashable, Counter[Hashable]]:
    """Count which host launched the work of each device.

    Correlation ids are of a process, and may be equal in several: the launch is the last before.
    """
    callers: dict[int, list[tuple[float, Hashable]]] = defaultdict(list)
    work = []
    for event in events:
        time = event.get("ts")
        if (number := _correlation(event)) is None or not isinstance(time, (int, float)):
            continue
        if (pid := _process(event)) in hosts:
            callers[number].append((time, pid))
        elif event.get("cat") in _DEVICE:
            work.append((number, time, pid))
    launched: dict[Hashable, Counter[Hashable]] = defaultdict(Counter)
    for number, time, pid in work:
        before = [(call, host) for call, host in callers[number] if call <= time]
        if before:
            launched[pid][max(before, key=lambda one: one[0])[1]] += 1
    return launched


def _correlation(event: dict[str, Any]) -> int | None:
    args = event.get("args")
    number = args.get("correlation") if isinstance(args, dict) else None
    return number if isinstance(number, int) and number > 0 else None


def _text_around(pid: Hashable) -> str | None:
    """Return a process id without its last number, if it is a text with more than that."""
    if not isinstance(pid, str):
        return None
    return _NUMBER.sub("", pid, count=1).strip() or None
