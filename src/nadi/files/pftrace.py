"""Read what PyTorch's profiler writes as ``.pftrace``, as events that are those of a Kineto trace.

It is a Perfetto trace: packets of protobuf. Host events are slices, each a packet where it begins
and one where it ends; work of devices is in packets of its own, with its duration. Numbers of
fields are those of Perfetto's protos/perfetto/trace, and of PyTorch's extension of it.
"""

import re
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from nadi.errors import FormatError
from nadi.files.files import RawFile
from nadi.files.json_file import Texts
from nadi.files.kineto.foreign_events import (
    EventArguments,
    ForeignEvents,
    ForeignRecording,
    are_usable,
    decode_events,
    json_key,
)
from nadi.files.message_kernels import read_decimals
from nadi.files.messages import ProtobufMessages, plain_fields
from nadi.kernels.strings import intern_spans
from nadi.trace.arrays import Bools, Ints
from nadi.trace.issues import IssueLog
from nadi.trace.rows import number_rows
from nadi.trace.trace import Trace

_PACKET = 1
_CLOCKS, _TIME, _SLICE, _INTERNED, _COUNTER, _STAGE, _TRACK = 6, 8, 11, 12, 52, 53, 60
_BOOT, _WALL = 6, 1  # clocks
_BEGIN, _END = 1, 2  # of slices
_CATEGORIES, _NAMES, _SPECIFICATIONS, _KERNELS, _ARGUMENTS = 1, 2, 24, 1000, 1001  # interned
_CATEGORY_OF_STAGE = {
    "Kernel": "kernel", "Memcpy": "gpu_memcpy", "Memset": "gpu_memset",
    "Annotation": "gpu_user_annotation", "EventRecord": "graph_event_node",
    "HostNode": "graph_host_node",
}  # fmt: skip
_OWN_NAMES = {"device id": "device", "stream id": "stream", "context id": "context"}
_LAUNCH = {"registers_per_thread": "registers per thread",
           "shared_mem_dynamic": "dynamic shared memory"}  # fmt: skip
_NO_NUMBERS = ("Process Group Name", "Process Group Description", "process_name")
_LANE = re.compile(r"\[(\d{1,18})\]")
_REAL = re.compile(r"-?\d{1,17}\.\d{1,17}(e[+-]?\d{1,3})?")
_AT_ONCE = 1 << 15  # events: what is needed meanwhile grows with them
_DEEPEST = 64
_MOST_KEPT = 1 << 14  # texts of pieces of a file that are alike in the next
_LATEST = 2**62


def looks_like(head: bytes) -> bool:
    """Return whether a file begins as PyTorch does: with a clock that has a time, and a process."""
    try:
        packets = (value for number, value in plain_fields(memoryview(head)) if number == _PACKET)
        clock, process = ({number for number, _ in plain_fields(next(packets))}  # type: ignore[arg-type]
                          for _ in range(2))  # fmt: skip
    except (IndexError, ValueError, TypeError, StopIteration, RuntimeError):
        return False
    return {_CLOCKS, _TIME} <= clock and _TRACK in process


def decode(raw: RawFile) -> Trace:
    """Read a ``.pftrace`` of PyTorch's profiler.

    - Returns: As the same recording's Kineto trace gives it, but for what the file does not hold.
    - Raises FormatError if the file is broken, or has no events of PyTorch's profiler.
    """
    return decode_events(raw, recording(raw), "PyTorch's Perfetto trace")


def recording(raw: RawFile) -> ForeignRecording:
    """Return the events, and what the file does not hold.

    - Raises FormatError as :func:`decode`, also while events are looked at.
    """
    log = IssueLog()
    _, packets = ProtobufMessages.whole(raw.name, raw.content).inner(_PACKET)
    time, clock, piece, interned, counter, stage, track = packets.fields(
        _TIME, _CLOCKS, _SLICE, _INTERNED, _COUNTER, _STAGE, _TRACK
    )
    texts = _Texts(packets.inside(interned).rows(interned.is_known()))
    if not (piece.is_known() | stage.is_known()).any():
        raise FormatError(
            raw.name, "a Perfetto trace without events of PyTorch's profiler",
            "nadi waits reads the switches of threads in others, beside a recording",
        )  # fmt: skip
    base, offset = _base_time(packets.inside(clock).rows(clock.is_known()))
    tracks = _Tracks(packets.inside(track).rows(track.is_known()))
    times = time.numbers() + offset - base
    of_slices, of_stages = piece.is_known(), stage.is_known()
    slices = _slices(packets.inside(piece).rows(of_slices), times[of_slices], tracks, texts, log)
    stages = _stages(packets.inside(stage).rows(of_stages), times[of_stages], texts, log)
    parts = _noted(chain(slices, stages), int(counter.is_known().sum()), log)
    return ForeignRecording(parts, log, base)


def _noted(
    parts: Iterable[ForeignEvents], num_samples: int, log: IssueLog
) -> Iterator[ForeignEvents]:
    """Give events on, and record after them what is not among them."""
    yield from parts
    log.add(
        "pftrace.counters", "info", num_samples,
        "samples of the device's counters", "they are not read; ui.perfetto.dev shows them",
    )  # fmt: skip
    log.add(
        "pftrace.not-held", "info", 1,
        "the file has no rank, process groups, nor arrows from forward to backward",
        "ranks are those of the files' names; torch.profiler's JSON has all of it",
    )  # fmt: skip


def _base_time(clocks: ProtobufMessages) -> tuple[int, int]:
    """Return the base time of the file, and what its times lack to be ns since 1970."""
    owner, shown = clocks.inner(1)
    which, at = (one.numbers(0) for one in shown.fields(1, 2))
    first = owner == 0
    boot, wall = (at[first & (which == clock)] for clock in (_BOOT, _WALL))
    if not (boot.size and wall.size and 0 <= wall[0] < _LATEST and 0 <= boot[0] < _LATEST):
        return 0, 0
    return int(wall[0]), int(wall[0] - boot[0])


class _Texts:
    """Texts that packets refer to by their numbers: by table, then by number."""

    def __init__(self, interned: ProtobufMessages) -> None:
        self.tables = {
            number: self._table(interned, number)
            for number in (_CATEGORIES, _NAMES, _SPECIFICATIONS, _KERNELS, _ARGUMENTS)
        }

    def _table(self, interned: ProtobufMessages, number: int) -> dict[int, str]:
        _, entries = interned.inner(number)
        ids, name = entries.fields(1, 3 if number == _KERNELS else 2)
        table: dict[int, str] = {}
        for key, value in zip(ids.numbers(0).tolist(), entries.texts(name), strict=True):
            text = value.decode(errors="replace")
            if table.setdefault(key, text) != text:
                raise FormatError(
                    interned.name, f"text {key} is stated twice, as if recordings were joined",
                    "give a file for each rank",
                )  # fmt: skip
        return table

    def find(self, number: int, ids: Ints, otherwise: str = "") -> Texts:
        """Return the texts of some ids; ``otherwise`` for those that the file does not state."""
        codes, first = number_rows([ids])
        table = self.tables[number]
        names = tuple(table.get(key, otherwise) for key in ids[first].tolist())
        return Texts(codes.astype(np.int32), names)


class _Tracks:
    """Where slices are: process, thread, and a category that slices of some tracks do not state."""

    def __init__(self, found: ProtobufMessages) -> None:
        uuid, parent, process, thread = found.fields(1, 5, 3, 4)
        pid, tid = (found.inside(thread).fields(1, 2)[k].numbers(-1) for k in range(2))
        own_pid, name = found.inside(process).fields(1, 6)
        names = found.inside(process).texts(name)
        of_process = dict(zip(uuid.numbers().tolist(), names, strict=True))
        titles = [of_process.get(above) or own
                  for above, own in zip(parent.numbers().tolist(), names, strict=True)]  # fmt: skip
        category = ["cuda_sync" if title.startswith(b"GPU ") else "overhead"
                    if title == b"Overhead" else "" for title in titles]  # fmt: skip
        self.uuid = uuid.numbers()
        self.pid = np.append(np.where(thread.is_known(), pid, own_pid.numbers()), -1)
        self.tid = np.append(tid, -1)
        self.category = [*category, ""]

    def rows(self, uuid: Ints) -> Ints:
        """Return the row of each uuid; the last one for those that the file does not describe."""
        order = np.argsort(self.uuid, kind="stable")
        place = np.searchsorted(self.uuid, uuid, sorter=order)
        found = np.append(order, self.uuid.size)[place]
        return np.where(np.append(self.uuid, -1)[found] == uuid, found, self.uuid.size)


def _slices(
    found: ProtobufMessages, time: Ints, tracks: _Tracks, texts: _Texts, log: IssueLog
) -> Iterator[ForeignEvents]:
    """Return the slices of tracks, and record those that cannot be used."""
    kind, track, name, category = (one.numbers(0) for one in found.fields(9, 11, 10, 3))
    begin, end = _paired(kind, track, time)
    if begin.size < int((kind == _BEGIN).sum()):
        raise FormatError(
            found.name, f"{int((kind == _BEGIN).sum()) - begin.size:,} slices have no end",
            "check whether the file was cut off, or record it again",
        )  # fmt: skip
    log.add(
        "pftrace.other-events", "info", int(((kind != _BEGIN) & (kind != _END)).sum()),
        "instants and counters of tracks", "they are left out",
    )  # fmt: skip
    start, duration = time[begin], time[end] - time[begin]
    good = are_usable(start, duration, "slices", "pftrace", log)
    begin, start, duration = begin[good], start[good], duration[good]
    place = tracks.rows(track[begin])
    names = texts.find(_NAMES, name[begin], "unnamed")
    # numbers of categories from 1; where none is stated, that of the track below 0
    stated = np.where(category[begin] > 0, category[begin], -1 - place)
    codes, first = number_rows([stated])
    table = texts.tables[_CATEGORIES]
    words = tuple(table.get(one, "") if one > 0 else tracks.category[-1 - one]
                  for one in stated[first].tolist())  # fmt: skip
    for low in range(0, begin.size, _AT_ONCE):
        some = slice(low, low + _AT_ONCE)
        yield ForeignEvents(
            category=Texts(codes[some].astype(np.int32), words),
            name=Texts(names.codes[some], names.unique),
            pid=tracks.pid[place[some]], tid=tracks.tid[place[some]],
            start=start[some], duration=duration[some],
            members=_annotations(found.rows(begin[some])),
        )  # fmt: skip


def _paired(kind: Ints, track: Ints, time: Ints) -> tuple[Ints, Ints]:
    """Return where slices begin and where each ends, in order of their begins.

    PyTorch writes begins of some slices and then their ends in the same order, which tells slices
    that touch from nested ones, as times do not. Slices in order of time are paired by nesting.
    """
    rows = np.flatnonzero((kind == _BEGIN) | (kind == _END))
    is_begin = kind[rows] == _BEGIN
    first = np.flatnonzero(np.diff(is_begin, prepend=~is_begin[:1]))
    size = np.diff(first, append=rows.size)
    is_like_pytorch = first.size % 2 == 0 and is_begin[:1].all() and (size[::2] == size[1::2]).all()
    if is_like_pytorch and (np.diff(time[rows]) < 0).any():
        begin, end = rows[is_begin], rows[~is_begin]
        if (track[begin] == track[end]).all() and (time[begin] <= time[end]).all():
            return begin, end
    order = np.lexsort((time[rows], track[rows]))
    rows, is_begin = rows[order], is_begin[order]
    # an end has the level of the begin that it belongs to: the next of this level on the track
    level = np.cumsum(np.where(is_begin, 1, -1)) + ~is_begin
    order = np.lexsort((level, track[rows]))
    rows, is_begin, level = rows[order], is_begin[order], level[order]
    same = (level[1:] == level[:-1]) & (track[rows[1:]] == track[rows[:-1]])
    pair = np.flatnonzero(same & is_begin[:-1] & ~is_begin[1:])
    begin, end = rows[pair], rows[pair + 1]
    in_order = np.argsort(begin)
    return begin[in_order], end[in_order]


def _annotations(slices: ProtobufMessages) -> EventArguments:
    """Return the arguments of slices."""
    owner, found = slices.inner(4)
    name, unsigned, signed = found.fields(10, 3, 4)
    value = np.where(signed.end == -1, signed.value, unsigned.value)
    is_number = (signed.end == -1) | ((unsigned.end == -1) & (unsigned.value >= 0))
    return _members(owner, found, name.spans(), value, is_number, _annotation)


def _members(
    owner: Ints, found: ProtobufMessages, keys: tuple[Ints, Ints], value: Ints, has_value: Bools,
    written: Callable[[bytes], str],
) -> EventArguments:  # fmt: skip
    """Return members: numbers by their keys, all others as ``written`` makes them, each once."""
    text = np.zeros(owner.size, dtype=np.int64)
    texts: list[str] = []
    others = found.at, found.end - found.at
    for rows, (at, length), made in (
        (np.flatnonzero(has_value), keys, _key), (np.flatnonzero(~has_value), others, written),
    ):  # fmt: skip
        codes, first = intern_spans(found.text, at[rows], length[rows])
        spans = zip(at[rows][first].tolist(), length[rows][first].tolist(), strict=True)
        text[rows] = codes.astype(np.int64) + len(texts)
        for begin, size in spans:
            try:
                texts.append(made(found.text[begin : begin + size].tobytes()))
            except (IndexError, ValueError, struct.error):
                raise found.error(begin) from None
    return EventArguments(owner, text, value, has_value, texts)


@lru_cache(_MOST_KEPT)
def _key(name: bytes) -> str:
    text = name.decode(errors="replace")
    return json_key(_OWN_NAMES.get(text, text))


@lru_cache(_MOST_KEPT)
def _annotation(message: bytes) -> str:
    """Return an annotation of a slice as a member of a JSON object."""
    name, value = _named_value(memoryview(message), 0)
    return json_key(name) + msgspec.json.encode(value).decode()


def _named_value(message: memoryview, depth: int) -> tuple[str, Any]:
    """Return the name and the value of an annotation, which may hold others."""
    name, parts = "", list[tuple[str, Any]]()
    value: Any = None
    is_list = True
    for number, content in plain_fields(message):
        if isinstance(content, int):
            signed = content - (1 << 64) if number == 4 and content >> 63 else content
            value = bool(content) if number == 2 else signed
        elif number in (6, 10):
            text = bytes(content).decode(errors="replace")
            name, value = (text, value) if number == 10 else (name, text)
        elif number == 5:
            (value,) = struct.unpack("<d", content)
        elif number in (11, 12) and depth < _DEEPEST:
            is_list = number == 12
            parts.append(_named_value(content, depth + 1))
    if value is None:
        return name, [one for _, one in parts] if is_list else dict(parts)
    return name, value


def _stages(
    found: ProtobufMessages, time: Ints, texts: _Texts, log: IssueLog
) -> Iterator[ForeignEvents]:
    """Return the work of devices, and record what cannot be used."""
    duration, device, queue, stage, kernel, name, waits = (
        one.numbers(0) for one in found.fields(2, 11, 13, 14, 19, 20, 18)
    )
    log.add(
        "pftrace.graph-edges", "info", int((waits > 0).sum()),
        "nodes of graphs state what they wait for", "it is not read",
    )  # fmt: skip
    rows = np.flatnonzero(are_usable(time, duration, "work of devices", "pftrace", log))
    stages = texts.find(_SPECIFICATIONS, stage)
    category = Texts(stages.codes, tuple(_CATEGORY_OF_STAGE.get(one, one) for one in stages.unique))
    lanes = texts.find(_SPECIFICATIONS, queue)
    lane = lanes.numbers(lambda text: int(one[1]) if (one := _LANE.match(text)) else -1)
    names = _names_of_stages(texts, name, kernel, stages)
    for low in range(0, rows.size, _AT_ONCE):
        some = rows[low : low + _AT_ONCE]
        yield ForeignEvents(
            category=Texts(category.codes[some], category.unique),
            name=Texts(names.codes[some], names.unique),
            pid=device[some], tid=lane[some], start=time[some], duration=duration[some],
            members=_work(found.rows(some), lane[some], texts),
        )  # fmt: skip


def _names_of_stages(texts: _Texts, name: Ints, kernel: Ints, stages: Texts) -> Texts:
    """Return the name of each stage: its own, that of its kernel, or what kind it is."""
    known = np.isin(name, list(texts.tables[_NAMES]))
    of_kernel = ~known & np.isin(kernel, list(texts.tables[_KERNELS]))
    parts = (
        (known, texts.find(_NAMES, name)), (of_kernel, texts.find(_KERNELS, kernel)),
        (~known & ~of_kernel, stages),
    )  # fmt: skip
    codes, unique = np.zeros(name.size, dtype=np.int32), list[str]()
    for chosen, found in parts:
        codes[chosen] = found.codes[chosen] + len(unique)
        unique += found.unique
    return Texts(codes, tuple(one or "unnamed" for one in unique))


def _work(stages: ProtobufMessages, lane: Ints, texts: _Texts) -> EventArguments:
    """Return the arguments of work on devices."""
    owner, extra = stages.inner(6)
    name, stated = extra.fields(1, 2)
    at, length = stated.spans()
    value, is_number = np.empty(at.size, dtype=np.int64), np.empty(at.size, dtype=np.bool_)
    read_decimals(extra.text, at, length, value, is_number)
    codes, first = intern_spans(extra.text, *name.spans())
    keys = [one.decode(errors="replace") for one in extra.rows(first).texts(
        extra.rows(first).fields(1)[0])]  # fmt: skip
    is_number &= ~np.array([key in _NO_NUMBERS for key in keys], dtype=np.bool_)[codes]
    parts = [_members(owner, extra, name.spans(), value, is_number, _extra)]
    is_stream = np.array([key == "stream id" for key in keys], dtype=np.bool_)[codes]
    moved = np.flatnonzero(is_stream & is_number & (lane[owner] >= 0) & (value != lane[owner]))
    if moved.size:  # PyTorch draws it elsewhere, and says so in its JSON
        parts[0].text[moved] = len(parts[0].texts)
        parts[0].texts.append(json_key("original_stream"))
        number = np.zeros(moved.size, dtype=np.int64)
        drawn = lane[owner[moved]]
        parts.append(EventArguments(owner[moved], number, drawn, number == 0, [json_key("stream")]))
    (launch,) = stages.fields(21)
    of_launch = np.flatnonzero(launch.end >= 0)
    no_keys = np.zeros(of_launch.size, dtype=np.int64)
    parts.append(_members(
        of_launch, stages.inside(launch).rows(of_launch), (no_keys, no_keys), no_keys,
        no_keys > 0, lambda message: _launch(message, texts.tables[_ARGUMENTS]),
    ))  # fmt: skip
    return _joined(parts)


def _joined(parts: list[EventArguments]) -> EventArguments:
    """Return the members of several parts by their owners."""
    texts: list[str] = []
    numbers = []
    for part in parts:
        numbers.append(part.text + len(texts))
        texts += part.texts
    owner = np.concatenate([part.owner for part in parts])
    order = np.argsort(owner, kind="stable")
    value, has_value = (np.concatenate(columns)[order] for columns in zip(
        *((part.value, part.has_value) for part in parts), strict=True))  # fmt: skip
    return EventArguments(owner[order], np.concatenate(numbers)[order], value, has_value, texts)


@lru_cache(_MOST_KEPT)
def _extra(message: bytes) -> str:
    """Return a further value of work as a member of a JSON object."""
    said = {number: bytes(value).decode(errors="replace")
            for number, value in plain_fields(memoryview(message))
            if not isinstance(value, int)}  # fmt: skip
    key, value = said.get(1, ""), said.get(2, "")
    is_real = key not in _NO_NUMBERS and _REAL.fullmatch(value)
    return json_key(_OWN_NAMES.get(key, key)) + (
        value if is_real else msgspec.json.encode(value).decode()
    )


def _launch(message: bytes, names: dict[int, str]) -> str:
    """Return grid and block of a kernel, and what it uses, as members of a JSON object."""
    members = []
    for number, content in plain_fields(memoryview(message)):
        if isinstance(content, int):
            continue
        said = {key: value for key, value in plain_fields(content) if isinstance(value, int)}
        if number in (1, 2):
            key = "grid" if number == 1 else "block"
            members.append(f'"{key}":[{said.get(1, 1)},{said.get(2, 1)},{said.get(3, 1)}]')
        elif number == 3 and (name := _LAUNCH.get(names.get(said.get(1, 0), ""))) is not None:
            members.append(f"{json_key(name)}{said.get(4, said.get(3, 0))}")
    return ",".join(members)
