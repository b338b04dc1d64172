"""The nodes of a host trace as arrays: allocation, errors, attributes.

Compute the size of an operation's input tensors, from recorded shapes and types.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from functools import partial
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from nadi.errors import FormatError
from nadi.files.files import RawFile
from nadi.files.json_file import Texts, doubled, find_texts, json_error, read_list, type_error
from nadi.files.pytorch import host_layout_kernels as kernels
from nadi.files.pytorch.host_layout_kernels import (
    NAMES,
    NODE_KEYS,
    NUMBERS,
    STATE,
    FoundNodes,
    NodeScan,
    Words,
)
from nadi.files.pytorch.host_node_kernels import scan_nodes
from nadi.kernels.json_tokens import MAX_DEPTH, failure_of
from nadi.kernels.strings import make_words
from nadi.trace.arrays import Ints, Ints32
from nadi.trace.attribute_kernels import (
    KeptValues,
    count_attributes,
    count_kept,
    place_attributes,
    place_kept,
)
from nadi.trace.attributes import CODES, SPAN_CODES, Attributes, empty_columns
from nadi.trace.operations import ITEMSIZE, MAX_BYTES
from nadi.trace.protobuf_values import RANGES, SCALAR_TYPES
from nadi.trace.schema import ATTRIBUTE_TYPES, CATEGORIES

_LIKELY_BYTES = 600  # of a node; where there are more nodes, room is made on the way
_LIKELY_ATTRIBUTES = 20
_LEAST_ROOM = 64
_END_OF_TIME = 2**63 - 1
_PREFIXES = ("", "inputs.", "outputs.")
_TYPES = {"name": "`str`", "attrs": "`array`", **dict.fromkeys(
    ("ts", "inclusive_dur", "exclusive_dur"), "`float | null`")}  # fmt: skip
# types of keys that schema 1.0.1 has on the node
_OLD_TYPES = {
    "rf_id": "uint64", "seq_id": "int64", "scope": "uint64", "fw_parent": "uint64",
    "tid": "uint64", "fw_tid": "uint64", "op_schema": "string",
}  # fmt: skip
_KIND = {
    "uint64": kernels.UNSIGNED, "fixed64": kernels.UNSIGNED, "bool": kernels.BOOL,
    "string": kernels.STRING, "double": kernels.DOUBLE, "float": kernels.DOUBLE,
    "bytes": kernels.NO_SCALAR,
}  # fmt: skip
# what the kernel compares numbers of each type with; uint64 beyond an int64 it reads apart
_TYPE_TABLE = np.zeros((len(SCALAR_TYPES) + 2, 3), dtype=np.int64)
for _row, _name in enumerate(SCALAR_TYPES):
    _low, _end = RANGES.get(_name, (0, 1))
    _TYPE_TABLE[_row] = _KIND.get(_name, kernels.SIGNED), _low, min(_end - 1, 2**63 - 1)
_TYPE_TABLE[len(SCALAR_TYPES) :, 0] = kernels.NO_SCALAR
_OLD_TYPE_CODES = np.array(
    [SCALAR_TYPES.index(_OLD_TYPES.get(key, "bytes")) for key in NODE_KEYS], dtype=np.int64
)
_TYPE_WORDS = make_words({name: code for code, name in enumerate(SCALAR_TYPES)})
_CODE_OF_TYPE = np.array(
    [CODES[name] for name in (*SCALAR_TYPES, "json", "operand")], dtype=np.uint8
)
_STRING = SCALAR_TYPES.index("string")
_FLOATS = [SCALAR_TYPES.index("double"), SCALAR_TYPES.index("float")]


@dataclass(frozen=True, eq=False)
class HostNodes:
    """The nodes of one list, in the order of the file."""

    raw: RawFile  # the file
    columns: Ints  # int64, shape (columns, nodes): the columns of ``kernels.host_layout.NUMBERS``
    # other results of the kernel, of all nodes or of two halves; released after use
    parts: list[FoundNodes]

    def column(self, name: str) -> Ints:
        """Return a column, which must not be modified; int64, shape (nodes,)."""
        column: Ints = self.columns[NUMBERS[name]]
        return column

    def texts(self) -> Texts:
        """Return the names of the nodes."""
        return find_texts(self.raw, self.column("name_at"), self.column("name_length"))

    def span(self, name: str, row: int) -> bytes:
        """Return the bytes of a span that two columns state; empty without one."""
        at, length = (int(self.column(f"{name}_{k}")[row]) for k in ("at", "length"))
        return self.raw.content[at : at + length].tobytes() if at >= 0 else b""

    def without_columns(self) -> HostNodes:
        """Return what :meth:`attributes` needs, and release the rest."""
        return HostNodes(self.raw, self.columns[:0].copy(), self.parts)

    def attributes(self, new_row: Ints, others: Attributes) -> Attributes:
        """Return values without a column as attributes, for nodes in new rows.

        This can be called only once.

        - ``new_row``: int64, shape (nodes,): new row of each node.
        - ``others``: Further attributes of these nodes; in a node they come last.
        """
        names = {known: code for code, known in enumerate(NAMES)}
        count = np.zeros(new_row.size + 1, dtype=np.int64)
        everything = np.ones(len(others), dtype=np.bool_)
        count_attributes(others.node, new_row, everything, count)
        size = first_node = end = 0
        for part in self.parts:
            self._read_floats(part)
            size += int(count_kept(part.kept, first_node, new_row, count))
            first_node += part.numbers.shape[0]
        at = np.cumsum(count) - count
        out, content = empty_columns(int(count.sum())), np.empty(size, dtype=np.uint8)
        first_node = 0
        while self.parts:  # what is placed is let go of, as there may be a lot of it
            part = self.parts.pop(0)
            values = KeptValues(
                part.kept, self._names(part, names), _CODE_OF_TYPE, self.raw.content,
                part.unescaped,
            )  # fmt: skip
            end = place_kept(values, first_node, new_row, at, out, content, end)
            first_node += part.numbers.shape[0]
            del part, values
        shift = np.zeros(len(ATTRIBUTE_TYPES), dtype=np.int64)
        shift[list(SPAN_CODES)] = size
        codes = [names.setdefault(name, len(names)) for name in others.names]
        columns = (others.node, others.name, others.type, others.value, others.length)
        new_names = np.array(codes, dtype=np.int32)
        place_attributes(columns, new_row, everything, new_names, shift, at, out)
        node, name, kind, value, length = out
        # what has no column is a quarter of the file, which is not to be held for it
        buffers = (content, *others.buffers)
        return Attributes(node, name, kind, value, length, tuple(names), buffers)

    def _names(self, part: FoundNodes, names: dict[str, int]) -> Ints32:
        """Return the codes of names that are not predefined; adds new names."""
        at, length, prefix = part.keys.T
        keys = find_texts(self.raw, at, length)
        texts = [keys.unique[code] for code in keys.codes.tolist()]
        codes = [
            names.setdefault(_PREFIXES[before] + text, len(names))
            for before, text in zip(prefix.tolist(), texts, strict=True)
        ]
        return np.array(codes, dtype=np.int32)

    def _read_floats(self, part: FoundNodes) -> None:
        """Read the numbers with fractions; those that the type cannot hold are kept as JSON."""
        for row, at, size, all_at, all_size in part.doubles.tolist():
            number = np.float64(self.raw.content[at : at + size].tobytes().decode())
            is_double = part.kept[row, 2] & 63 == _FLOATS[0]
            with np.errstate(over="ignore"):
                short = np.float32(number)
            if np.isfinite(number) and (is_double or np.float64(short) == number):
                bits = number.view(np.int64) if is_double else short.view(np.uint32)
                part.kept[row, 1] = int(bits)
            else:
                node = int(part.kept[row, 0]) >> 32
                part.kept[row] = (
                    node << 32 | NAMES.index("attrs"), all_at, all_size << 6 | kernels.TYPE_JSON
                )  # fmt: skip


class _Reader:
    """Reads the nodes of a list, growing its arrays as needed."""

    def __init__(
        self, raw: RawFile, categories: npt.NDArray[np.uint64], at: int, size: int, is_first: bool
    ) -> None:
        self._raw = raw
        self.at = at
        room = max(size // _LIKELY_BYTES, _LEAST_ROOM)
        found = FoundNodes(
            numbers=np.empty((room, len(NUMBERS)), dtype=np.int64),
            kept=np.empty((_LIKELY_ATTRIBUTES * room, 3), dtype=np.int64),
            keys=np.empty((_LEAST_ROOM, 3), dtype=np.int64),
            doubles=np.empty((_LEAST_ROOM, 5), dtype=np.int64),
            again=np.empty((_LEAST_ROOM, 4), dtype=np.int64),
            unescaped=np.empty(1 << 16, dtype=np.uint8),
        )
        self._scan = NodeScan(
            raw.content, Words.of_nodes(_TYPE_WORDS, categories), _TYPE_TABLE, _OLD_TYPE_CODES,
            found, work=np.empty(kernels.WORK_SIZE, dtype=np.int64),
            stack=np.empty(MAX_DEPTH, dtype=np.uint8),
            state=np.zeros(len(STATE), dtype=np.int64),
        )  # fmt: skip
        self._state = self._scan.state
        self._state[STATE["has_begun"]] = not is_first

    def read(self, stop: int) -> bool:
        """Read nodes that begin before ``stop``; return False if one is broken."""
        device = CATEGORIES.index("kernel")
        while True:
            self._end = int(scan_nodes(self._scan, self.at, stop, device))
            if self._end < 0:
                return False
            self.at = self._end
            if not (full := int(self._state[STATE["is_full"]])):
                return True
            name = FoundNodes._fields[full - 1]
            found = self._scan.found
            larger = found._replace(**{name: doubled(found[full - 1])})
            self._scan = self._scan._replace(found=larger)

    def found(self) -> FoundNodes:
        """Return the results, cut to the part in use."""
        sizes = self._state[: len(FoundNodes._fields)].tolist()
        return FoundNodes(
            *(array[:size] for array, size in zip(self._scan.found, sizes, strict=True))
        )

    def error(self) -> FormatError:
        """Return the error that stopped the reading."""
        path = f"$.nodes[{self._state[STATE['row']]}]"
        key, attr = int(self._scan.work[kernels.KEY]), int(self._scan.work[kernels.ATTR])
        return _node_error(self._raw, path, key, attr, self._end)


def read_node_list(
    raw: RawFile, begin: int, categories: npt.NDArray[np.uint64]
) -> tuple[HostNodes, int]:
    """Read the list of nodes that begins at a byte; returns them and the byte after it.

    - ``categories``: The values of ``cat`` and their codes, for linked traces.
    - Raises FormatError if it is not a list of nodes, or broken JSON.
    """
    if raw.content[begin] != ord("["):
        raise type_error(raw, begin, "`array`", "$.nodes")
    readers = read_list(raw.content, begin, partial(_Reader, raw, categories), b"id")
    parts = tuple(reader.found() for reader in readers)
    before = 0
    for part in parts:
        _read_again(raw, part, before)
        _check_times(raw, part, before)
        before += part.numbers.shape[0]
    columns = np.concatenate([part.numbers.T for part in parts], axis=1)
    # of the numbers, how many there are is all that is still needed
    rest = [part._replace(numbers=part.numbers[:, :0].copy()) for part in parts]
    return HostNodes(raw, columns, rest), readers[-1].at + 1


def _node_error(raw: RawFile, path: str, key: int, attr: int, result: int) -> FormatError:
    """Return the error for a failure of the kernel."""
    code, at = failure_of(result)
    if code < kernels.IS_WRONG_TYPE:
        return json_error(raw, code, at)
    if attr >= 0:
        path = f"{path}.attrs[{attr}]"
    name = NODE_KEYS[key] if key >= 0 else ""
    if code == kernels.IS_MISSING:
        what = f"object missing required field `{name}` - at {path}"
        return FormatError(raw.name, what, "record the trace again")
    if key < 0:
        return type_error(raw, at, "`object`", path)
    path = f"{path}.{name}"
    if code == kernels.IS_OUT_OF_RANGE:
        least = "0" if name == "id" else "-2^62"
        what = f"expected `int` from {least} to below 2^62 - at {path}"
        return FormatError(raw.name, what, "record the trace again")
    return type_error(raw, at, _TYPES.get(name, "`int`"), path)


def _read_again(raw: RawFile, found: FoundNodes, before: int) -> None:
    """Read times below 0 or with an exponent, mostly rounding errors of a subtraction."""
    for row, column, at, length in found.again.tolist():
        text = raw.content[at : at + length].tobytes().decode()
        try:
            number = Decimal(text) * 1000
            ns = int(number.to_integral_value(ROUND_HALF_UP)) if number.adjusted() < 19 else -1
        except ArithmeticError:
            ns = -1
        if column == NUMBERS["exclusive"]:
            ns = max(ns, 0)
        if not 0 <= ns < 2**63:
            raise FormatError(
                raw.name,
                f"{text[:40]} is not a time in microseconds - at $.nodes[{before + row}]",
                "link the trace again",
            )
        found.numbers[row, column] = ns


def _check_times(raw: RawFile, found: FoundNodes, before: int) -> None:
    """Reject times before 1970, and ends beyond the range of int64 nanoseconds."""
    start, duration, exclusive = (
        found.numbers[:, NUMBERS[name]] for name in ("start", "duration", "exclusive")
    )
    for key, wrong, what in (
        ("ts", start < -1, "lies before 1970"),
        ("inclusive_dur", duration < -1, "is negative"),
        ("exclusive_dur", exclusive < -1, "is negative"),
        ("inclusive_dur", duration > _END_OF_TIME - np.maximum(start, 0), "is too long"),
    ):
        if wrong.any():
            path = f"$.nodes[{before + int(np.argmax(wrong))}].{key}"
            raise FormatError(raw.name, f"{key} {what} - at {path}", "link the trace again")


def recorded_bytes(rows: Ints, attributes: Attributes) -> Ints:
    """Sum the bytes of the tensors in Kineto's ``Input Dims`` and ``Input type``.

    - ``rows``: int64: rows of nodes.
    - ``attributes``: The trace's; only those of ``rows`` are read.
    - Returns int64, shape (rows,): Bytes; -1 if the profiler recorded no shapes, or no types (lists
      of tensors).
    """
    return np.array(
        [_bytes(attributes.of(int(row), "args").get("args")) for row in rows], dtype=np.int64
    )


def _bytes(args: Any) -> int:
    dims = args.get("Input Dims") if isinstance(args, dict) else None
    types = args.get("Input type") if isinstance(args, dict) else None
    if not isinstance(dims, list) or not isinstance(types, list):
        return -1
    sizes = []
    for shape, name in zip(dims, types, strict=False):
        size = ITEMSIZE.get(name) if isinstance(name, str) else None
        if size and isinstance(shape, list):
            if not all(isinstance(length, int) and 0 <= length < 2**40 for length in shape):
                return -1
            sizes.append(size * prod(shape))
    return min(sum(sizes), MAX_BYTES) if sizes else -1


def tensor_bytes(value: Any) -> Iterator[int]:
    """Return the total bytes of tensors in nested lists.

    A tensor is [id, storage, offset, elements, itemsize, device].
    """
    if not isinstance(value, list):
        return
    if len(value) == 6 and isinstance(value[5], str):
        elements, itemsize = value[3:5]
        if all(isinstance(number, int) and 0 <= number < 2**40 for number in (elements, itemsize)):
            yield elements * itemsize
    else:
        for item in value:
            yield from tensor_bytes(item)
