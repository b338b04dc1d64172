"""The events of a Kineto trace as arrays: room for them, errors about them, what is kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nadi.errors import FormatError
from nadi.formats.container import RawFile
from nadi.formats.json_file import doubled, json_error, type_error
from nadi.kernels import kineto as kernels
from nadi.kernels.json_tokens import MAX_DEPTH, failure_of, skip
from nadi.kernels.kineto import (
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
from nadi.kernels.strings import make_words
from nadi.schema import CATEGORIES

__all__ = ["CATEGORY", "CATEGORY_WORDS", "Events", "scan", "time_error"]

Ints = npt.NDArray[np.int64]
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
_TYPES = {
    "ph": "`str`", "cat": "`str`", "name": "`str`", "pid": "`int | str`", "tid": "`int | str`",
    "args": "`object | null`",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Events:
    """The events of one list, as they stand in the file.

    Attributes
    ----------
    found
        What the kernel found, cut to size.
    counts
        Of events that are no nodes, by reason (names of ``kernels.STATE``).
    """

    found: Found
    counts: dict[str, int]

    def column(self, name: str) -> Ints:
        """Give a column of the nodes; int64, shape (nodes,)."""
        return self.found.numbers[:, NUMBERS[name]]

    def comm(self, name: str) -> Ints:
        """Give a column of the nodes that communicate; int64, shape (such nodes,)."""
        return self.found.comm[:, COMM_COLUMNS[name]]


def scan(raw: RawFile, begin: int) -> tuple[Events, int]:
    """Read the list of events that begins at a byte; gives them and the byte after it.

    Raises
    ------
    FormatError
        If it is no list of events, is broken JSON, or an event has no time.
    """
    text = raw.content
    if text[begin] != ord("["):
        raise type_error(raw, begin, "`array`", "$.traceEvents")
    room = max((text.size - begin) // _LIKELY_BYTES, _LEAST_ROOM)
    found = Found(
        numbers=np.empty((room, len(NUMBERS)), dtype=np.int64),
        comm=np.empty((max(room // 8, _LEAST_ROOM), len(COMM_COLUMNS)), dtype=np.int64),
        kept=np.empty((2 * room, 4), dtype=np.int64),
        keys=np.empty((max(room // 4, _LEAST_ROOM), 2), dtype=np.int64),
        unknown=np.empty((_LEAST_ROOM, 2), dtype=np.int64),
    )
    words = EVENT_WORDS, ARG_WORDS, CATEGORY_WORDS
    work = np.empty(kernels.WORK_SIZE, dtype=np.int64)
    stack = np.empty(MAX_DEPTH, dtype=np.uint8)
    state = np.zeros(len(STATE), dtype=np.int64)
    at = begin + 1
    while True:
        at = scan_events(text, at, text.size, *words, found, work, stack, state)
        if at < 0:
            where, key = int(work[kernels.WHERE]), int(work[kernels.KEY])
            raise _event_error(raw, int(state[STATE["event"]]), where, key, *failure_of(at))
        if not (full := int(state[STATE["is_full"]])):
            break
        found = found._replace(**{Found._fields[full - 1]: doubled(found[full - 1])})
    sizes = (state[STATE[name]] for name in ("row", "comm", "kept", "keys", "unknown"))
    cut = Found(*(array[:size] for array, size in zip(found, sizes, strict=True)))
    counts = {name: int(state[STATE[name]]) for name in ("own", "incomplete", "arrows", "instants")}
    return Events(cut, counts), at + 1


def _event_error(
    raw: RawFile, event: int, where: int, key: int, code: int, at: int
) -> FormatError:
    """Give the error for a failure of the kernel."""
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
    """Give the error for a time that is none."""
    return FormatError(
        raw.name, f"{key} {what} - at $.traceEvents[{event}].{key}", "record the trace again"
    )
