"""The nodes of an .et as arrays: allocation, two threads for a large file, and errors."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from nadi.errors import FormatError
from nadi.files.chakra.attribute_message_kernels import PROBLEMS
from nadi.files.chakra.et_decode_kernels import (
    CODES,
    FIRST_TEXT,
    FIRST_WANTED,
    FULL,
    NUMBERS,
    STATE,
    NodeColumns,
    decode_nodes,
    likely_message,
)
from nadi.kernels.strings import intern_spans, make_words
from nadi.trace.arrays import Bools, Bytes, Ints, Ints32

_Item = TypeVar("_Item", bound=np.generic)
_WORTH_SPLITTING = 1 << 22
_MIDDLE = 0.5
_WINDOW = 1 << 20
_SEVERAL = 16  # messages that follow one another where a text that looks like one has none
_LIKELY_BYTES = 128  # of a node; where there are more nodes, room is made on the way
_LEAST_ROOM = 64
_TEXTS_ROOM = 1 << 12
_FEW_PARTS = 2  # of one file


class WantedAttributes:
    """Names of the attributes that are read with the nodes: numbers and texts."""

    def __init__(self, numbers: Sequence[str], texts: Sequence[str]) -> None:
        self.numbers, self.texts = tuple(numbers), tuple(texts)
        self.words = make_words({name: code for code, name in enumerate((*numbers, *texts))})


class NodeReader:
    """Reads the messages of a file from a position on, growing its arrays as needed.

    ``size``, the remaining bytes, and ``bytes_per_node`` determine the initial capacity.

    Attributes
    ----------
    at
        Where the next message begins, or where a problem occurred.
    problem
        Its position in :data:`nadi.files.chakra.attribute_message_kernels.PROBLEMS`; 0 if there
        is none.
    """

    def __init__(
        self, content: Bytes, at: int, size: int, wanted: WantedAttributes,
        bytes_per_node: int = _LIKELY_BYTES,
    ) -> None:  # fmt: skip
        self.at = at
        self.problem = 0
        self.content = content
        self._words = wanted.words
        room = max(size // bytes_per_node, _LEAST_ROOM)
        # untouched memory costs nothing: what is not zero is filled before it is read
        self._columns = NodeColumns(
            numbers=np.zeros((FIRST_WANTED + len(wanted.numbers), room), dtype=np.int64),
            codes=np.zeros((FIRST_TEXT + len(wanted.texts), room), dtype=np.int32),
            ctrl=np.empty(8 * room, dtype=np.int64),
            data=np.empty(8 * room, dtype=np.int64),
            slots=np.empty(0, dtype=np.int32),
            texts=np.empty((_TEXTS_ROOM, 3), dtype=np.int64),
        )
        self._state = np.zeros(len(STATE) + len(wanted.numbers), dtype=np.int64)

    def read(self, stop: int) -> bool:
        """Read messages that begin before ``stop``; return False if one is broken."""
        while True:
            slots = np.full(2 * len(self._columns.texts), -1, dtype=np.int32)
            self._columns = self._columns._replace(slots=slots)
            self.problem, self.at = decode_nodes(
                self.content, self.at, stop, self._columns, self._words, self._state
            )
            if self.problem != FULL:
                return self.problem == 0
            self._make_room()

    def _make_room(self) -> None:
        """Double every array without room for one more node, or grow it to the size needed."""
        columns, needed = self._columns, self.count("needed")
        nodes = columns.numbers.shape[1]
        more = 2 * nodes if self.count("nodes") == nodes else nodes
        texts = columns.texts.shape[0]
        if self.count("texts") + columns.codes.shape[0] > texts:
            texts *= 2
        self._columns = columns._replace(
            numbers=_grown(columns.numbers, more),
            codes=_grown(columns.codes, more),
            ctrl=self._with_room(columns.ctrl, self.count("ctrl") + needed),
            data=self._with_room(columns.data, self.count("data") + needed),
            texts=np.resize(columns.texts, (texts, 3)),
        )

    @staticmethod
    def _with_room(ids: Ints, needed: int) -> Ints:
        return _grown(ids, max(2 * ids.size, needed)) if needed > ids.size else ids

    def count(self, name: str) -> int:
        """Return a counter of the kernel's state."""
        return int(self._state[STATE[name]])

    @property
    def seen(self) -> Bools:
        """Return which of the wanted numbers occur in any node."""
        return self._state[len(STATE) :] > 0

    def row(self, name: str, place: int) -> Ints:
        """Return a row of a two-dimensional array, cut to the part in use."""
        array: Ints = getattr(self._columns, name)[place]
        return array[: self.count("nodes")]

    def ids(self, name: str) -> Ints:
        """Return the ids that control or data dependencies name."""
        array: Ints = getattr(self._columns, name)
        return array[: self.count(name)]

    def spans(self) -> Ints:
        """Return where each text begins and its bytes; int64, shape (texts, 2)."""
        return np.asarray(self._columns.texts[: self.count("texts"), 1:])

    def texts(self, numbers: Iterable[int]) -> list[str]:
        """Return texts by their numbers."""
        spans = self.spans().tolist()
        content = self.content.data  # no array is made for each of them
        wanted = (spans[number] for number in numbers)
        return [str(content[at : at + length], "utf-8") for at, length in wanted]


def _grown(array: npt.NDArray[_Item], room: int) -> npt.NDArray[_Item]:
    """Return a copy of an array with a longer last axis, zero beyond the old values."""
    room = max(room, array.shape[-1])
    larger = np.zeros((*array.shape[:-1], room), dtype=array.dtype)
    larger[..., : array.shape[-1]] = array
    return larger


@dataclass(frozen=True, eq=False)
class DecodedNodes:
    """The nodes of a file, read as one part or as two consecutive parts."""

    parts: list[NodeReader]
    wanted: WantedAttributes

    def total(self, name: str) -> int:
        """Return a count: one of ``STATE``."""
        return sum(part.count(name) for part in self.parts)

    def column(self, name: str) -> Ints:
        """Return id, start or duration (us) of every node."""
        return np.concatenate([part.row("numbers", NUMBERS[name]) for part in self.parts])

    def kind(self) -> Ints32:
        """Return the number of each node's kind."""
        return np.concatenate([part.row("codes", CODES["kind"]) for part in self.parts])

    def numbers(self) -> dict[str, Ints]:
        """Return the values of each wanted attribute that any node has; -1 if a node has none."""
        return self._numbers

    @cached_property
    def _numbers(self) -> dict[str, Ints]:
        there = np.flatnonzero(np.any([part.seen for part in self.parts], axis=0)).tolist()
        # one array: memory that was not used before costs more the smaller its pieces are
        out = np.empty((len(there), self.total("nodes")), dtype=np.int64)
        for row, place in zip(out, there, strict=True):
            end = 0
            for part in self.parts:
                given = part.row("numbers", FIRST_WANTED + place)
                np.invert(given, out=row[end : end + given.size])
                end += given.size
        return {self.wanted.numbers[place]: row for row, place in zip(out, there, strict=True)}

    def dependencies(self, kind: str) -> tuple[Ints, Ints]:
        """Return the number of dependencies of each node, and the ids of all, node by node."""
        counts = [np.diff(part.row("numbers", NUMBERS[f"{kind}_end"]), prepend=0)
                  for part in self.parts]  # fmt: skip
        return np.concatenate(counts), np.concatenate([part.ids(kind) for part in self.parts])

    def names(self) -> tuple[Ints32, list[str]]:
        """Return the number of each node's name, and every name once."""
        return self._texts(CODES["name"], 0)

    def text(self, name: str) -> tuple[Ints32, list[str]]:
        """Return the number of each node's text of a wanted attribute, and every text once.

        The text is empty for a node without the attribute.
        """
        return self._texts(FIRST_TEXT + self.wanted.texts.index(name), 1)

    def _texts(self, place: int, offset: int) -> tuple[Ints32, list[str]]:
        if len(self.parts) > _FEW_PARTS:
            return self._texts_of_many(place, offset)
        number: dict[str, int] = {}
        codes = []
        for part in self.parts:
            given = part.row("codes", place)
            used = np.flatnonzero(np.bincount(given))
            texts = part.texts((used[used >= offset] - offset).tolist())
            if len(texts) < used.size:
                texts.insert(0, "")  # 0 stands for none
            new = np.zeros(int(used.max(initial=-1)) + 1, dtype=np.int32)
            new[used] = [number.setdefault(text, len(number)) for text in texts]
            # in most files all texts are used, and each stands once
            is_same = bool((new == np.arange(new.size)).all())
            codes.append(given if is_same else new[given])
        return np.concatenate(codes), list(number)

    def _texts_of_many(self, place: int, offset: int) -> tuple[Ints32, list[str]]:
        """Merge the texts of many parts by their bytes, because most texts are common to them."""
        content, starts = self._joined
        given, spans, first = [], [np.zeros((1, 2), dtype=np.int64)], 1
        for part, start in zip(self.parts, starts, strict=True):
            codes = part.row("codes", place)
            texts = part.spans()
            spans.append(np.add(texts, (start, 0)))
            # the first span of all is empty, and stands for no text
            number = codes + (first - offset)
            given.append(np.where(codes < offset, 0, number) if offset else number)
            first += len(texts)
        whole = np.concatenate(given)
        used, which = np.unique(whole, return_inverse=True)
        begin, length = np.concatenate(spans)[used].T
        found, rows = intern_spans(content, begin, length)
        view = content.data
        words = [str(view[begin[row] : begin[row] + length[row]], "utf-8") for row in rows.tolist()]
        return np.asarray(found[which.reshape(-1)], dtype=np.int32), words

    @cached_property
    def _joined(self) -> tuple[Bytes, list[int]]:
        """The bytes of all parts, and where those of each begin."""
        contents = [part.content for part in self.parts]
        sizes = [content.size for content in contents]
        return np.concatenate(contents), [0, *np.cumsum(sizes[:-1]).tolist()]


def decode_messages(file: str, content: Bytes, wanted: WantedAttributes) -> DecodedNodes:
    """Read the nodes of a file; the second half of a large file in another thread.

    The boundary between the halves is a guess. The second half counts only if the first half
    ends exactly there.

    - Raises FormatError: For the first broken message; the error states its byte.
    """
    middle = _likely_middle(content)
    first = NodeReader(content, 0, middle, wanted)
    parts = [first]
    if middle == content.size:
        first.read(middle)
    else:
        second = NodeReader(content, middle, content.size - middle, wanted)
        with ThreadPoolExecutor(1) as executor:  # the kernel holds no lock
            executor.submit(second.read, content.size)
            is_read = first.read(middle)
        if is_read and first.at != middle:
            first.read(content.size)
        else:
            parts.append(second)
    for part in parts:
        _check(file, part)
    return DecodedNodes(parts, wanted)


def _check(file: str, reader: NodeReader) -> None:
    if reader.problem:
        raise FormatError(
            file, f"byte {reader.at:,}: {PROBLEMS[reader.problem]}",
            "the file is damaged or cut off: write or copy it again",
        )  # fmt: skip


def _likely_middle(content: Bytes) -> int:
    if content.size <= _WORTH_SPLITTING:
        return content.size
    middle = int(content.size * _MIDDLE)
    found = int(likely_message(content, middle, min(middle + _WINDOW, content.size), _SEVERAL))
    return found if found >= 0 else content.size
