"""Read XPlane files, which the profilers of JAX, TensorFlow and torch-xla write.

A file is an XSpace of protobuf (numbers of fields are those of XLA's xplane.proto): planes of the
host and of each device, which have lines of events, whose names and statistics refer to tables of
the plane. Events become those of a Kineto trace.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache

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
    is_step_mark,
    json_key,
    step_mark,
)
from nadi.files.messages import ProtobufMessages, plain_fields
from nadi.files.remedies import XPLANE
from nadi.kernels.strings import intern_spans
from nadi.trace.arrays import Bools, Ints
from nadi.trace.issues import IssueLog
from nadi.trace.rows import number_rows
from nadi.trace.trace import Trace

_PLANES, _NAME, _LINES, _EVENTS, _EVENT_TABLE, _STAT_TABLE, _STATS = 1, 2, 3, 4, 4, 5, 6
_DEVICE = re.compile(r"/device:[A-Za-z]+:(\d{1,9})$")
_STREAM = re.compile(r"Stream #(\d{1,9})")
_STEP_LINE, _STEP_NUMBER = "Steps", "step_num"
_STEPS = "user_annotation"
_KINDS_OF_LINES = ("gpu_user_annotation", "kernel", _STEPS)  # of devices
_NUMBER = re.compile(r"\d{1,18}")
_WORK_LINES = ("XLA Ops", "Async XLA Ops")  # of devices without streams, such as TPUs
_HEAD = re.compile(rb"/(?:host|device):[A-Za-z]|Task Environment")
_HEAD_SIZE = 4096  # bytes within which the name of the first plane stands
_OWN_NAMES = {"correlation_id": "correlation"}
_DETAIL = re.compile(r"(grid|block):(\d+),(\d+),(\d+)")
_COPIED = re.compile(r"\bsize:(\d{1,18})\b")
_CALL = re.compile(r"(hip|cuda|cu|nccl|rccl)[A-Z]")
_PROFILER = re.compile(r"\$profiler\.py:\d+ (?:start|stop)_trace$")
_AT_ONCE = 1 << 15  # events: what is needed meanwhile grows with them
_LATEST = 2**62


def looks_like(head: bytes) -> bool:
    """Return whether a file begins as an XSpace does: with a plane that has the name of one."""
    return head[:1] == b"\n" and _HEAD.search(head[:_HEAD_SIZE]) is not None


def decode(raw: RawFile) -> Trace:
    """Read an XPlane file.

    - Returns: Nodes with their times in ns since 1970: work of devices, calls that launch it, each
      within the operation of XLA that it is of, annotations and functions of Python.
    - Raises FormatError if the file is broken, or has no plane with events.
    """
    return decode_events(raw, recording(raw), XPLANE)


def recording(raw: RawFile) -> ForeignRecording:
    """Return the events, and what the file does not hold.

    - Raises FormatError as :func:`decode`, also while events are looked at.
    """
    log = IssueLog()
    _, found = ProtobufMessages.whole(raw.name, raw.content).inner(_PLANES)
    planes = [_Plane(found.rows(slice(row, row + 1))) for row in range(found.at.size)]
    base = next((one.begin for one in planes if one.begin > 0), 0)
    return ForeignRecording(_parts(raw, planes, log), log, base)


def _parts(raw: RawFile, planes: Sequence[_Plane], log: IssueLog) -> Iterator[ForeignEvents]:
    has_marks = any(plane.marks_steps() for plane in planes)
    is_empty = True
    for plane in planes:
        for part in plane.parts(log, has_marks):
            is_empty = False
            yield part
    if is_empty:
        raise FormatError(
            raw.name, "an XPlane file without events of hosts or devices",
            "profile while the program computes",
        )  # fmt: skip
    log.add(
        "xplane.not-held", "info", 1,
        "the file has no rank, no groups, sizes of collectives, nor tensors",
        "ranks are those of the files' names",
    )  # fmt: skip


class _Plane:
    """A plane: its name, its tables, and its lines."""

    def __init__(self, plane: ProtobufMessages) -> None:
        self.plane = plane
        self.name = _text(plane, _NAME)
        self.stats = self._table(_STAT_TABLE)
        found = _DEVICE.search(self.name)
        self.device = int(found[1]) if found else -1
        self.begin = self._begin()

    def _table(self, number: int) -> dict[int, str]:
        """Return the names of a table by id; of events the short one where there are two."""
        _, entries = self.plane.inner(number)
        key, value = entries.fields(1, 2)
        values = entries.inside(value)
        name, shown = values.fields(2, 4)
        names, shorts = values.texts(name), values.texts(shown)
        if number == _STAT_TABLE:
            shorts = [b""] * len(names)
        return {one: (short or name).decode(errors="replace") for one, name, short in zip(
            key.numbers(0).tolist(), names, shorts, strict=True)}  # fmt: skip

    def _begin(self) -> int:
        """Return when the profile began, in ns since 1970; 0 if the plane does not say."""
        _, stats = self.plane.inner(_STATS)
        key, number = stats.fields(1, 3)
        for one, value in zip(key.numbers().tolist(), number.numbers(0).tolist(), strict=True):
            if self.stats.get(one) == "profile_start_time" and 0 < value < _LATEST:
                return int(value)
        return 0

    def marks_steps(self) -> bool:
        """Return whether the program marked steps: ``StepTraceAnnotation`` states their numbers."""
        return self.device < 0 and _STEP_NUMBER in self.stats.values()

    def parts(self, log: IssueLog, has_marks: bool) -> Iterator[ForeignEvents]:
        """Return the events of the plane, and record those that are not read.

        ``has_marks`` says whether the program marked steps: else steps are those of devices.
        """
        _, lines = self.plane.inner(_LINES)
        owner, events = lines.inner(_EVENTS)
        if not events.at.size:
            return
        if self.device < 0 and not self.name.startswith("/host:CPU"):
            log.add(
                "xplane.not-read", "info", events.at.size, f"events of the plane {self.name}",
                "they are not read",
            )  # fmt: skip
            return
        number, title, time = lines.fields(1, 2, 3)
        ids, began = number.numbers(0), time.numbers(0)
        titles = [one.decode(errors="replace") for one in lines.texts(title)]
        places = self._places(titles, ids, has_marks)
        kind, offset, duration, times = events.fields(1, 2, 3, 5)
        is_sum = times.is_known() & ~offset.is_known()
        log.add(
            "xplane.sums", "info", int(is_sum.sum()), "events are sums of many",
            "they are left out",
        )  # fmt: skip
        start = began[owner] + _rounded(offset.numbers(0))
        length = _rounded(duration.numbers(0))
        rows = np.flatnonzero(
            ~is_sum & are_usable(start, length, f"events of {self.name}", "xplane", log)
        )
        names = _Names(self._table(_EVENT_TABLE), kind.numbers(0))
        for low in range(0, rows.size, _AT_ONCE):
            some = rows[low : low + _AT_ONCE]
            stats = _Stats(events.rows(some), self.stats)
            yield from self._events(
                names, owner[some], some, places, start[some], length[some], stats
            )

    def _places(self, titles: list[str], ids: Ints, has_marks: bool) -> tuple[Ints, Texts]:
        """Return the thread or stream of each line, and the category of its events, or empty."""
        streams = [_STREAM.search(title) for title in titles]
        numbers = zip(streams, ids.tolist(), strict=True)
        tid = np.array([int(found[1]) if found else one for found, one in numbers], dtype=np.int64)
        if self.device < 0:
            return tid, Texts(np.zeros(ids.size, dtype=np.int32), ("",))
        works = streams if any(streams) else [title in _WORK_LINES for title in titles]
        kinds = [1 if work else 2 if title == _STEP_LINE and not has_marks else 0
                 for work, title in zip(works, titles, strict=True)]  # fmt: skip
        return tid, Texts(np.array(kinds, dtype=np.int32), _KINDS_OF_LINES)

    def _events(
        self, names: _Names, line: Ints, rows: Ints, places: tuple[Ints, Texts], start: Ints,
        length: Ints, stats: _Stats,
    ) -> Iterator[ForeignEvents]:  # fmt: skip
        tid, of_line = places
        kinds = Texts(of_line.codes[line], of_line.unique)
        name = self._with_marks(names.of(rows), kinds, stats)
        is_call = stats.has("correlation_id")
        # categories are told by those of lines and by names: each pair is looked at once
        codes, first = number_rows(
            [one.astype(np.int64) for one in (kinds.codes, name.codes, is_call)]
        )
        words = tuple(
            _category(
                kinds.unique[kinds.codes[row]], name.unique[name.codes[row]], bool(is_call[row])
            )
            for row in first.tolist()
        )
        pid = np.full(rows.size, max(self.device, 0), dtype=np.int64)
        if self.device < 0:
            operations, at = stats.texts("hlo_op")
            launched = at[is_call[at]]
            if launched.size:
                yield ForeignEvents(
                    category=Texts(np.zeros(launched.size, dtype=np.int32), ("cpu_op",)),
                    name=Texts(operations.codes[is_call[at]], operations.unique),
                    pid=pid[launched], tid=tid[line[launched]], start=start[launched],
                    duration=length[launched],
                )  # fmt: skip
        yield ForeignEvents(
            category=Texts(codes.astype(np.int32), words), name=name, pid=pid,
            tid=tid[line], start=start, duration=length, members=stats.arguments(),
        )  # fmt: skip

    def _with_marks(self, name: Texts, of_line: Texts, stats: _Stats) -> Texts:
        """Return the names of events; those of steps are marks, by the numbers that they state."""
        number = stats.numbers(_STEP_NUMBER)
        if self.device >= 0:
            stated = name.numbers(lambda text: int(text) if _NUMBER.fullmatch(text) else -1)
            is_step = of_line.numbers(lambda kind: kind == _STEPS)
            number = np.where(is_step, stated, -1)
        marked = np.flatnonzero(number >= 0)
        if not marked.size:
            return name
        known, which = np.unique(number[marked], return_inverse=True)
        codes = name.codes.copy()
        codes[marked] = len(name.unique) + which
        return Texts(codes, (*name.unique, *map(step_mark, known.tolist())))


def _text(message: ProtobufMessages, number: int) -> str:
    (found,) = message.fields(number)
    return message.texts(found)[0].decode(errors="replace")


def _rounded(picoseconds: Ints) -> Ints:
    """Return picoseconds as ns, the nearest."""
    return (picoseconds + 500) // 1000


@lru_cache(1 << 14)
def _category(of_line: str, name: str, is_call: bool) -> str:
    """Return Kineto's category of an event, by the one of its line."""
    if of_line:
        lowered = name.lower()
        is_work = of_line == "kernel"
        if is_work and lowered.startswith(("memcpy", "memset")):
            return f"gpu_{lowered[:6]}"
        return of_line
    if is_call and _CALL.match(name):
        return "cuda_driver" if re.match(r"cu[A-Z]", name) else "cuda_runtime"
    if _PROFILER.match(name):  # they enclose all that was recorded
        return "overhead"
    if is_step_mark(name):
        return _STEPS
    return "python_function" if name.startswith("$") else "cpu_op"


class _Names:
    """Names of events by the ids of their kinds."""

    def __init__(self, table: dict[int, str], kind: Ints) -> None:
        codes, first = number_rows([kind])
        self._names = tuple(table.get(one, "") or "unnamed" for one in kind[first].tolist())
        self._codes = codes.astype(np.int32)

    def of(self, rows: Ints) -> Texts:
        """Return the names of some events."""
        return Texts(self._codes[rows], self._names)


class _Stats:
    """The statistics of events: each has a key and one value, of one of several types."""

    def __init__(self, events: ProtobufMessages, names: dict[int, str]) -> None:
        self.count, self.names = events.at.size, names
        self.owner, self.found = events.inner(_EVENTS)
        key, self.unsigned, self.signed, self.ref = self.found.fields(1, 3, 4, 7)
        self.key = key.numbers(0)

    def _rows(self, name: str) -> Ints:
        keys = [key for key, text in self.names.items() if text == name]
        return np.flatnonzero(np.isin(self.key, keys))

    def has(self, name: str) -> Bools:
        """Return which events have a statistic; bool, shape (events,)."""
        has = np.zeros(self.count, dtype=np.bool_)
        has[self.owner[self._rows(name)]] = True
        return has

    def numbers(self, name: str) -> Ints:
        """Return a statistic that is a number; int64, shape (events,), -1 where there is none."""
        rows, found = self._rows(name), np.full(self.count, -1)
        found[self.owner[rows]] = np.maximum(self.unsigned.value, self.signed.value)[rows]
        return found

    def texts(self, name: str) -> tuple[Texts, Ints]:
        """Return the texts of a statistic that refer to the plane's table, and their events."""
        rows = self._rows(name)
        rows = rows[self.ref.end[rows] == -1]
        refs = self.ref.value[rows]
        codes, first = number_rows([refs])
        words = tuple(self.names.get(one, "") for one in refs[first].tolist())
        return Texts(codes.astype(np.int32), words), self.owner[rows]

    def arguments(self) -> EventArguments:
        """Return all statistics as arguments; of equal ones the text is made once."""
        is_number = (self.signed.end == -1) | (
            (self.unsigned.end == -1) & (self.unsigned.value >= 0)
        )
        value = np.where(self.signed.end == -1, self.signed.value, self.unsigned.value)
        text, texts = np.zeros(self.key.size, dtype=np.int64), list[str]()
        keys = self.key[is_number]
        text[is_number], first = number_rows([keys])
        texts += [json_key(self._key(one)) for one in keys[first].tolist()]
        is_ref = ~is_number & (self.ref.end == -1)
        pairs = self.key[is_ref], self.ref.value[is_ref]
        codes, first = number_rows(pairs)
        text[is_ref] = codes + len(texts)
        texts += [_member(self._key(one), self.names.get(ref, ""))
                  for one, ref in zip(*(column[first].tolist() for column in pairs), strict=True)
                  ]  # fmt: skip
        rows = np.flatnonzero(~is_number & ~is_ref)
        at = self.found.at[rows]
        codes, first = intern_spans(self.found.text, at, self.found.end[rows] - at)
        text[rows] = codes.astype(np.int64) + len(texts)
        texts += [self._other(row) for row in rows[first].tolist()]
        return EventArguments(self.owner, text, value, is_number, texts)

    def _key(self, key: int) -> str:
        name = self.names.get(key, "") or f"statistic {key}"
        return _OWN_NAMES.get(name, name)

    def _other(self, row: int) -> str:
        """Return a statistic that is a text, a real number or bytes."""
        at, end = int(self.found.at[row]), int(self.found.end[row])
        try:
            said = dict(plain_fields(self.found.text[at:end].data))
        except (IndexError, ValueError):
            raise self.found.error(at) from None
        key, real, written = self._key(int(self.key[row])), said.get(2), said.get(5)
        if isinstance(real, memoryview):
            value = struct.unpack("<d", real)[0] if len(real) == 8 else None
            return json_key(key) + msgspec.json.encode(value).decode()
        if isinstance(written, memoryview):
            return _member(key, bytes(written).decode(errors="replace"))
        unsigned = said.get(3)  # beyond 63 bits
        return json_key(key) + (str(unsigned) if isinstance(unsigned, int) else "null")


def _member(key: str, value: str) -> str:
    """Return a text as a member of a JSON object, and what it says in Kineto's words."""
    more = [f'"{name}":[{x},{y},{z}]' for name, x, y, z in _DETAIL.findall(value)]
    if key == "memcpy_details" and (size := _COPIED.search(value)) is not None:
        more.append(f'"bytes":{size[1]}')
    return ",".join([json_key(key) + msgspec.json.encode(value).decode(), *more])
