"""Events of other tools, from columns to the JSON of a Kineto trace, which all of Nadi reads.

A reader of such a tool states its events as columns, and this module writes them. So what a
recording means is decided in one place, whatever wrote it, and what has no column is kept as
arguments like those of PyTorch's own events.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np

from nadi.errors import FormatError
from nadi.files.files import RawFile, available_memory, largest_content
from nadi.files.json_file import Texts
from nadi.files.timeline import chrome_kernels as kernels
from nadi.files.timeline.chrome import NumberedTexts, written_pieces
from nadi.trace.arrays import Bools, Ints
from nadi.trace.issues import IssueLog
from nadi.trace.rows import number_rows
from nadi.units import format_bytes

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
_NO_SPANS = np.zeros(0, dtype=np.int64)


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


def within_limit(pieces: Iterable[bytes], raw: RawFile) -> Iterator[bytes]:
    """Give pieces of events of a file on, as long as all together are as large as its may be.

    Tools write a long name once, and events refer to it: a name of a megabyte and a million
    events would be a terabyte of JSON.

    - Raises FormatError if they are more than gzip's content may be of a file of this size, or than
      there is memory.
    """
    most, size = _most_bytes(raw), 0
    for piece in pieces:
        size += len(piece)
        if size > most:
            raise _too_many_bytes(raw, most)
        yield piece


def _most_bytes(raw: RawFile) -> int:
    # some readers have the events three times before they are a trace
    return min(largest_content(raw.content.size), available_memory() // 4)


def _too_many_bytes(raw: RawFile, most: int) -> FormatError:
    return FormatError(
        raw.name, f"its events have over {format_bytes(most)}, as long texts are repeated in them",
        "record it again, for a shorter time",
    )  # fmt: skip


def kineto_content(
    parts: Iterable[ForeignEvents], raw: RawFile, base: int = 0,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> bytearray:  # fmt: skip
    """Write events of a file as a Kineto trace.

    - ``parts``: The events, in pieces: what is needed meanwhile grows with a piece.
    - ``base``: Base time of the file, in ns since 1970.
    - ``more``: What the file holds beside its events, by key.
    - Returns: JSON. O(bytes).
    - Raises FormatError if it is far larger than the file (:func:`within_limit`).
    """
    head = msgspec.json.encode({"schemaVersion": 1, "baseTimeNanoseconds": base, **more})
    content = bytearray(head[:-1] + b',"traceEvents":[')
    for piece in within_limit(_pieces(parts, raw), raw):
        content += piece
    content += b"]}"
    return content


def _pieces(parts: Iterable[ForeignEvents], raw: RawFile) -> Iterator[bytes]:
    is_first = True
    for part in parts:
        if part.start.size:
            yield b"" if is_first else b",\n"
            yield from written_pieces(_events(part, raw))
            is_first = False


def _events(part: ForeignEvents, raw: RawFile) -> kernels.EventColumns:
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
    return kernels.EventColumns(
        order=np.arange(count), values=np.stack(columns),
        kind=np.array([*_KINDS, *kinds], dtype=np.uint8), prefix=prefix + np.arange(len(columns)),
        head=head, args=args, texts=content, first_text=first_text,
        **_spans(part.members, count, raw),
    )  # fmt: skip


def _spans(members: EventArguments | None, count: int, raw: RawFile) -> dict[str, Any]:
    """Return the arguments of events as spans of bytes, for the events that have any."""
    if members is None or not members.owner.size:
        return {
            "first_span": np.zeros(count + 1, dtype=np.int64), "key": _NO_SPANS, "at": _NO_SPANS,
            "length": _NO_SPANS, "role": np.zeros(0, dtype=np.uint8),
            "recorded": np.zeros(0, dtype=np.uint8),
        }  # fmt: skip
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
    return {
        "first_span": np.concatenate([[0], np.cumsum(has_any)]),
        "role": np.full(first.size - 1, kernels.ARGS, dtype=np.uint8),
        "key": np.zeros(first.size - 1, dtype=np.int64),
        "at": at[:-1].copy(), "length": np.diff(at), "recorded": out,
    }  # fmt: skip
