"""The tables of tensors and operands, parsed from attributes on first access, or made as columns.

A file states the inputs and outputs of each node as text: values, shapes, types and
strides, in four lists each. A large trace has millions of them, so a kernel parses them
and keeps every text and every tensor once.

A generated trace has the same operations for each micro-batch. So its operands are arithmetic with
columns, and no text is written and parsed unless all attributes are asked for.
"""

import ast
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.kernels.tensor_accesses import byte_ranges
from nadi.trace.arrays import Bools, Bytes, Ints, Ints32
from nadi.trace.attributes import CODES, Attributes, LazyAttributes, Part, combined
from nadi.trace.operand_kernels import Leaves, Names, Tensors, bound_items, read_operands
from nadi.trace.operations import DTYPES, ITEMSIZE
from nadi.trace.schema import OPERANDS, TENSORS, UNREADABLE

_KINDS = ("values", "shapes", "types", "strides")
# the attributes of type operand, in the order that the kernel takes them in
OPERAND_NAMES = tuple(f"{side}.{kind}" for side in ("inputs", "outputs") for kind in _KINDS)
_WORD_SIZE = 8
_SETS_AT_ONCE = 1 << 14
_NO_MEMORY = "meta"  # the device of tensors that have a shape and no data
_WORDS = {"True": "true", "False": "false", "None": "null"}


class OperandTables(NamedTuple):
    """Both tables, as the schema declares them; operands refer to rows of tensors."""

    operands: pl.DataFrame
    tensors: pl.DataFrame


def operand_tables(attributes: Attributes) -> OperandTables:
    """Read the tensors and operands of all nodes.

    - ``attributes``: Those of type ``operand`` named as in :data:`OPERAND_NAMES` are read: lists as
      JSON or as Python's ``str`` writes them. Missing and short lists are fine: values that have no
      type have the type ``""``, tensors without a shape an empty one. If a name occurs twice in a
      node, the last one counts.
    - Returns: In order of node, inputs first. A text that cannot be parsed is kept whole as a row
      with position -1; the other texts of the node are parsed regardless. O(bytes), times the depth
      of lists in lists, which is 60 at most.
    """
    text, start, length = _spans(attributes)
    sets = np.flatnonzero(length.any(axis=1))
    leaves, tensors, names, num_unread = _read(text, start[sets], length[sets])
    texts = _texts(text, names)
    operands = _operands(leaves, sets, texts)
    if num_unread:
        operands = operands.sort("node", "is_output", "position", "item")
    return OperandTables(operands, _tensors(tensors, texts))


class InputLeaf(NamedTuple):
    """An input of a node: one tensor, scalar or empty list, as ``schema.OPERANDS`` has them."""

    item: int
    type: str
    bytes: int  # of a tensor, else -1
    value: str


def input_leaves(attributes: Attributes) -> Iterator[tuple[int, int, InputLeaf]]:
    """Iterate over node, position and input of few nodes; tables of them take longer.

    As in :func:`operand_tables`, but for texts that cannot be parsed.
    """
    text, start, length = _spans(attributes)
    sets = np.flatnonzero(length.any(axis=1))
    leaves, tensors, names, _ = _read(text, start[sets], length[sets])
    texts = _texts(text, names)
    size = int(leaves.size[0])
    of_set = sets[leaves.set[:size]]
    kept = np.flatnonzero((of_set % 2 == 0) & (leaves.position[:size] >= 0))
    types, values = leaves.type[kept], leaves.value[kept]
    type_of = [*_apply(_unescaped, texts, types), UNREADABLE]
    value_of = [*_apply(_scalar, texts, values), ""]
    numbers = tensors.numbers[: int(tensors.size[0])]
    sizes = np.append(numbers[:, 3] * numbers[:, 4], -1)[leaves.tensor[kept]]
    columns = (of_set[kept] // 2, leaves.position[kept], leaves.item[kept], types, sizes, values)
    for node, position, item, kind, num_bytes, value in np.stack(columns, axis=1).tolist():
        yield node, position, InputLeaf(item, type_of[kind], num_bytes, value_of[value])


class TensorUses(NamedTuple):
    """The input and output tensors of nodes, as arrays, without the other operands."""

    # node, position: int64, shape (uses,): row of the node, ascending; place in the list of its
    # inputs or of its outputs
    node: Ints
    position: Ints
    is_output: Bools  # bool, shape (uses,)
    tensor: Ints  # int64, shape (uses,): which of ``storage``, ``begin`` and ``end``
    # identity, storage: int64, shape (tensors,): a number for each tensor id, and for each storage
    # on each device, both from 0
    identity: Ints
    storage: Ints
    device: Ints  # int64, shape (tensors,): which of ``devices``
    # begin, end: int64, shape (tensors,): the smallest range of bytes of the storage that the
    # tensor lies in; equal for one without memory
    begin: Ints
    end: Ints
    is_word: Bools  # bool, shape (tensors,): whether its elements have 8 bytes
    # num_tensors, num_storages: how many numbers ``identity`` and ``storage`` have
    num_tensors: int
    num_storages: int
    # number of uses of tensors without recorded strides, which are treated as contiguous
    num_without_strides: int
    devices: tuple[str, ...]  # names of the devices


def tensor_uses(attributes: Attributes, chosen: Bools | None = None) -> TensorUses:
    """Return the memory ranges of the tensors of some nodes, without building tables.

    - ``attributes``: As for :func:`operand_tables`.
    - ``chosen``: bool, shape (nodes,); by default all are read.
    """
    text, start, length = _spans(attributes, chosen)
    sets = np.flatnonzero(length[:, 0])
    length[:, _KINDS.index("types")] = 0
    # a few at a time, which need little room; two at once, as kernels hold no lock meanwhile
    some = np.split(sets, range(_SETS_AT_ONCE, sets.size, _SETS_AT_ONCE))
    with ThreadPoolExecutor(2) as executor:
        parts = list(executor.map(partial(_uses, text, start, length), some))
    devices: dict[str, int] = {}
    for _, columns, names in parts:
        number = [devices.setdefault(name, len(devices)) for name in names]
        columns[2] = np.array(number, dtype=np.int64)[columns[2]]
    uses = [np.concatenate(column) for column in zip(*(part[0] for part in parts), strict=True)]
    sizes = [part[1].shape[1] for part in parts]
    of_set, position, tensor = uses
    tensor += np.repeat(np.cumsum(sizes) - sizes, [part[0][0].size for part in parts])
    ids, storages, device, begin, end, is_word, is_unknown = np.concatenate(
        [part[1] for part in parts], axis=1
    )
    known, identity = np.unique(ids, return_inverse=True)
    _, storage = np.unique(storages, return_inverse=True)
    # an id that stands for memory of two devices was given anew
    different, storage = np.unique(storage * len(devices) + device, return_inverse=True)
    return TensorUses(
        node=of_set // 2,
        position=position,
        is_output=of_set % 2 == 1,
        tensor=tensor,
        identity=identity,
        storage=storage,
        device=device,
        begin=begin,
        end=np.where(device == devices.get(_NO_MEMORY, -1), begin, end),
        is_word=is_word > 0,
        num_tensors=known.size,
        num_storages=different.size,
        num_without_strides=int(is_unknown[tensor].sum()),
        devices=tuple(devices),
    )


def _uses(
    text: Bytes, start: Ints, length: Ints, sets: Ints
) -> tuple[tuple[Ints, Ints, Ints], Ints, list[str]]:
    """Read the tensors of some sets of texts.

    - Returns uses: Set, position and tensor of each use; int64, shape (uses,) each.
    - and tensors: int64, shape (7, tensors): id, storage, device, beginning and end, and whether
      its elements have 8 bytes and whether its strides are missing.
    - and devices: Names of the devices.
    """
    leaves, tensors, names, _ = _read(text, start[sets], length[sets])
    uses = np.flatnonzero(leaves.tensor[: leaves.size[0]] >= 0)
    size = int(tensors.size[0])
    numbers = tensors.numbers[:size]
    begin, end = np.empty((2, size), dtype=np.int64)
    byte_ranges(
        tensors.numbers, tensors.first_dim, tensors.num_dims, tensors.num_strides, tensors.dims,
        begin, end,
    )  # fmt: skip
    code, device = np.unique(tensors.device[:size], return_inverse=True)
    is_unknown = (tensors.num_strides[:size] == 0) & (tensors.num_dims[:size] > 0)
    of_tensors = (
        numbers[:, 0], numbers[:, 1], device, begin, end, numbers[:, 4] == _WORD_SIZE, is_unknown,
    )  # fmt: skip
    of_uses = sets[leaves.set[uses]], leaves.position[uses], leaves.tensor[uses]
    set_, position, tensor = (column.astype(np.int64) for column in of_uses)
    columns = np.array(of_tensors, dtype=np.int64).reshape(7, size)
    return (set_, position, tensor), columns, _texts(text, names, code)


def _read(text: Bytes, start: Ints, length: Ints) -> tuple[Leaves, Tensors, Names, int]:
    """Parse sets of four texts; also return the number of texts that cannot be parsed."""
    values, dims = length[:, :1].copy(), length.copy()
    dims[:, [0, 2]] = 0
    leaves, tensors, names = _room(
        len(start),
        bound_items(text, start[:, 0].copy(), values.ravel()),
        bound_items(text, start.ravel(), dims.ravel()),
    )
    return leaves, tensors, names, read_operands(text, start, length, leaves, tensors, names)


def _spans(attributes: Attributes, chosen: Bools | None = None) -> tuple[Bytes, Ints, Ints]:
    """Return the bytes, and start and length of the texts of each node's inputs and outputs."""
    number = {name: place for place, name in enumerate(OPERAND_NAMES)}
    place_of = np.array([number.get(name, -1) for name in attributes.names] or [-1])
    is_operand = attributes.type == CODES["operand"]
    is_operand &= attributes.node >= 0
    rows = np.flatnonzero(is_operand)
    if chosen is not None:
        rows = rows[chosen[attributes.node[rows]]]
    place = place_of[attributes.name[rows]]
    rows, place = rows[place >= 0], place[place >= 0]
    node = attributes.node[rows].astype(np.int64)
    start = np.zeros((int(node.max(initial=-1)) + 1, len(OPERAND_NAMES)), dtype=np.int64)
    length = np.zeros_like(start)
    text, before = attributes.bytes_around(rows)
    start[node, place] = attributes.value[rows] - before
    length[node, place] = attributes.length[rows]
    return text, start.reshape(-1, len(_KINDS)), length.reshape(-1, len(_KINDS))


def _room(num_sets: int, num_items: int, num_dims: int) -> tuple[Leaves, Tensors, Names]:
    """Allocate arrays that are always large enough; untouched memory costs nothing."""

    def ints(size: int) -> Ints32:
        return np.empty(size, dtype=np.int32)

    def slots(size: int) -> Ints32:
        return np.zeros(1 << (2 * size + 2).bit_length(), dtype=np.int32)

    def one() -> Ints:
        return np.zeros(1, dtype=np.int64)

    num_leaves = num_items + len(_KINDS) * num_sets
    num_tensors = num_items + 2  # one is being read, and one more has a beginning
    num_names = 2 * num_leaves + 2 * num_tensors
    leaves = Leaves(
        set=ints(num_leaves),
        position=ints(num_leaves),
        item=ints(num_leaves),
        type=ints(num_leaves),
        value=ints(num_leaves),
        tensor=ints(num_leaves),
        size=one(),
    )
    tensors = Tensors(
        numbers=np.empty((num_tensors, 5), dtype=np.int64),
        device=ints(num_tensors),
        dtype=ints(num_tensors),
        first_dim=np.zeros(num_tensors, dtype=np.int64),
        num_dims=ints(num_tensors),
        num_strides=ints(num_tensors),
        dims=np.empty(num_dims + 1, dtype=np.int64),
        slots=slots(num_tensors),
        size=one(),
    )
    names = Names(np.empty(num_names, dtype=np.int64), ints(num_names), slots(num_names), one())
    return leaves, tensors, names


def _texts(text: Bytes, names: Names, chosen: Ints32 | None = None) -> list[str]:
    """Return every distinct text, or those with some numbers."""
    rows = np.arange(int(names.size[0])) if chosen is None else chosen
    spans = zip(names.start[rows].tolist(), names.length[rows].tolist(), strict=True)
    view = text.data
    # what is no UTF-8 shows as replaced; its bytes stay with the attributes
    return [str(view[start : start + length], "utf-8", "replace") for start, length in spans]


def _operands(leaves: Leaves, sets: Ints, texts: list[str]) -> pl.DataFrame:
    size = int(leaves.size[0])
    of_set, position = sets[leaves.set[:size]], leaves.position[:size]
    types, values = leaves.type[:size], leaves.value[:size]
    # a text that cannot be read stands as it is, after all others
    values = np.where(position < 0, values + len(texts), values)
    columns = {
        "node": of_set // 2,
        "is_output": of_set % 2 == 1,
        "position": position,
        "item": leaves.item[:size],
        "type": _chosen(types, _apply(_unescaped, texts, types), UNREADABLE),
        "tensor": leaves.tensor[:size],
        "value": _chosen(values, _apply(_scalar, texts, values) + texts, ""),
    }
    return OPERANDS.build(size, {name: pl.Series(column) for name, column in columns.items()})


def _apply(function: Callable[[str], str], texts: list[str], numbers: Ints32) -> list[str]:
    """Apply a function to the texts that are among ``numbers``; the others are left empty."""
    used = np.zeros(2 * len(texts) + 1, dtype=np.bool_)
    used[numbers] = True  # -1 is the last
    return [
        function(text) if is_used else ""
        for text, is_used in zip(texts, used[: len(texts)].tolist(), strict=True)
    ]


def _chosen(numbers: Ints32, texts: list[str], otherwise: str) -> pl.Series:
    """Return the text of each number; ``otherwise`` for -1."""
    rows = np.where(numbers < 0, len(texts), numbers).astype(np.uint32)
    return pl.Series([*texts, otherwise], dtype=pl.String)[rows]


def _scalar(text: str) -> str:
    """Format a scalar or an empty list as in ``schema.OPERANDS``."""
    if text[:1] in ("[", "("):
        return "[]"
    if text[:1] in ("'", '"'):
        return _unescaped(text[1:-1], text[0])
    return _WORDS.get(text, text)


def _unescaped(text: str, quote: str = '"') -> str:
    """Resolve the escapes of JSON or of Python in a quoted text."""
    if "\\" not in text:
        return text
    try:
        # most escapes are the same in both; a text that both can read reads the same
        plain = json.loads(f'"{text}"', strict=False) if quote == '"' else None
    except ValueError:
        plain = None
    if plain is None:
        try:
            plain = ast.literal_eval(f"{quote}{text}{quote}")
        except (ValueError, SyntaxError):
            return text
    # half a surrogate pair is no text
    return str(plain).encode("utf-8", "backslashreplace").decode()


def _tensors(tensors: Tensors, texts: list[str]) -> pl.DataFrame:
    size = int(tensors.size[0])
    numbers = tensors.numbers[:size]
    device, dtype = tensors.device[:size], tensors.dtype[:size]
    first, num_dims = tensors.first_dim[:size], tensors.num_dims[:size]
    names = ("tensor_id", "storage_id", "offset", "elements", "itemsize")
    columns = {name: pl.Series(numbers[:, place]) for place, name in enumerate(names)} | {
        "device": _chosen(device, _apply(_unescaped, texts, device), ""),
        "dtype": _chosen(dtype, _apply(_unescaped, texts, dtype), ""),
        "shape": _lists(tensors.dims, first, num_dims),
        "strides": _lists(tensors.dims, first + num_dims, tensors.num_strides[:size]),
    }
    return TENSORS.build(size, columns)


def _lists(items: Ints, first: Ints, length: Ints32) -> pl.Series:
    """Return a series of lists, each a span of ``items``."""
    parts = [pl.Series([], dtype=pl.List(pl.Int64))]
    order = np.empty(length.size, dtype=np.uint32)
    done = 0
    # lists of one length are a matrix; there are few lengths
    for size in np.unique(length).tolist():
        rows = np.flatnonzero(length == size)
        matrix = items[first[rows, None] + np.arange(size)]
        if size:
            part = pl.Series(matrix).cast(pl.List(pl.Int64))
        else:
            part = pl.Series([[]], dtype=pl.List(pl.Int64)).new_from_index(0, rows.size)
        parts.append(part)
        order[rows] = np.arange(done, done + rows.size)
        done += rows.size
    return pl.concat(parts)[order]


_CPP = {dtype.torch: dtype.cpp[0] for dtype in DTYPES}


class TensorType(NamedTuple):
    """Shape and type of elements, under the name that PyTorch has for it in Python."""

    shape: tuple[int, ...]
    dtype: str


class OperandColumns(NamedTuple):
    """The operands of a trace, which are all tensors on one device.

    Attributes
    ----------
    node, position
        int64, shape (operands,): row of the node, ascending, inputs first; and place among its
        inputs or outputs.
    is_output
        bool, shape (operands,).
    tensor
        int64, shape (operands,): row of the next three.
    tensor_id, storage_id, offset
        int64, shape (tensors,): ids from 1, and the first element in the storage. Tensors come in
        the order in which operands have them first.
    kind
        int64, shape (tensors,): which of ``types``.
    types
        Each different shape and type.
    device
        Such as ``cuda:0``.
    role
        int64, shape (tensors,): which of ``roles``; -1 for none.
    roles
        What tensors are for (``schema.TENSOR_ROLES``).
    """

    node: Ints
    is_output: Bools
    position: Ints
    tensor: Ints
    tensor_id: Ints
    storage_id: Ints
    offset: Ints
    kind: Ints
    types: tuple[TensorType, ...]
    device: str
    role: Ints
    roles: tuple[str, ...]

    def tables(self) -> OperandTables:
        """Return the tables as the schema declares them."""
        elements, itemsize = self._sizes()
        names = [f"Tensor({_CPP[one.dtype]})" for one in self.types]
        shapes = pl.Series([list(one.shape) for one in self.types], dtype=pl.List(pl.Int64))
        of_operand = self.kind[self.tensor]
        operands = OPERANDS.build(self.node.size, {
            "node": self.node, "is_output": self.is_output, "position": self.position,
            "type": _texts_of(names, of_operand), "tensor": self.tensor,
        })  # fmt: skip
        tensors = TENSORS.build(self.tensor_id.size, {
            "tensor_id": self.tensor_id, "storage_id": self.storage_id, "offset": self.offset,
            "elements": elements, "itemsize": itemsize, "device": self.device,
            "dtype": _texts_of([_CPP[one.dtype] for one in self.types], self.kind),
            "shape": shapes.gather(self.kind),
            "strides": pl.Series([[]], dtype=pl.List(pl.Int64)).new_from_index(
                0, self.tensor_id.size
            ),
        })  # fmt: skip
        return OperandTables(operands, tensors)

    def uses(self) -> TensorUses:
        """Return the memory ranges of the tensors; all are contiguous."""
        elements, itemsize = self._sizes()
        known, identity = np.unique(self.tensor_id, return_inverse=True)
        storages, storage = np.unique(self.storage_id, return_inverse=True)
        return TensorUses(
            node=self.node, position=self.position, is_output=self.is_output, tensor=self.tensor,
            identity=identity, storage=storage, device=np.zeros_like(self.tensor_id),
            begin=self.offset * itemsize, end=(self.offset + elements) * itemsize,
            is_word=itemsize == _WORD_SIZE, num_tensors=known.size, num_storages=storages.size,
            num_without_strides=self.tensor.size, devices=(self.device,),
        )  # fmt: skip

    def texts(self) -> Attributes:
        """Return the operands as attributes, in the texts that recordings state."""
        first = np.flatnonzero(np.diff(self.node * 2 + self.is_output, prepend=-1))
        end = np.append(first[1:], self.node.size)
        values, shapes, types = self._parts()
        # what operands are does not depend on the micro-batch: few different texts
        of_types = _joined([types[kind] for kind in self.kind[self.tensor].tolist()], first, end)
        of_shapes = _joined([shapes[kind] for kind in self.kind[self.tensor].tolist()], first, end)
        of_values = _joined([values[row] for row in self.tensor.tolist()], first, end)
        node, is_output = self.node[first], self.is_output[first]
        return _of_texts(node, is_output, (of_values, of_shapes, of_types))

    def _sizes(self) -> tuple[Ints, Ints]:
        """Return elements and bytes of an element of each tensor."""
        elements = [int(np.prod(one.shape, dtype=np.int64)) for one in self.types]
        sizes = [ITEMSIZE[one.dtype] for one in self.types]
        both = np.array([elements, sizes], dtype=np.int64).reshape(2, -1)[:, self.kind]
        return both[0], both[1]

    def _parts(self) -> tuple[list[str], list[str], list[str]]:
        """Return the value of each tensor, and the shape and type of each kind, as JSON."""
        elements, itemsize = self._sizes()
        numbers = (self.tensor_id, self.storage_id, self.offset, elements, itemsize)
        values = [
            f'[{tensor},{storage},{offset},{count},{size},"{self.device}"]'
            for tensor, storage, offset, count, size in zip(
                *(column.tolist() for column in numbers), strict=True
            )
        ]
        shapes = [f"[{','.join(map(str, one.shape))}]" for one in self.types]
        return values, shapes, [f'"Tensor({_CPP[one.dtype]})"' for one in self.types]


def _texts_of(names: Sequence[str], number: Ints) -> pl.Series:
    return pl.Series(names, dtype=pl.String).gather(number)


def _joined(items: Sequence[str], first: Ints, end: Ints) -> list[str]:
    """Return the list of each operation's inputs or outputs, as JSON."""
    spans = zip(first.tolist(), end.tolist(), strict=True)
    return [f"[{','.join(items[begin:stop])}]" for begin, stop in spans]


def _of_texts(node: Ints, is_output: Bools, texts: Sequence[Sequence[str]]) -> Attributes:
    """Return attributes of lists of inputs or outputs; each different text is stored once."""
    known: dict[str, int] = {}
    number = [[known.setdefault(one, len(known)) for one in of_kind] for of_kind in texts]
    content = [text.encode() for text in known]
    size = np.array([len(text) for text in content], dtype=np.int64)
    chosen = np.array(number, dtype=np.int64).reshape(len(texts), -1).T.reshape(-1)
    names = tuple(
        f"{side}.{kind}" for side in ("inputs", "outputs") for kind in ("values", "shapes", "types")
    )
    assert set(names) < set(OPERAND_NAMES)
    kinds = np.tile(np.arange(len(texts)), node.size)
    return Attributes(
        node=np.repeat(node, len(texts)).astype(np.int32),
        name=(np.repeat(is_output, len(texts)) * len(texts) + kinds).astype(np.int32),
        type=np.full(chosen.size, CODES["operand"], dtype=np.uint8),
        value=(np.cumsum(size) - size)[chosen] if size.size else chosen,
        length=size[chosen].astype(np.int32) if size.size else chosen.astype(np.int32),
        names=names,
        buffers=(np.frombuffer(b"".join(content), dtype=np.uint8).copy(),),
    )


class AttributesWithOperands(LazyAttributes):
    """Attributes beside operands that are columns; ``value`` states these as texts, too.

    Parameters
    ----------
    load
        Reads the attributes other than operands.
    load_operands
        Makes the operands.
    """

    def __init__(
        self, load: Callable[[], Attributes], load_operands: Callable[[], OperandColumns]
    ) -> None:
        super().__init__(
            lambda: combined([Part(self.without_operands), Part(self.operands.texts())])
        )
        self._others, self._load_operands = LazyAttributes(load), load_operands

    @cached_property
    def operands(self) -> OperandColumns:
        """The operands."""
        return self._load_operands()

    @property
    def without_operands(self) -> Attributes:
        """The other attributes."""
        return self._others.value

    def nodes_with(self, name: str) -> Ints32:
        """Return the nodes that have an attribute with a name, ascending; shape (such nodes,)."""
        if name in OPERAND_NAMES:
            return self.value.nodes_with(name)
        return self._others.nodes_with(name)
