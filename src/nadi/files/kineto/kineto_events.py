"""The events of a Kineto trace as arrays: allocation, errors, and unparsed values."""

from dataclasses import dataclass, field
from functools import partial

import numpy as np

from nadi.errors import FormatError
from nadi.files.files import RawFile
from nadi.files.json_file import Texts, json_error, read_list, text_of, type_error
from nadi.files.kineto import kineto_event_kernels as kernels
from nadi.files.kineto.kineto_event_kernels import (
    ARG_WORDS,
    COMM_COLUMNS,
    END_OF_TIME,
    EVENT_WORDS,
    NUMBERS,
    ODD,
    OTHER_NAME,
    STATE,
    EventScan,
    FoundEvents,
    GivenEvents,
    scan_events,
    take_events,
)
from nadi.kernels.json_tokens import MAX_DEPTH, failure_of
from nadi.kernels.strings import make_words
from nadi.trace.arrays import Bools, Bytes, Ints
from nadi.trace.categories import CATEGORIES, KINETO_CATEGORIES, VENDOR_CATEGORIES

_CODES = {name: CATEGORIES.index(category) for name, category in KINETO_CATEGORIES.items()}
_OTHER_CODES = {name: CATEGORIES.index(own) for name, own in VENDOR_CATEGORIES.items()}
CATEGORY_WORDS = make_words(_CODES | _OTHER_CODES)
_WORD_CODES = (
    _CODES
    | {name: code + OTHER_NAME for name, code in _OTHER_CODES.items()}
    | {
        "Trace": kernels.OF_THE_PROFILER,  # what it spent itself; no work of the program
        "overhead": kernels.OF_THE_PROFILER,
        # from launch to work: the correlation ids say the same
        "ac2g": kernels.REDUNDANT,
        "async": kernels.REDUNDANT,
        "async_gpu": kernels.REDUNDANT,
        "async_cpu": kernels.REDUNDANT,
        "HostToDevice": kernels.REDUNDANT,
        "async_npu": kernels.REDUNDANT,
        "async_task_queue": kernels.REDUNDANT,
        "fwdbwd": kernels.ARROW,
        "forward_backward": kernels.ARROW,
    }
)
_WORDS = make_words(_WORD_CODES)
_LIKELY_BYTES = 100  # of an event, or more: room that is not used takes no memory
_LEAST_ROOM = 64
_TEXTS_ROOM = 1 << 12
_NO_PROCESSES = np.empty((0, 2), dtype=np.int64)


def category_code(word: str) -> int:
    """Return what the kernels take an event's category for."""
    return _WORD_CODES.get(word, -1) if word else kernels.NO_CATEGORY


@dataclass(frozen=True, eq=False)
class Limits:
    """What becomes a node."""

    # earliest, latest: the times that a node may have, in ns as in the file
    earliest: int = -END_OF_TIME
    latest: int = END_OF_TIME
    # int64, shape (processes, 2): pid, and the category of its events that state none
    processes: Ints = field(default_factory=_NO_PROCESSES.copy)


@dataclass(frozen=True, eq=False)
class Events:
    """The events of one list, in the order of the file."""

    # numbers and distinct names of the nodes, in one part of the list or in two consecutive parts
    parts: tuple[FoundEvents, ...]
    # other results of the kernel; its numbers and texts are those of the first part
    found: FoundEvents
    # number of events that are not nodes, by reason (names of ``kernels.STATE``)
    counts: dict[str, int]
    # number of events and values that cannot be used, by name (``kernels.ODD``)
    odd: dict[str, int]
    has_quoted_ids: bool  # whether some pid or tid is a number in quotes

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


class EventReader:
    """Reads the events of a list, growing its arrays as needed."""

    def __init__(self, raw: RawFile, limits: Limits, at: int, size: int, is_first: bool) -> None:
        self._raw = raw
        self.at = at
        room = max(size // _LIKELY_BYTES, _LEAST_ROOM)
        found = FoundEvents(
            numbers=np.empty((len(NUMBERS), room), dtype=np.int64),
            comm=np.empty((max(room // 8, _LEAST_ROOM), len(COMM_COLUMNS)), dtype=np.int64),
            kept=np.empty((2 * room, 4), dtype=np.int64),
            keys=np.empty((max(room // 4, _LEAST_ROOM), 2), dtype=np.int64),
            unknown=np.empty((_LEAST_ROOM, 2), dtype=np.int64),
            texts=np.empty((_TEXTS_ROOM, 3), dtype=np.int64),
            slots=np.empty(0, dtype=np.int32),
        )
        self._scan = EventScan(
            raw.content, EVENT_WORDS, ARG_WORDS, _WORDS, limits.processes, found,
            work=np.empty(kernels.WORK_SIZE, dtype=np.int64),
            stack=np.empty(MAX_DEPTH, dtype=np.uint8),
            state=np.zeros(len(STATE), dtype=np.int64),
        )  # fmt: skip
        self._state = self._scan.state
        self._state[STATE["event"]] = 0 if is_first else 1  # not after the opening bracket
        self._state[STATE["earliest"]] = limits.earliest
        self._state[STATE["latest"]] = limits.latest

    def read(self, stop: int) -> bool:
        """Read events that begin before ``stop``; return False if one is broken."""
        while True:
            found = self._scan.found
            slots = np.full(2 * len(found.texts), -1, dtype=np.int32)
            self._scan = self._scan._replace(found=found._replace(slots=slots))
            self.end = int(scan_events(self._scan, self.at, stop))
            if self.end < 0:
                return False
            self.at = self.end
            if not (full := self.count("is_full")):
                return True
            self._enlarge(FoundEvents._fields[full - 1])

    def take(self, text: Bytes, given: GivenEvents) -> Bools:
        """Take events whose members are known, and return which are nodes; bool, shape (events,).

        - ``text``: The bytes of the file so far, in which what is given lies.
        - Raises FormatError if the arguments of one are broken.
        """
        count = given.events.shape[1]
        for name in ("numbers", "comm", "kept", "unknown"):
            self._make_room(name, 2 * count if name == "kept" else count)
        self._make_room("texts", len(given.names))
        is_node = np.empty(count, dtype=np.bool_)
        self.end = int(take_events(self._scan._replace(text=text), given, is_node))
        if self.end < 0:
            raise self.error()
        return is_node

    def keep_whole(self, at: Ints, length: Ints) -> None:
        """Keep events that are no nodes, by where their texts are."""
        first, place = self.count("kept"), STATE["kept"]
        self._make_room("kept", at.size)
        self._state[place] = last = first + at.size
        kept = self._scan.found.kept[first:last]
        kept[:, 0], kept[:, 1], kept[:, 2], kept[:, 3] = -1, kernels.EVENT, at, length

    def _make_room(self, name: str, more: int) -> None:
        """Make room in an array for more rows than are filled."""
        array = self._scan.found[FoundEvents._fields.index(name)]
        if self._filled(name) + more > array.shape[name == "numbers"]:
            self._enlarge(name, more)

    def _enlarge(self, name: str, more: int = 0) -> None:
        """Double the rows of an array, or more; what is not filled is not copied."""
        axis, filled = int(name == "numbers"), self._filled(name)
        array = self._scan.found[FoundEvents._fields.index(name)]
        shape = list(array.shape)
        shape[axis] = max(2 * shape[axis], filled + more)
        larger = np.empty(shape, dtype=np.int64)
        larger.swapaxes(0, axis)[:filled] = array.swapaxes(0, axis)[:filled]
        self._scan = self._scan._replace(found=self._scan.found._replace(**{name: larger}))

    def _filled(self, name: str) -> int:
        return self.count("row" if name == "numbers" else name)

    def count(self, name: str) -> int:
        """Return a counter of the kernel's state."""
        return int(self._state[STATE[name]])

    def found(self) -> FoundEvents:
        """Return the results, cut to the part in use."""
        found = self._scan.found
        return FoundEvents(
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

    def odd(self) -> dict[str, int]:
        """Return the counts of what cannot be used."""
        return {name: self.count(f"odd {name}") for name in ODD}

    def error(self) -> FormatError:
        """Return the error that stopped the reading."""
        return json_error(self._raw, *failure_of(self.end))


def scan(raw: RawFile, begin: int, limits: Limits) -> tuple[Events, int]:
    """Read the list of events that begins at a byte; returns them and the byte after it.

    - Raises FormatError if it is not a list, or is broken JSON.
    """
    text = raw.content
    if text[begin] != ord("["):
        raise type_error(raw, begin, "`array`", "$.traceEvents")
    readers = read_list(text, begin, partial(EventReader, raw, limits), b"ph|cat|name|pid|ts")
    end = readers[-1].at + 1
    if len(readers) == 2:
        return _join(*readers), end
    (one,) = readers
    found = one.found()
    return Events((found,), found, one.counts(), one.odd(), one.count("quoted_ids") > 0), end


def _join(first: EventReader, second: EventReader) -> Events:
    """Join two parts of a list."""
    a, b = first.found(), second.found()
    num_rows, num_keys = a.numbers.shape[1], a.keys.shape[0]
    b.numbers[NUMBERS["event"]] += first.count("event") - 1
    b.comm[:, COMM_COLUMNS["row"]] += num_rows
    b.kept[:, 0] += num_rows
    b.kept[:, 1] -= np.where(b.kept[:, 1] < 0, num_keys, 0)
    names = ("comm", "kept", "keys", "unknown")
    both = {name: np.concatenate([getattr(a, name), getattr(b, name)]) for name in names}
    counts, odd = (
        {name: count + other[name] for name, count in one.items()}
        for one, other in ((first.counts(), second.counts()), (first.odd(), second.odd()))
    )
    has_quoted_ids = first.count("quoted_ids") + second.count("quoted_ids") > 0
    return Events((a, b), a._replace(**both), counts, odd, has_quoted_ids)
