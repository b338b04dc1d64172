"""Kineto files larger than memory: their events piece by piece, and the events of a time range."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from nadi.errors import FormatError
from nadi.files.files import BYTE_ORDER_MARK, RawFile, read_pieces
from nadi.files.json_file import json_error, skip_blanks, text_of
from nadi.files.kineto.kineto_event_kernels import EVENT, event_spans
from nadi.files.kineto.kineto_events import EventReader, Events, Limits
from nadi.kernels.json_tokens import TRUNCATED, failure_of, read_key, skip
from nadi.trace.arrays import Bools, Bytes, Ints
from nadi.trace.schema import CATEGORIES, DEVICE_WORK, ON_DEVICE
from nadi.units import format_bytes

PIECE = 1 << 25
"""Bytes of content that are in memory at a time."""
_BOUNDARY = re.compile(rb'\}\s*(?P<comma>,)\s*\{\s*"(?:ph|cat|name|pid|ts)"\s*:')
_SEARCHED = 1 << 20
_BETWEEN = 64  # bytes, at least those between two events
_LONGEST = 1 << 29  # bytes of one event, or of what stands after the events
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})\s*[,}]')
_STEP = re.compile(r"ProfilerStep#(\d{1,18})")
_DAMAGED = "the file is cut off or damaged: record the trace again"
_BARE = (
    "its events are a bare list, which is only read as a whole",
    "write the events as traceEvents of an object",
)
_DEVICE_CODES = [CATEGORIES.index(name) for name in (*ON_DEVICE, "sync", "device_annotation")]
_CALL_CODES = [CATEGORIES.index(name) for name in ("runtime", "driver")]
_WORK_CODES = [CATEGORIES.index(name) for name in DEVICE_WORK]
_ANNOTATION = CATEGORIES.index("annotation")


class _Other(msgspec.Struct):
    ph: str = ""
    ts: float = -1.0


_other_decoder = msgspec.json.Decoder(_Other)


class TimeRange(NamedTuple):
    """Times of a file, in ns as in the file, of hosts and of devices; both ends are included."""

    # begin, end: of hosts
    begin: int
    end: int
    # device_begin, device_end: of devices
    device_begin: int
    device_end: int
    # int64, ascending: correlations of calls outside; what they launched is not needed
    elsewhere: Ints


@dataclass(frozen=True, eq=False)
class Survey:
    """What a file contains, as far as a range of it can be chosen by that."""

    header: bytes  # the bytes before the first event
    trailer: bytes  # the bytes from the end of the list of events on
    base: int  # ns since the epoch to which the file's times are added
    earliest: int  # ns as in the file when the first operation begins
    # per number of a marked step, its begin and end in ns as in the file
    steps: dict[int, tuple[int, int]]
    calls: Ints  # int64, shape (calls, 2): start and correlation of each call that may launch work
    works: Ints  # int64, shape (device work, 3): correlation, start and end

    def range_of(self, begin: int, end: int) -> TimeRange:
        """Return a range of times, with the device work that is launched in it and no other."""
        start, correlation = self.calls.T
        inside = (start >= begin) & (start <= end)
        mine = self.works[is_among(self.works[:, 0], np.sort(correlation[inside]))]
        first, last = mine[:, 1].min(initial=begin), mine[:, 2].max(initial=end)
        return TimeRange(begin, end, int(first), int(last), np.sort(correlation[~inside]))


def is_among(values: Ints, among: Ints) -> Bools:
    """Return which values are among others, which ascend."""
    if not among.size:
        return np.zeros(values.size, dtype=np.bool_)
    at = np.minimum(np.searchsorted(among, values), among.size - 1)
    found: Bools = among[at] == values
    return found


class _Piece(NamedTuple):
    """Some consecutive events: the bytes, the events, and where the first one begins."""

    text: Bytes
    events: Events
    at: int
    is_first: bool
    num_events: int


def survey(path: Path, *, launches: bool) -> Survey:
    """Look through a Kineto file, of which one piece at a time is in memory.

    - ``launches``: Whether calls and device work are listed, 40 bytes for a kernel and its call.
    - Raises InputError if the file cannot be read, is broken, or its events are a bare list.
    """
    earliest = 2**62
    steps: dict[int, tuple[int, int]] = {}
    calls: list[Ints] = [np.empty((0, 2), dtype=np.int64)]
    works: list[Ints] = [np.empty((0, 3), dtype=np.int64)]
    outside: list[bytes] = []
    for piece in event_pieces(path, outside):
        events = piece.events
        start, category = events.column("start"), events.column("category")
        end = start + events.column("duration")
        earliest = min(earliest, int(start.min(initial=earliest)))
        _add_steps(piece, start, end, category == _ANNOTATION, steps)
        if launches:
            correlation = events.column("correlation")
            mine = np.isin(category, _CALL_CODES) & (correlation > 0)
            calls.append(np.stack([start[mine], correlation[mine]], axis=1))
            mine = np.isin(category, _WORK_CODES) & (correlation > 0)
            works.append(np.stack([correlation[mine], start[mine], end[mine]], axis=1))
    return Survey(
        outside[0], b"".join(outside[1:]), base_time(outside), earliest, steps,
        np.concatenate(calls), np.concatenate(works),
    )  # fmt: skip


def _add_steps(
    piece: _Piece, start: Ints, end: Ints, is_mark: Bools, steps: dict[int, tuple[int, int]]
) -> None:
    """Add the marked steps of a piece to those found so far."""
    names = piece.events.names(piece.text)
    number_of = [
        int(found[1]) if (found := _STEP.fullmatch(name)) is not None else -1
        for name in names.unique
    ]
    number = np.array(number_of, dtype=np.int64)[names.codes]
    for row in np.flatnonzero(is_mark & (number >= 0)).tolist():
        begin, until = steps.get(int(number[row]), (int(start[row]), int(end[row])))
        steps[int(number[row])] = min(begin, int(start[row])), max(until, int(end[row]))


def read_range(path: Path, seen: Survey, chosen: TimeRange) -> RawFile:
    """Read the events of a time range, as a file that has no others.

    Also kept are the earliest operations, marks of steps, and the names of processes and threads.
    The file is read a second time, a piece at a time; what is kept has to fit in memory.

    - ``seen``: What :func:`survey` found.
    - ``chosen``: Events that overlap it are kept.
    """
    content = bytearray(seen.header)
    for piece in event_pieces(path, []):
        spans = np.empty((piece.num_events, 2), dtype=np.int64)
        event_spans(piece.text, piece.at, piece.is_first, spans)
        spans = spans[_inside(piece, seen, chosen)]
        others = [span for span in _others(piece) if _is_inside(piece.text, span, chosen)]
        more = np.array(others, dtype=np.int64).reshape(-1, 2)
        spans = np.concatenate([spans, more])
        spans = spans[np.argsort(spans[:, 0], kind="stable")]
        if spans.size and len(content) > len(seen.header):
            content += b",\n"
        content += b",\n".join(piece.text[begin:end].tobytes() for begin, end in spans.tolist())
    content += seen.trailer
    found = np.frombuffer(content, dtype=np.uint8)
    return RawFile(str(path), found, found)


def _inside(piece: _Piece, seen: Survey, chosen: TimeRange) -> Bools:
    """Return which events of a piece are operations to keep; bool, shape (events,)."""
    events = piece.events
    start, category = events.column("start"), events.column("category")
    end = start + events.column("duration")
    on_device = np.isin(category, _DEVICE_CODES)
    inside = (end >= np.where(on_device, chosen.device_begin, chosen.begin)) & (
        start <= np.where(on_device, chosen.device_end, chosen.end)
    )
    is_work = np.isin(category, _WORK_CODES)
    inside &= ~(is_work & is_among(events.column("correlation"), chosen.elsewhere))
    names = events.names(piece.text)
    is_mark = names.numbers(lambda name: int(_STEP.fullmatch(name) is not None)) > 0
    inside |= (is_mark & (category == _ANNOTATION)) | (start == seen.earliest)
    found = np.zeros(piece.num_events, dtype=np.bool_)
    found[events.column("event")[inside] - (not piece.is_first)] = True
    return found


def _others(piece: _Piece) -> Iterator[tuple[int, int]]:
    """Yield begin and end of the events of a piece that are no operations."""
    _, code, at, length = piece.events.found.kept.T
    mine = code == EVENT
    yield from zip(at[mine].tolist(), (at + length)[mine].tolist(), strict=True)


def _is_inside(text: Bytes, span: tuple[int, int], chosen: TimeRange) -> bool:
    """Tell whether an event that is no operation names something, or lies in the range."""
    try:
        found = _other_decoder.decode(text[span[0] : span[1]].data)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return found.ph == "M" or chosen.begin <= found.ts * 1000 <= chosen.device_end


def base_time(outside: Sequence[bytes]) -> int:
    """Return the ns since the epoch to which a file's times are added, from what is no event."""
    found = next(filter(None, map(_BASE.search, outside)), None)
    base = int(found[1]) if found else 0
    return base if base < 2**62 else 0


def event_pieces(path: Path, outside: list[bytes]) -> Iterator[_Piece]:
    """Yield the events of a file; ``outside`` gets the bytes before and after them."""
    source = read_pieces(path, PIECE)
    text = next(source, np.empty(0, dtype=np.uint8))
    if text[:3].tobytes() == BYTE_ORDER_MARK:
        text = text[3:]
    at, passed = _begin_of_events(path, text), 0
    outside.append(text[:at].tobytes())
    is_first, is_last = True, False
    limits = Limits(earliest=-base_time(outside))
    while True:
        # where no event is seen to end, the first is read: it may be broken
        stop = text.size if is_last else max(_last_boundary(text, at) + 1, at + _BETWEEN)
        raw = RawFile(str(path), text, text)
        reader = EventReader(raw, limits, at, max(stop - at, 0), is_first)
        begin = reader.count("event")
        if reader.read(stop):
            found = reader.found()
            events = Events((found,), found, reader.counts(), reader.odd(), False)
            yield _Piece(text, events, at, is_first, reader.count("event") - begin)
            at, is_first = reader.at, False
            if at < text.size and text[at] == ord("]"):
                outside.append(text[at:].tobytes())
                for piece in source:
                    _refuse_longer(path, sum(map(len, outside)))
                    outside.append(piece.tobytes())
                return
        elif is_last or failure_of(reader.end)[0] != TRUNCATED:
            raise _broken(path, passed, *failure_of(reader.end))
        _refuse_longer(path, text.size - at)
        more = next(source, None)
        is_last = more is None
        passed += at
        text = text[at:] if more is None else np.concatenate([text[at:], more])
        at = 0


def _refuse_longer(path: Path, size: int) -> None:
    if size > _LONGEST:
        what = f"an event, or what stands after the events, has over {format_bytes(_LONGEST)}"
        raise FormatError(str(path), what, _DAMAGED)


def _begin_of_events(path: Path, text: Bytes) -> int:
    """Return the byte after the bracket that opens the list of events."""
    span = np.empty(2, dtype=np.int64)
    at = skip_blanks(text, 0)
    if text[at : at + 1].tobytes() == b"[":
        raise FormatError(str(path), *_BARE)
    at, is_first = at + 1, True
    while True:
        at = _checked(path, read_key(text, at, is_first, span))
        if span[0] < 0:
            what = "object missing required field `traceEvents`"
            raise FormatError(str(path), what, "record the trace again")
        if text_of(text[span[0] : span[1]].tobytes()) == "traceEvents":
            if text[at : at + 1].tobytes() == b"[":
                return at + 1
            raise FormatError(str(path), "expected `array` - at $.traceEvents", _DAMAGED)
        at, is_first = _checked(path, skip(text, at)), False


def _checked(path: Path, result: int) -> int:
    if result < 0:
        raise _broken(path, 0, *failure_of(result))
    return result


def _last_boundary(text: Bytes, at: int) -> int:
    """Guess the last comma between two events; -1 if none is found."""
    since = max(at, text.size - _SEARCHED)
    found = -1
    for one in _BOUNDARY.finditer(text[since:].data):
        found = since + one.start("comma")
    return found


def _broken(path: Path, passed: int, code: int, at: int) -> FormatError:
    """Return the error for broken JSON at a byte of a piece that begins after others."""
    if code == TRUNCATED:
        return FormatError(str(path), "the JSON ends too early", _DAMAGED)
    empty = np.empty(0, dtype=np.uint8)
    return json_error(RawFile(str(path), empty, empty), code, passed + at)
