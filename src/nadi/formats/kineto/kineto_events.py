"""The events of a Kineto trace as arrays: allocation, errors, and unparsed values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from nadi.errors import FormatError
from nadi.formats.files import RawFile
from nadi.formats.json_file import Texts, doubled, json_error, read_list, text_of, type_error
from nadi.formats.kineto import kineto_event_kernels as kernels
from nadi.formats.kineto.kineto_event_kernels import (
    ARG_KEYS,
    ARG_WORDS,
    COMM_COLUMNS,
    EVENT_KEYS,
    EVENT_WORDS,
    NUMBERS,
    STATE,
    Found,
    scan_events,
)
from nadi.kernels.json_tokens import MAX_DEPTH, failure_of, skip
from nadi.kernels.strings import make_words
from nadi.model.arrays import Bytes, Ints
from nadi.model.schema import CATEGORIES

__all__ = ["CATEGORY", "CATEGORY_WORDS", "Events", "scan", "time_error"]

CATEGORY = {
    "cpu_op": "operator",
    "user_annotation": "annotation",
    "python_function": "python",
    "hpu_op": "operator",
    "cuda_runtime": "runtime",  # of HIP too
    "mtia_runtime": "runtime",
    "xpu_runtime": "runtime",
    "privateuse1_runtime": "runtime",
    "cuda_driver": "driver",
    "xpu_driver": "driver",
    "privateuse1_driver": "driver",
    "kernel": "kernel",
    "mtia_ccp_events": "kernel",
    "gpu_memcpy": "memcpy",
    "gpu_memset": "memset",
    "cuda_sync": "sync",
    "gpu_user_annotation": "device_annotation",
}
CATEGORY_WORDS = make_words(
    {name: CATEGORIES.index(category) for name, category in CATEGORY.items()}
    | {
        "Trace": kernels.OF_THE_PROFILER,  # what it spent itself; no work of the program
        "overhead": kernels.OF_THE_PROFILER,
        "ac2g": kernels.REDUNDANT,  # from launch to work: the correlation ids say the same
        "fwdbwd": kernels.ARROW,
    }
)
_LIKELY_BYTES = 200  # of an event; where there are more events, room is made on the way
_LEAST_ROOM = 64
_TEXTS_ROOM = 1 << 12
_TYPES = {
    "ph": "`str`", "cat": "`str`", "name": "`str`", "pid": "`int | str`", "tid": "`int | str`",
    "args": "`object | null`",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Events:
    """The events of one list, in the order of the file.

    Attributes
    ----------
    parts
        Numbers and distinct names of the nodes, in one part of the list or in two consecutive
        parts.
    found
        Other results of the kernel; its numbers and texts are those of the first part.
    counts
        Number of events that are not nodes, by reason (names of ``kernels.STATE``).
    """

    parts: tuple[Found, ...]
    found: Found
    counts: dict[str, int]

    def column(self, name: str) -> Ints:
        """Return a column of the nodes; int64, shape (nodes,)."""
        rows = [part.numbers[NUMBERS[name]] for part in self.parts]
        return np.concatenate(rows) if len(rows) > 1 else rows[0]

    def names(self, text: Bytes) -> Texts:
        """Return the names of the nodes, for the bytes of the file."""
        number: dict[bytes, int] = {}
        codes = []
        for part in self.parts:
            spans = part.texts[:, 1:].tolist()
            of_text = [
                number.setdefault(text[at : at + length].tobytes(), len(number))
                for at, length in spans
            ]
            codes.append(np.array(of_text, dtype=np.int32)[part.numbers[NUMBERS["name"]]])
        return Texts(np.concatenate(codes), tuple(text_of(name) for name in number))

    def comm(self, name: str) -> Ints:
        """Return a column of the nodes that communicate; int64, shape (such nodes,)."""
        return self.found.comm[:, COMM_COLUMNS[name]]


class _Reader:
    """Reads the events of a list, growing its arrays as needed."""

    def __init__(self, raw: RawFile, at: int, size: int, is_first: bool) -> None:
        self._raw = raw
        self.at = at
        room = max(size // _LIKELY_BYTES, _LEAST_ROOM)
        self._found = Found(
            numbers=np.empty((len(NUMBERS), room), dtype=np.int64),
            comm=np.empty((max(room // 8, _LEAST_ROOM), len(COMM_COLUMNS)), dtype=np.int64),
            kept=np.empty((2 * room, 4), dtype=np.int64),
            keys=np.empty((max(room // 4, _LEAST_ROOM), 2), dtype=np.int64),
            unknown=np.empty((_LEAST_ROOM, 2), dtype=np.int64),
            texts=np.empty((_TEXTS_ROOM, 3), dtype=np.int64),
            slots=np.empty(0, dtype=np.int32),
        )
        self._work = np.empty(kernels.WORK_SIZE, dtype=np.int64)
        self._stack = np.empty(MAX_DEPTH, dtype=np.uint8)
        self._state = np.zeros(len(STATE), dtype=np.int64)
        self._state[STATE["event"]] = 0 if is_first else 1  # not after the opening bracket

    def read(self, stop: int) -> bool:
        """Read events that begin before ``stop``; return False if one is broken."""
        words = EVENT_WORDS, ARG_WORDS, CATEGORY_WORDS
        while True:
            slots = np.full(2 * len(self._found.texts), -1, dtype=np.int32)
            self._found = self._found._replace(slots=slots)
            self.end = int(
                scan_events(
                    self._raw.content, self.at, stop, *words, self._found, self._work,
                    self._stack, self._state,
                )
            )  # fmt: skip
            if self.end < 0:
                return False
            self.at = self.end
            if not (full := self.count("is_full")):
                return True
            name = Found._fields[full - 1]
            larger = doubled(self._found[full - 1], axis=1 if name == "numbers" else 0)
            self._found = self._found._replace(**{name: larger})

    def count(self, name: str) -> int:
        """Return a counter of the kernel's state."""
        return int(self._state[STATE[name]])

    def found(self) -> Found:
        """Return the results, cut to the part in use."""
        found = self._found
        return Found(
            numbers=found.numbers[:, : self.count("row")],
            comm=found.comm[: self.count("comm")],
            kept=found.kept[: self.count("kept")],
            keys=found.keys[: self.count("keys")],
            unknown=found.unknown[: self.count("unknown")],
            texts=found.texts[: self.count("texts")],
            slots=found.slots[:0],
        )

    def counts(self) -> dict[str, int]:
        """Return the counts of events that are not nodes."""
        return {name: self.count(name) for name in ("own", "incomplete", "arrows", "instants")}

    def error(self) -> FormatError:
        """Return the error that stopped the reading."""
        where, key = int(self._work[kernels.WHERE]), int(self._work[kernels.KEY])
        return _event_error(self._raw, self.count("event"), where, key, *failure_of(self.end))


def scan(raw: RawFile, begin: int) -> tuple[Events, int]:
    """Read the list of events that begins at a byte; returns them and the byte after it.

    Raises
    ------
    FormatError
        If it is not a list of events, is broken JSON, or an event has no time.
    """
    text = raw.content
    if text[begin] != ord("["):
        raise type_error(raw, begin, "`array`", "$.traceEvents")
    readers = read_list(text, begin, partial(_Reader, raw), b"ph|cat|name|pid|ts")
    end = readers[-1].at + 1
    if len(readers) == 2:
        return _join(*readers), end
    found = readers[0].found()
    return Events((found,), found, readers[0].counts()), end


def _join(first: _Reader, second: _Reader) -> Events:
    """Join two parts of a list."""
    a, b = first.found(), second.found()
    num_rows, num_keys = a.numbers.shape[1], a.keys.shape[0]
    b.numbers[NUMBERS["event"]] += first.count("event") - 1
    b.comm[:, COMM_COLUMNS["row"]] += num_rows
    b.kept[:, 0] += num_rows
    b.kept[:, 1] -= np.where(b.kept[:, 1] < 0, num_keys, 0)
    names = ("comm", "kept", "keys", "unknown")
    both = {name: np.concatenate([getattr(a, name), getattr(b, name)]) for name in names}
    counts = second.counts()
    together = {name: count + counts[name] for name, count in first.counts().items()}
    return Events((a, b), a._replace(**both), together)


def _event_error(raw: RawFile, event: int, where: int, key: int, code: int, at: int) -> FormatError:
    """Return the error for a failure of the kernel."""
    if code < kernels.IS_WRONG_TYPE:
        return json_error(raw, code, at)
    path = f"$.traceEvents[{event}]"
    if where == 0:
        return type_error(raw, at, "`object`", path)
    if where == 1:
        name = EVENT_KEYS[key]
        if code == kernels.IS_MISSING:
            return time_error(raw, event, name, "is missing")
        if code == kernels.IS_NO_TIME:
            return time_error(raw, event, name, f"is {_met(raw, at)}, not decimal microseconds")
        return type_error(raw, at, _TYPES[name], f"{path}.{name}")
    path, name = f"{path}.args.{ARG_KEYS[key]}", ARG_KEYS[key]
    if code == kernels.IS_LARGE:
        what = f"{name} {_met(raw, at)} does not fit a 64-bit integer - at {path}"
        return FormatError(raw.name, what, "record the trace again")
    if code == kernels.IS_OUT_OF_RANGE:
        what = f"expected `int` from -1 to below 2^56, got {_met(raw, at)} - at {path}"
        return FormatError(raw.name, what, "record the trace again")
    return type_error(raw, at, "`str`" if key >= len(ARG_KEYS) - 3 else "`int`", path)


def _met(raw: RawFile, at: int) -> str:
    """Show the value at a byte, shortened."""
    end = int(skip(raw.content, at))
    met = raw.content[at:end].tobytes().decode(errors="replace")
    return met if len(met) <= 40 else met[:37] + "..."


def time_error(raw: RawFile, event: int, key: str, what: str) -> FormatError:
    """Return the error for an invalid time."""
    return FormatError(
        raw.name, f"{key} {what} - at $.traceEvents[{event}].{key}", "record the trace again"
    )
