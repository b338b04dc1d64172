"""Operands that are made as columns: tables at once, and texts only for files that state texts.

A generated trace has the same operations for each micro-batch. So its operands are arithmetic with
columns, and no text is written and parsed unless all attributes are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.trace.arrays import Bools, Ints, Ints32
from nadi.trace.attributes import CODES, Attributes, LazyAttributes, Part, combined
from nadi.trace.operands import OPERAND_NAMES, OperandTables, TensorUses
from nadi.trace.operations import DTYPES, ITEMSIZE
from nadi.trace.schema import OPERANDS, TENSORS

_CPP = {dtype.torch: dtype.cpp[0] for dtype in DTYPES}
_WORD_SIZE = 8


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
            "type": _chosen(names, of_operand), "tensor": self.tensor,
        })  # fmt: skip
        tensors = TENSORS.build(self.tensor_id.size, {
            "tensor_id": self.tensor_id, "storage_id": self.storage_id, "offset": self.offset,
            "elements": elements, "itemsize": itemsize, "device": self.device,
            "dtype": _chosen([_CPP[one.dtype] for one in self.types], self.kind),
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


def _chosen(names: Sequence[str], number: Ints) -> pl.Series:
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
