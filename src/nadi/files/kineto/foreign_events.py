"""Events of other tools, from columns to those of a Kineto trace, which all of Nadi reads.

A reader of such a tool states its events as columns, which are taken as those that a Kineto trace
is read into. So what a recording means is decided in one place, whatever wrote it, and what has no
column is kept as arguments like those of PyTorch's own events: only these are written as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from nadi.errors import FormatError
from nadi.files.files import RawFile, available_memory, largest_content
from nadi.files.json_file import Texts, doubled, walk_members
from nadi.files.kineto.kineto_event_kernels import (
    ARG_CODES,
    MEMBER_TO_READ,
    MEMBER_WITHOUT_COLUMN,
    NUM_INTEGERS,
    GivenEvents,
    GivenMembers,
)
from nadi.files.kineto.kineto_events import EventReader, Events, Limits, category_code
from nadi.files.kineto.kineto_trace import Header, trace_of_events
from nadi.files.timeline import chrome_kernels as kernels
from nadi.files.timeline.chrome import NumberedTexts, written_pieces
from nadi.trace.arrays import Bools, Bytes, Ints
from nadi.trace.issues import IssueLog
from nadi.trace.rows import number_rows
from nadi.trace.trace import Provenance, Trace
from nadi.units import format_bytes
from nadi.version import __version__

_FIXED = (',"cat":', ',"name":', ',"pid":', ',"tid":', ',"ts":', ',"dur":')
_KINDS = (
    kernels.TEXT, kernels.TEXT, kernels.NUMBER, kernels.NUMBER,
    kernels.NANOSECONDS, kernels.NANOSECONDS,
)  # fmt: skip
_LATEST = 2**62  # ns
_MARK = "ProfilerStep#"
_NUMBERED = re.compile(
    r"((?:train(?:ing)?[ _-]?)?(?:step|iteration|iter))[ _#:=-]{0,3}(\d{1,18})", re.IGNORECASE
)
_BETWEEN = b",\n"  # two events, as kernels write them
_LEAST_ROOM = 64  # texts


@dataclass(frozen=True, eq=False)
class EventArguments:
    """Arguments of events, where events have different ones."""

    owner: Ints  # int64, shape (members,): the event of each, ascending
    text: Ints  # int64, shape (members,): a row of ``texts``
    # value, has_value: int64 and bool, shape (members,): the number after the text, if there is one
    value: Ints
    has_value: Bools
    # JSON of a key and its value, ``"key":value``; of those with a number only ``"key":``
    texts: list[str]


class JsonTexts(Texts):
    """Texts that are JSON already, such as lists."""


@dataclass(frozen=True, eq=False)
class ForeignEvents:
    """Events in the order of the file; arrays of shape (events,)."""

    # category, name: Kineto's categories, and names
    category: Texts
    name: Texts
    # pid, tid: int64: the process and the thread; of device work the device and the stream
    pid: Ints
    tid: Ints
    # start, duration: int64 ns, from the base time of the file
    start: Ints
    duration: Ints
    # arguments by name: int64, of which -1 is left out, or texts, of which code -1 is
    args: Mapping[str, Ints | Texts] = field(default_factory=dict)
    # other arguments; an event that has any has none of ``args``
    members: EventArguments | None = None
    is_instant: bool = False  # whether they are moments, whose durations do not count


@dataclass(frozen=True, eq=False)
class ForeignRecording:
    """What a file of another tool has."""

    parts: Iterable[ForeignEvents]  # in pieces: what is needed meanwhile grows with a piece
    log: IssueLog  # what the file does not hold; complete once the events were looked at
    base: int = 0  # of times, in ns since 1970
    # what the file holds beside its events, by key
    more: Mapping[str, Any] = field(default_factory=dict)


def are_usable(start: Ints, duration: Ints, what: str, prefix: str, log: IssueLog) -> Bools:
    """Return which events have times that a trace can hold, and record the others.

    - ``start``, ``duration``: int64 ns, shape (events,).
    - ``what``: What they are, for the issue ``PREFIX.without-time``.
    - Returns: bool, shape (events,).
    """
    good = (start > -_LATEST) & (start < _LATEST) & (duration >= 0) & (duration < _LATEST)
    log.add(
        f"{prefix}.without-time", "warning", int((~good).sum()), f"{what} have no usable time",
        "they are left out",
    )  # fmt: skip
    return good


def step_mark(number: int) -> str:
    """Return the name with which ``torch.profiler`` marks a step, by which steps are found."""
    return f"{_MARK}{number}"


def is_step_mark(name: str) -> bool:
    """Return whether a name is one of :func:`step_mark`."""
    return name.startswith(_MARK)


def with_step_marks(name: Texts, thread: Ints) -> Texts:
    """Return the names of ranges; of those that number steps the names are marks of steps.

    Such are ``step 3``, ``train_step_3`` and ``Iteration 3``. Of several kinds it is the one with
    the fewest ranges, as steps enclose what else is numbered. A kind is none if its numbers repeat
    on a thread.

    - ``thread``: int64, shape (ranges,): where each ran.
    """
    kinds: dict[str, dict[int, int]] = {}
    for code, text in enumerate(name.unique):
        if is_step_mark(text):
            return name
        if (found := _NUMBERED.fullmatch(text)) is not None:
            kinds.setdefault(found[1].lower(), {})[code] = int(found[2])
    chosen: dict[int, int] = {}
    fewest = name.codes.size + 1
    for numbers in kinds.values():
        rows = np.flatnonzero(np.isin(name.codes, list(numbers)))
        number = np.array([numbers[code] for code in name.codes[rows].tolist()], dtype=np.int64)
        _, first = number_rows([thread[rows], number])
        if first.size == rows.size < fewest:
            chosen, fewest = numbers, rows.size
    unique = [step_mark(chosen[code]) if code in chosen else text
              for code, text in enumerate(name.unique)]  # fmt: skip
    return Texts(name.codes, tuple(unique))


def number_lists(columns: Sequence[Ints]) -> JsonTexts:
    """Return the rows of columns as lists of JSON; int64, shape (rows,) each."""
    codes, first = number_rows(columns)
    rows = zip(*(one[first].tolist() for one in columns), strict=True)
    return JsonTexts(codes.astype(np.int32), tuple(f"[{','.join(map(str, row))}]" for row in rows))


def json_key(key: str) -> str:
    """Return a key of a JSON object with its colon."""
    return f"{msgspec.json.encode(key).decode()}:"


def _most_bytes(raw: RawFile) -> int:
    # some readers have the events three times before they are a trace
    return min(largest_content(raw.content.size), available_memory() // 4)


def _too_many_bytes(raw: RawFile, most: int) -> FormatError:
    return FormatError(
        raw.name, f"its events have over {format_bytes(most)}, as long texts are repeated in them",
        "record it again, for a shorter time",
    )  # fmt: skip


def kineto_content(recording: ForeignRecording, raw: RawFile) -> bytearray:
    """Write the events of a file as a Kineto trace.

    - Returns: JSON. O(bytes).
    - Raises FormatError if it is far larger than the file.
    """
    content = _Content(raw, recording)
    content.written[-1:] = b',"traceEvents":['
    comma = b""
    for part in recording.parts:
        if part.start.size:
            content.add(comma)
            comma = _BETWEEN
            for piece in written_pieces(_columns(part, np.arange(part.start.size), raw)):
                content.add(piece)
    content.written += b"]}"
    return content.written


def decode_events(raw: RawFile, recording: ForeignRecording, tool: str) -> Trace:
    """Read another tool's file, as the events that its reader made of it.

    - ``tool``: What made the file, for the provenance.
    - Returns: As if they had been written as a Kineto trace, and that was read.
    - Raises FormatError if their arguments are far larger than the file.
    """
    content = _Content(raw, recording)
    head = raw.with_content(content.written)
    members = walk_members(head, {})
    del head  # what is looked at cannot grow
    reader = EventReader(raw, Limits(earliest=-recording.base), 0, raw.content.size, True)
    for part in recording.parts:
        if part.start.size:
            content.take(part, reader)
    found = reader.found()
    events = Events((found,), found, reader.counts(), reader.odd(), False)
    trace = trace_of_events(
        raw.with_content(content.written), events, members, Header(recording.base), recording.log
    )
    return replace(trace, provenance=Provenance(__version__, (raw.source(tool),)))


class _Content:
    """What is written of a file: each text once, arguments, and events that are no nodes."""

    def __init__(self, raw: RawFile, recording: ForeignRecording) -> None:
        head = {"schemaVersion": 1, "baseTimeNanoseconds": recording.base, **recording.more}
        self.raw, self.most = raw, _most_bytes(raw)
        self.written = bytearray(msgspec.json.encode(head))
        self.categories, self.names, self.ids = (_WrittenTexts(self) for _ in range(3))

    def add(self, piece: bytes | memoryview) -> int:
        """Append bytes, and return where they begin.

        Tools write a long text once, and events refer to it: one of a megabyte and a million events
        would be a terabyte of JSON.

        - Raises FormatError if all together are more than gzip's content may be of a file of this
          size, or than there is memory.
        """
        begin = len(self.written)
        if begin + len(piece) > self.most:
            raise _too_many_bytes(self.raw, self.most)
        self.written += piece
        return begin

    def take(self, part: ForeignEvents, reader: EventReader) -> None:
        """Have a reader take events, and write what it needs of them."""
        events = np.stack([
            self.categories.rows(part.category, category_code),
            self.names.rows(part.name, lambda _: -1),
            self.ids.rows_of_numbers(part.pid), self.ids.rows_of_numbers(part.tid),
            part.start, part.duration, *self._arguments(part),
        ])  # fmt: skip
        tables = self.categories.table(), self.names.table(), self.ids.table()
        given = GivenEvents(events, *tables, _given_members(part), not part.is_instant)
        others = np.flatnonzero(~reader.take(np.frombuffer(self.written, np.uint8), given))
        if others.size:
            begin, length = len(self.written), np.empty(others.size, dtype=np.int64)
            for piece in written_pieces(_columns(part, others, self.raw), length):
                self.add(piece)
            between = np.cumsum(length + len(_BETWEEN)) - length - len(_BETWEEN)
            reader.keep_whole(begin + between, length)

    def _arguments(self, part: ForeignEvents) -> tuple[Ints, Ints]:
        """Write the arguments of events; return where they begin, -1 without any, and end."""
        count = part.start.size
        length = np.zeros(count, dtype=np.int64)
        begin = len(self.written)
        if part.is_instant:
            pass  # they are no nodes: they are written whole
        elif part.members is not None and part.members.owner.size:
            objects, at, has_any = _objects(part.members, count, self.raw)
            self.add(objects.data)
            length[has_any] = np.diff(at)
        elif part.args:
            columns = _columns(part, np.arange(count), self.raw)
            for piece in written_pieces(columns, length, kernels.write_args):
                self.add(piece)
        end = begin + np.cumsum(length)
        return np.where(length > 0, end - length, -1), end


def _given_members(part: ForeignEvents) -> GivenMembers:
    """Return the arguments of events as the kernels take them."""
    count, members = part.start.size, part.members
    none = np.empty(0, dtype=np.int64)
    if members is None:
        return GivenMembers(none, none, none, none)
    per_event = np.bincount(members.owner, minlength=count)
    place = np.array([_place_of_member(one) for one in members.texts], dtype=np.int64)
    return GivenMembers(
        np.concatenate([[0], np.cumsum(per_event)]), members.text, members.value, place
    )


def _place_of_member(text: str) -> int:
    """Return where the number that follows a text goes, as :class:`GivenMembers` says."""
    has_value = text.endswith(":")
    keys = msgspec.json.decode("{" + text + ("0" if has_value else "") + "}", type=dict[str, Any])
    codes = [ARG_CODES[key] for key in keys if key in ARG_CODES]
    if not codes:
        return MEMBER_WITHOUT_COLUMN
    return codes[0] if has_value and codes[0] < NUM_INTEGERS else MEMBER_TO_READ


class _WrittenTexts:
    """Texts that are written once, each with a number and where it is."""

    def __init__(self, content: _Content) -> None:
        self._content = content
        self._row_of: dict[str, int] = {}
        self._table = np.empty((_LEAST_ROOM, 3), dtype=np.int64)
        self._last: tuple[Sequence[str], Ints] = (), np.empty(0, dtype=np.int64)

    def table(self) -> Ints:
        """Return the number of each, and where its text begins and how long it is."""
        return self._table[: len(self._row_of)]

    def rows(self, texts: Texts, number_of: Callable[[str], int]) -> Ints:
        """Return the rows of texts, as strings of JSON without their quotes."""
        if texts.unique is not self._last[0]:
            rows = [self._row(text, number_of(text), msgspec.json.encode(text), 1)
                    for text in texts.unique]  # fmt: skip
            self._last = texts.unique, np.array(rows, dtype=np.int64)
        return self._last[1][texts.codes]

    def rows_of_numbers(self, values: Ints) -> Ints:
        """Return the rows of numbers."""
        # of a thread there are many events in turn
        first = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
        codes, some = number_rows([values[first]])
        rows = [self._row(str(value), value, b"%d" % value, 0)
                for value in values[first[some]].tolist()]  # fmt: skip
        of_runs = np.array(rows, dtype=np.int64)[codes]
        return np.repeat(of_runs, np.diff(first, append=values.size))

    def _row(self, text: str, number: int, written: bytes, margin: int) -> int:
        found = self._row_of.get(text)
        if found is not None:
            return found
        row = self._row_of[text] = len(self._row_of)
        if row == len(self._table):
            self._table = doubled(self._table)
        at = self._content.add(written) + margin
        self._table[row] = number, at, len(written) - 2 * margin
        return row


def _columns(part: ForeignEvents, rows: Ints, raw: RawFile) -> kernels.EventColumns:
    """Return events as they are written; ``rows`` are those that will be."""
    texts = NumberedTexts()

    def numbers(values: Texts) -> Ints:
        codes = values.codes.astype(np.int64)
        add = texts.add if isinstance(values, JsonTexts) else texts.add_json
        return np.where(codes >= 0, codes + add(values.unique), -1)

    columns = [
        numbers(part.category), numbers(part.name), part.pid, part.tid, part.start, part.duration,
        *(numbers(one) if isinstance(one, Texts) else one for one in part.args.values()),
    ]  # fmt: skip
    kinds = [kernels.TEXT if isinstance(one, Texts) else kernels.NUMBER
             for one in part.args.values()]  # fmt: skip
    prefix = texts.add([*_FIXED, *map(json_key, part.args)])
    begin = '{"ph":"i","s":"t"' if part.is_instant else '{"ph":"X"'
    head, args = texts.add([begin]), texts.add([',"args":'])
    first_text, content = texts.table()
    count = part.start.size
    objects, at, has_any = _objects(part.members, count, raw)
    return kernels.EventColumns(
        order=rows, values=np.stack(columns),
        kind=np.array([*_KINDS, *kinds], dtype=np.uint8), prefix=prefix + np.arange(len(columns)),
        head=head, args=args, texts=content, first_text=first_text,
        first_span=np.concatenate([[0], np.cumsum(has_any)]),
        role=np.full(at.size - 1, kernels.ARGS, dtype=np.uint8),
        key=np.zeros(at.size - 1, dtype=np.int64),
        at=at[:-1].copy(), length=np.diff(at), recorded=objects,
    )  # fmt: skip


def _objects(members: EventArguments | None, count: int, raw: RawFile) -> tuple[Bytes, Ints, Bools]:
    """Write the arguments of events as objects of JSON.

    - Returns objects: uint8, shape (bytes,).
    - and at: int64, shape (objects + 1,): where each begins and the last one ends.
    - and has_any: bool, shape (events,): which events have an object.
    """
    if members is None or not members.owner.size:
        return (np.zeros(0, dtype=np.uint8), np.zeros(1, dtype=np.int64),
                np.zeros(count, dtype=np.bool_))  # fmt: skip
    texts = NumberedTexts()
    texts.add(members.texts)
    first_text, content = texts.table()
    per_event = np.bincount(members.owner, minlength=count)
    has_any = per_event > 0
    first = np.concatenate([[0], np.cumsum(per_event[has_any])])
    size = int(np.diff(first_text)[members.text].sum())
    size += members.text.size * (kernels.BYTES_PER_NUMBER + 1) + 2 * first.size
    if size > (most := _most_bytes(raw)):
        raise _too_many_bytes(raw, most)
    out, at = np.empty(size, dtype=np.uint8), np.empty(first.size, dtype=np.int64)
    kernels.write_objects(
        first, members.text, members.value, members.has_value, first_text, content, out, at
    )
    return out[: at[-1]], at, has_any
