"""Values of a file without a column, kept unchanged so that writing loses nothing.

A large trace has millions of attributes, of which few are ever used. They are therefore
stored as arrays: numbers directly, everything else as a span of the bytes that were read,
which is decoded only on access.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import RLock
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.errors import FormatError
from nadi.kernels.sequences import expand_ranges
from nadi.trace.arrays import Bools, Bytes, Ints, Ints32
from nadi.trace.attribute_kernels import count_attributes, place_attributes, place_spans
from nadi.trace.protobuf_values import SCALAR_TYPES, bits_of, pack_list, unpack_list, value_of
from nadi.trace.schema import ATTRIBUTE_TYPES, ATTRS

CODES = {name: code for code, name in enumerate(ATTRIBUTE_TYPES)}
_NUMBERS = tuple(name for name in SCALAR_TYPES if name not in ("string", "bytes"))
# attributes of these types are spans of bytes; the others are numbers, or nothing at all
SPAN_CODES = frozenset(
    code for name, code in CODES.items() if name not in (*_NUMBERS, "none", "dependency")
)
_TEXTS = ("string", "operand", "json", "doc_string")
_INTEGERS = ("int32", "int64", "uint32", "uint64", "sint32", "sint64")
_EMPTY = np.zeros(0, dtype=np.uint8)
_IS_SPAN, _IS_TEXT, _IS_INTEGER = (
    np.isin(np.arange(len(ATTRIBUTE_TYPES)), list(codes))
    for codes in (SPAN_CODES, [CODES[t] for t in _TEXTS], [CODES[t] for t in _INTEGERS])
)
_Columns = tuple[Ints32, Ints32, Bytes, Ints, Ints32]


@dataclass(frozen=True, eq=False)
class Attributes:
    """The attributes of one trace, sorted by node and, within a node, in file order.

    Attributes
    ----------
    node
        int32, shape (attributes,): row of ``nodes``, ascending; -1 for the trace itself.
    name
        int32, shape (attributes,): position in ``names``.
    type
        uint8, shape (attributes,): position in ``schema.ATTRIBUTE_TYPES``.
    value
        int64, shape (attributes,): a number by its bits
        (:func:`nadi.trace.protobuf_values.bits_of`), or the begin of a span in the
        concatenation of ``buffers``.
    length
        int32, shape (attributes,): bytes of a span; 0 for numbers.
    names
        Every name once.
    buffers
        The bytes that contain the spans, uint8.
    """

    node: Ints32
    name: Ints32
    type: Bytes
    value: Ints
    length: Ints32
    names: tuple[str, ...]
    buffers: tuple[Bytes, ...]

    @staticmethod
    def empty() -> Attributes:
        """Return an empty set of attributes."""
        return AttributeBuilder().build()

    def __len__(self) -> int:
        return self.node.size

    def __repr__(self) -> str:
        return f"<Attributes {len(self)} of {len(self.names)} names>"

    @cached_property
    def _starts(self) -> Ints:
        """The begin of each buffer, and the end of the last."""
        sizes = [buffer.size for buffer in self.buffers]
        return np.cumsum([0, *sizes], dtype=np.int64)

    @property
    def is_span(self) -> Bools:
        """Mask of the attributes that are spans of bytes; bool, shape (attributes,)."""
        return np.asarray(_IS_SPAN[self.type])

    def span(self, row: int) -> bytes:
        """Return the bytes of an attribute that is a span."""
        start = int(self.value[row])
        number = int(np.searchsorted(self._starts, start, side="right")) - 1
        number = min(number, len(self.buffers) - 1)
        start -= int(self._starts[number])
        return self.buffers[number][start : start + int(self.length[row])].tobytes()

    def rows_of(self, node: int) -> range:
        """Return the rows of a node's attributes; -1 is the trace itself."""
        # of the type of the column, of which numpy would make a copy otherwise
        first, end = np.searchsorted(self.node, np.array([node, node + 1], dtype=np.int32))
        return range(int(first), int(end))

    def rows_named(self, name: str) -> Ints:
        """Return the rows of all attributes with a name; shape (rows,)."""
        if name not in self.names:
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero(self.name == self.names.index(name))

    def nodes_with(self, name: str) -> Ints32:
        """Return the nodes that have an attribute with a name, ascending; shape (such nodes,)."""
        return self.node[self.rows_named(name)]

    def python_value(self, row: int) -> Any:
        """Return an attribute's value: number, bool, str, bytes, list; None if it has none.

        Raises
        ------
        FormatError
            If the bytes are not valid for the type.
        """
        type_name = ATTRIBUTE_TYPES[self.type[row]]
        try:
            return self._python_value(row, type_name)
        except (ValueError, RecursionError):
            raise FormatError(
                f"attribute {self.names[self.name[row]]!r} of row {self.node[row]}",
                f"its bytes are not a valid {type_name}", "the file is damaged: write it again",
            ) from None  # fmt: skip

    def _python_value(self, row: int, type_name: str) -> Any:
        if type_name in _NUMBERS:
            return value_of(type_name, int(self.value[row]))
        if type_name == "none":
            return None
        if type_name == "dependency":
            return int(self.value[row])
        content = self.span(row)
        if type_name in ("bytes", "unknown"):
            return content
        if type_name == "json":
            return _json_value(content)
        if type_name.endswith("_list"):
            return unpack_list(type_name, content)
        return content.decode()

    def of(self, node: int, *names: str) -> dict[str, Any]:
        """Return a node's attributes as Python values, by name; -1 for the trace itself.

        Parameters
        ----------
        names
            Those of interest; all by default.
        """
        named = ((self.names[self.name[row]], row) for row in self.rows_of(node))
        return {n: self.python_value(row) for n, row in named if not names or n in names}

    def table(self) -> pl.DataFrame:
        """Return the attributes as a table (``schema.ATTRS``), every value as text."""
        types = pl.Series(ATTRIBUTE_TYPES, dtype=ATTRS.dtypes["type"])
        names = pl.Series(self.names, dtype=pl.String)
        columns = {
            "node": self.node.astype(np.int64),
            "name": names.gather(self.name.astype(np.uint32)),
            "type": types.gather(self.type.astype(np.uint32)),
            "value": pl.Series(self._texts(), dtype=pl.String),
        }
        return ATTRS.build(len(self), columns)

    def texts(self, rows: Ints) -> pl.Series:
        """Return the values of some attributes as text, as :meth:`table` does."""
        return pl.Series(self._at(rows, self.node[rows])._texts(), dtype=pl.String)

    def _texts(self) -> npt.NDArray[np.object_]:
        """Format every value as text; most are small integers and plain texts."""
        texts = np.empty(len(self), dtype=np.object_)
        is_text, is_integer = _IS_TEXT[self.type], _IS_INTEGER[self.type]
        is_integer &= (self.value >= 0) | (self.type != CODES["uint64"])
        texts[is_integer] = [str(value) for value in self.value[is_integer].tolist()]
        rows = np.flatnonzero(is_text)
        content, since = self.bytes_around(rows)
        view, begin = content.data, (self.value[rows] - since).tolist()
        spans = zip(begin, self.length[rows].tolist(), strict=True)
        texts[rows] = [str(view[at : at + length], "utf-8") for at, length in spans]
        for row in np.flatnonzero(~is_text & ~is_integer).tolist():
            texts[row] = _text(self.python_value(row))
        return texts

    def moved(self, new_row: Ints) -> Attributes:
        """Return the same attributes for nodes in new rows.

        Parameters
        ----------
        new_row
            int64, shape (nodes,): new row of each node; -1 drops the node and
            its attributes.
        """
        return combined([Part(self, new_row)])

    def joined(self, other: Attributes) -> Attributes:
        """Return the attributes of both; within a node those of ``other`` come last."""
        return combined([Part(self), Part(other)])

    def of_nodes(self, nodes: Ints) -> Attributes:
        """Return the attributes of some nodes, in any order."""
        nodes = np.unique(nodes).astype(np.int32)
        first = np.searchsorted(self.node, nodes)
        rows = expand_ranges(first, np.searchsorted(self.node, nodes, "right") - first)[1]
        return self._at(rows, self.node[rows])

    def filtered(self, kept: Bools) -> Attributes:
        """Return the attributes that a mask keeps; bool, shape (attributes,)."""
        rows = np.flatnonzero(kept)
        return self._at(rows, self.node[rows])

    def with_own_bytes(self) -> Attributes:
        """Return the same attributes, with a copy of only the bytes of their spans."""
        rows = np.flatnonzero(self.is_span & (self.length > 0))
        at, length = self.value[rows], self.length[rows].astype(np.int64)
        first = np.cumsum(length) - length
        out = np.empty(int(length.sum()), dtype=np.uint8)
        number = np.searchsorted(self._starts, at, side="right") - 1
        for one in np.unique(number).tolist():
            mine = np.flatnonzero(number == one)
            begin = at[mine] - self._starts[one]
            place_spans(writable(self.buffers[one]), begin, length[mine], first[mine], out)
        value = self.value.copy()
        value[rows] = first
        return replace(self, value=value, buffers=(out,))

    def _at(self, rows: Ints, node: Ints32) -> Attributes:
        return Attributes(
            node=node,
            name=self.name[rows],
            type=self.type[rows],
            value=self.value[rows],
            length=self.length[rows],
            names=self.names,
            buffers=self.buffers,
        )

    def items(self) -> Iterator[tuple[int, str, str, Any]]:
        """Iterate over node, name, type and value of every attribute."""
        for row in range(len(self)):
            yield (
                int(self.node[row]),
                self.names[self.name[row]],
                ATTRIBUTE_TYPES[self.type[row]],
                self.python_value(row),
            )

    def bytes(self) -> Bytes:
        """Return the concatenation of all buffers, which ``value`` indexes; uint8."""
        if len(self.buffers) == 1:
            return self.buffers[0]
        return np.concatenate(self.buffers) if self.buffers else _EMPTY

    def bytes_around(self, rows: Ints) -> tuple[Bytes, int]:
        """Return bytes that contain the spans of some rows, and the offset of these bytes.

        If one buffer contains all these spans, the buffers of a large trace are not concatenated.
        This is so for operands, because only the host trace states them.
        """
        first = int(self.value[rows].min(initial=2**62))
        last = int((self.value[rows] + self.length[rows]).max(initial=0))
        for buffer, start in zip(self.buffers, self._starts[:-1].tolist(), strict=True):
            if start <= first and last <= start + buffer.size:
                return buffer, start
        return self.bytes(), 0


class Part(NamedTuple):
    """Attributes to be combined with others."""

    attributes: Attributes  # the attributes before the changes below
    new_row: Ints | None = None  # as in ``moved``; by default nodes stay where they are
    is_kept: Bools | None = None  # bool, shape (attributes,): which to keep; by default all

    def named(self, name: str) -> tuple[Ints, Ints]:
        """Return the rows of the attributes with a name that stay, and the new node of each."""
        rows = self.attributes.rows_named(name)
        if self.is_kept is not None:
            rows = rows[self.is_kept[rows]]
        node = self.attributes.node[rows].astype(np.int64)
        if self.new_row is None:
            return rows, node
        moved = np.where(node >= 0, self.new_row[node], -1)
        stays = (node < 0) | (moved >= 0)
        return rows[stays], moved[stays]


def combined(parts: Sequence[Part]) -> Attributes:
    """Combine attributes of several sources; within a node, in order of the sources.

    O(attributes): each is read and written once.
    """
    names: dict[str, int] = {}
    masks = [
        (
            _row_map(part),
            np.ones(len(part.attributes), dtype=np.bool_) if part.is_kept is None else part.is_kept,
        )
        for part in parts
    ]
    height = max((int(new_row.max(initial=-1)) + 1 for new_row, _ in masks), default=0)
    count = np.zeros(height + 1, dtype=np.int64)
    for part, mask in zip(parts, masks, strict=True):
        count_attributes(writable(part.attributes.node), *mask, count)
    at = np.cumsum(count) - count
    out = empty_columns(int(count.sum()))
    begin = 0
    for (one, _, _), mask in zip(parts, masks, strict=True):
        given: tuple[npt.NDArray[Any], ...] = (one.node, one.name, one.type, one.value, one.length)
        columns = tuple(writable(column) for column in given)
        new_name = [names.setdefault(name, len(names)) for name in one.names]
        shift = np.where(_IS_SPAN, begin, 0)
        place_attributes(columns, *mask, np.array(new_name, dtype=np.int32), shift, at, out)
        begin += sum(buffer.size for buffer in one.buffers)
    buffers = tuple(buffer for part in parts for buffer in part.attributes.buffers)
    node, name, kind, value, length = out
    return Attributes(node, name, kind, value, length, tuple(names), buffers)


def empty_columns(size: int) -> _Columns:
    """Allocate node, name, type, value and length of attributes, each of shape (size,).

    It is one block, because only a large block returns to the operating system when freed.
    """
    block = np.empty(21 * size, dtype=np.uint8)
    # the widest comes first: so all are aligned
    value = block[: 8 * size].view(np.int64)
    node, name, length = block[8 * size : 20 * size].view(np.int32).reshape(3, size)
    return node, name, block[20 * size :], value, length


def _row_map(part: Part) -> Ints:
    if part.new_row is not None:
        return np.asarray(writable(part.new_row))
    return np.arange(int(part.attributes.node.max(initial=-1)) + 1)


def writable(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a writable array, because kernels would compile again for a read-only one."""
    return np.require(array, requirements=["C", "W"])


def as_they_are(value: Attributes) -> Attributes:
    """Return attributes: as what they come out of a pickle."""
    return value


class LazyAttributes:
    """Attributes that are read on first access.

    ``find_nodes`` finds the nodes with an attribute of a name without reading all attributes; it
    returns None if that requires reading them.
    """

    def __init__(
        self,
        load: Callable[[], Attributes],
        find_nodes: Callable[[str], Ints32 | None] = lambda _: None,
    ) -> None:
        self._load = load
        self._find_nodes = find_nodes
        self._lock = RLock()  # several threads may ask

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to another process as what was read."""
        return as_they_are, (self.value,)

    @property
    def value(self) -> Attributes:
        """The attributes."""
        with self._lock:
            value = self._load()
            self._load = lambda: value  # lets go of what they were read from
        return value

    def nodes_with(self, name: str) -> Ints32:
        """Return the nodes that have an attribute with a name, ascending; shape (such nodes,)."""
        found = self._find_nodes(name)
        return self.value.nodes_with(name) if found is None else found

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of the attributes, before they are combined."""
        return (Part(self.value),)

    @property
    def names(self) -> frozenset[str]:
        """The names of all attributes."""
        return frozenset(name for part in self.parts for name in part.attributes.names)


class JoinedAttributes(LazyAttributes):
    """Attributes of several sources, which are combined on first access to all.

    A single pass, such as that of a writer, uses the parts, and needs no memory for both forms.
    """

    def __init__(self, load: Callable[[], tuple[Part, ...]]) -> None:
        super().__init__(lambda: combined(load()))
        self._load_parts = load

    @property
    def value(self) -> Attributes:
        """The attributes of all sources."""
        value = super().value
        self._load_parts = lambda: (Part(value),)
        return value

    @property
    def parts(self) -> tuple[Part, ...]:
        """The attributes of each source, or of all after they were combined."""
        return self._load_parts()


def _json_value(content: bytes) -> Any:
    if not content:
        return None  # a key that was absent
    try:
        return msgspec.json.decode(content)
    except msgspec.MsgspecError:
        return json.loads(content)  # which takes a number beyond a double as infinite


def _text(value: Any) -> str:
    """Format a value as text: numbers in decimal, lists as JSON, bytes in base64."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (list, dict, bool)) or value is None:
        return "" if value is None else msgspec.json.encode(value).decode()
    return repr(value)


class AttributeBuilder:
    """Collects attributes one by one, for files that are small or parsed in Python."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int, int, int]] = []
        self._names: dict[str, int] = {}
        self._content = bytearray()

    def add(self, node: int, name: str, type_name: str, value: Any) -> None:
        """Add an attribute; nodes may come in any order.

        - Raises ValueError if a list has a value that its type cannot hold.
        """
        code = self._names.setdefault(name, len(self._names))
        number, length = 0, 0
        if type_name in _NUMBERS:
            number = bits_of(type_name, value)
        elif type_name == "dependency":
            number = value
        elif type_name != "none":
            content = _span_of(type_name, value)
            number, length = len(self._content), len(content)
            self._content += content
        self._rows.append((node, code, CODES[type_name], number, length))

    def add_all(self, node: int, values: Mapping[str, tuple[str, Any]]) -> None:
        """Add attributes from a mapping of name to (type, value)."""
        for name, (type_name, value) in values.items():
            self.add(node, name, type_name, value)

    def build(self) -> Attributes:
        """Return the added attributes, sorted by node."""
        self._rows.sort(key=lambda row: row[0])
        columns: Sequence[Sequence[int]] = list(zip(*self._rows, strict=True)) or [[]] * 5
        return Attributes(
            node=np.array(columns[0], dtype=np.int32),
            name=np.array(columns[1], dtype=np.int32),
            type=np.array(columns[2], dtype=np.uint8),
            value=np.array(columns[3], dtype=np.int64),
            length=np.array(columns[4], dtype=np.int32),
            names=tuple(self._names),
            buffers=(np.frombuffer(bytes(self._content), dtype=np.uint8).copy(),),
        )


def _span_of(type_name: str, value: Any) -> bytes:
    if type_name.endswith("_list"):
        return pack_list(type_name, value)
    if type_name == "json":
        return value if isinstance(value, bytes) else msgspec.json.encode(value)
    return value if isinstance(value, bytes) else str(value).encode()
