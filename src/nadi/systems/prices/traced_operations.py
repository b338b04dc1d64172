"""What the nodes of a trace state about their work: columns, attributes, and operands."""

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any

import msgspec
import numpy as np
import polars as pl

from nadi.trace.arrays import Bools, Ints
from nadi.trace.attributes import Attributes
from nadi.trace.operations import ITEMSIZE, Operations, dtype_code, no_operations, op_class_code
from nadi.trace.rows import nearest, number_rows
from nadi.trace.trace import Trace
from nadi.trace.work import GATHER, OPERATORS, VIEWS, Operands, covered_bytes, work_of

_WORD = 8
_SIZES = 4  # of a shape
_LARGEST = 1 << 40
_SIGNATURE = ("is_output", "position", "shape", "strides", "itemsize", "value", "again")


def stated_operations(trace: Trace) -> Operations:
    """Return what nodes state in the columns ``flops`` and ``bytes`` and in attributes.

    The attributes are ``op_class``, ``dtype`` (PyTorch's name) and ``gemm_shape`` (four sizes);
    values that are not understood count as not stated. A row per node; O(nodes + attributes).
    """
    size = trace.nodes.height
    found = no_operations(size)
    flops, moved = trace.column("flops"), trace.column("bytes")
    found = found._replace(flops=np.maximum(flops, -1), bytes=np.maximum(moved, -1))
    attributes = trace.attributes_without_operands
    if not any(name in attributes.names for name in ("op_class", "dtype", "gemm_shape")):
        return found
    for name, column, code in (
        ("op_class", found.op_class, op_class_code),
        ("dtype", found.dtype, dtype_code),
    ):
        node, number, values = distinct_values(attributes, name)
        codes = [code(value) if isinstance(value, str) else 0 for value in values]
        column[node] = np.array(codes, dtype=np.int64)[number] if codes else 0
    node, number, values = distinct_values(attributes, "gemm_shape")
    shapes = np.array([_sizes(value) for value in values], dtype=np.int64).reshape(-1, _SIZES)
    found.shape[node] = shapes[number]
    return found


def _sizes(value: Any) -> list[int]:
    """Return four sizes, or that they are unknown."""
    is_shape = isinstance(value, list) and len(value) == _SIZES
    if is_shape and all(isinstance(one, int) and 0 < one < _LARGEST for one in value):
        return list(value)
    return [-1] * _SIZES


def distinct_values(attributes: Attributes, name: str) -> tuple[Ints, Ints, list[Any]]:
    """Return the nodes that have an attribute, and each of its different values once.

    - Returns node, number: int64, shape (such nodes,): row of ``nodes``, and position of its value.
    - and values: As Python values. O(attributes), and O(different values) to decode them.
    """
    rows = attributes.rows_named(name)
    rows = rows[attributes.node[rows] >= 0]
    if not rows.size:
        return rows, rows, []
    columns = [attributes.type[rows].astype(np.int64), attributes.length[rows].astype(np.int64)]
    begin = attributes.value[rows]
    is_span = attributes.is_span[rows]
    columns.append(np.where(is_span, 0, begin))
    longest = int(columns[1].max()) if is_span.any() else 0
    text = attributes.bytes()
    for at in range(0, longest, _WORD):
        word = np.zeros(rows.size, dtype=np.int64)
        for byte in range(at, min(at + _WORD, longest)):
            inside = is_span & (columns[1] > byte)
            place = np.where(inside, begin + byte, 0)
            word = (word << 8) | np.where(inside, text[place], 0)
        columns.append(word)
    number, first = number_rows(columns)
    values = [attributes.python_value(int(row)) for row in rows[first]]
    return attributes.node[rows].astype(np.int64), number, values


# operators of PyTorch, by their operands


def operators_of(trace: Trace) -> tuple[Bools, Operations]:
    """Return which nodes are operators of PyTorch that stand for kernels, and their work.

    These are the outermost operators whose class is known (:data:`nadi.trace.work.OPERATORS`),
    and beside them those without an operator inside that do more than to return a view.
    Operations, bytes and shapes follow from the operands.

    - Returns stands: bool, shape (nodes,).
    - and operations: A row per node. O(nodes + operands), and O(different operands) for shapes.
    """
    stands, names = _standing(trace)
    found = no_operations(stands.size)
    uses = trace.operands.filter(pl.col("position") >= 0)
    if not uses.height:
        return np.zeros(stands.size, dtype=np.bool_), found
    chosen = uses.filter(pl.Series(stands[uses["node"].to_numpy()]))
    signature = _signatures(trace, chosen)
    stands &= np.isin(np.arange(stands.size), signature["node"].to_numpy())
    _fill(found, names, signature)
    return stands, found


def profiled_operators(trace: Trace) -> tuple[Bools, Operations]:
    """Return what :func:`operators_of` does, of what the profiler states of inputs.

    Results are not recorded: an operator counts as writing as much as its largest input has, or
    what it gathers.
    """
    stands, names = _standing(trace)
    found = no_operations(stands.size)
    has_shapes = np.zeros(stands.size, dtype=np.bool_)
    known: dict[str, tuple[int, int, int, tuple[int, ...]]] = {}
    for node, args in profiled_args(trace, stands):
        name = names[node]
        key = f"{name}{args.dims}{args.types}{args.values}"
        if key not in known:
            operands = args.operands()
            work = work_of(name, operands._replace(written=_written(name, operands)))
            shape = work.shape or (-1,) * _SIZES
            known[key] = op_class_code(work.op_class), work.flops, work.bytes, shape
        found.op_class[node], found.flops[node], found.bytes[node], found.shape[node] = known[key]
        found.dtype[node] = dtype_code(args.dtype)
        has_shapes[node] = True
    return stands & has_shapes, found


def _written(name: str, operands: Operands) -> int:
    if name in GATHER and len(operands.inputs) > 1:
        table, rows = operands.inputs[:2]
        return prod(rows) * prod(table[1:]) * operands.itemsizes[0]
    return max(operands.sizes, default=0)


def _standing(trace: Trace) -> tuple[Bools, pl.Series]:
    """Return which nodes are operators that stand for kernels, and the names of all nodes."""
    names = trace.nodes["name"].cast(pl.String)
    is_operator = trace.category_mask("operator") & trace.name_mask(r"^\w+::")
    is_operator &= ~trace.name_mask("^autograd::")
    parent = trace.column("parent")
    is_known = is_operator & names.is_in(list(OPERATORS)).to_numpy()
    is_inside = nearest(parent, parent, is_known) >= 0
    is_leaf = is_operator.copy()
    is_leaf[parent[is_operator & (parent >= 0)]] = False
    stands = (is_known | is_leaf) & ~is_inside & ~names.is_in(list(VIEWS)).to_numpy()
    return stands, names


def _signatures(trace: Trace, chosen: pl.DataFrame) -> pl.DataFrame:
    """Return the operands of each node: a row per node with tensors."""
    tensors = trace.tensors.select("shape", "strides", "itemsize", "dtype").with_row_index("tensor")
    is_tensor = pl.col("tensor") >= 0
    joined = chosen.with_columns(
        again=is_tensor & ~pl.struct("node", "tensor", "is_output").is_first_distinct(),
        tensor=pl.when(is_tensor).then("tensor").cast(pl.UInt32),
    ).join(tensors, on="tensor", how="left", maintain_order="left")
    return joined.group_by("node", maintain_order=True).agg(
        *_SIGNATURE, dtype_first=pl.col("dtype").drop_nulls().first()
    ).filter(pl.col("dtype_first").is_not_null())  # fmt: skip


def _operands(columns: Iterable[Sequence[Any]]) -> Operands:
    """Return the operands of a node, of which each place may hold a list."""
    places: list[list[Any]] = []  # shape, bytes, itemsize, value
    outputs: list[Sequence[int]] = []
    written, before = 0, -1
    for is_output, place, shape, strides, itemsize, value, again in zip(*columns, strict=True):
        size = covered_bytes(shape, strides, itemsize) if itemsize is not None else 0
        if is_output:
            outputs += [shape] if itemsize is not None else []
            written += size
        elif place == before:  # of a list
            places[-1][1] += 0 if again else size
            places[-1][3] += f",{value}"
            places[-1][0] = ()
        else:
            places.append([shape or (), 0 if again else size, itemsize or 0, value])
            before = place
    shapes, sizes, itemsizes, values = zip(*places, strict=True) if places else ((),) * 4
    return Operands(shapes, sizes, itemsizes, values, outputs, written)


def _fill(found: Operations, names: pl.Series, signature: pl.DataFrame) -> None:
    """Fill in the work of nodes with tensors, each different signature once."""
    known: dict[Any, tuple[int, int, int, tuple[int, ...]]] = {}
    node = signature["node"].to_numpy()
    types = signature["dtype_first"].cast(pl.String).to_list()
    code = {name: dtype_code(name) for name in set(types)}
    found.dtype[node] = [code[name] for name in types]
    named = names.gather(node.astype(np.uint32)).to_list()
    for row, name, columns in zip(
        node.tolist(), named, signature.select(_SIGNATURE).iter_rows(), strict=True
    ):
        key = name, str(columns)
        if key not in known:
            work = work_of(name, _operands(columns))
            shape = work.shape or (-1,) * _SIZES
            known[key] = op_class_code(work.op_class), work.flops, work.bytes, shape
        found.op_class[row], found.flops[row], found.bytes[row], found.shape[row] = known[key]


def launching_operators(trace: Trace, kernels: Ints, stands: Bools) -> Ints:
    """Return the operator that launched each kernel; -1 if none did.

    - ``kernels``: int64: rows of device work.
    - ``stands``: bool, shape (nodes,): the operators that count.
    """
    launch = trace.deps.filter(pl.col("kind") == "launch")
    call = np.full(trace.nodes.height, -1, dtype=np.int64)
    call[launch["dst"].to_numpy()] = launch["src"].to_numpy()
    return nearest(call[kernels], trace.column("parent"), stands)


_LONGEST_SIDE = 1 << 62


class ProfiledArgs(msgspec.Struct):
    """What the profiler writes of the inputs of an operator."""

    dims: list[object] = msgspec.field(default_factory=list, name="Input Dims")
    types: list[str] = msgspec.field(default_factory=list, name="Input type")
    values: list[str] = msgspec.field(default_factory=list, name="Concrete Inputs")

    @property
    def dtype(self) -> str:
        """The type of elements of the first tensor, such as ``BFloat16``; empty for none."""
        kind = next((one for one in self.types if one and "Scalar" not in one), "")
        return kind.removeprefix("c10::")

    def operands(self) -> Operands:
        """Return the operands: inputs alone."""
        shapes = [
            list(one) if isinstance(one, list) and all(map(_is_side, one)) else []
            for one in self.dims  # empty for lists of tensors, and for sides that no tensor has
        ]
        items = [ITEMSIZE.get(one, 0) for one in self.types]
        items += [0] * (len(shapes) - len(items))
        sizes = [prod(one) * item if one else 0 for one, item in zip(shapes, items, strict=False)]
        return Operands(shapes, sizes, items, self.values)


_decoder = msgspec.json.Decoder(ProfiledArgs)


def profiled_args(trace: Trace, wanted: Bools) -> Iterator[tuple[int, ProfiledArgs]]:
    """Yield the nodes that are wanted and have shapes, with what is stated of their inputs.

    - ``wanted``: bool, shape (nodes,).
    """
    attributes = trace.attributes
    chosen = attributes.rows_named("args")
    owner = attributes.node[chosen]
    chosen = chosen[(owner >= 0) & wanted[np.maximum(owner, 0)]]
    for attribute in chosen.tolist():
        try:
            args = _decoder.decode(attributes.span(attribute))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # shapes of lists of tensors, or another tool's
        if args.dims:
            yield int(attributes.node[attribute]), args


def _is_side(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < _LONGEST_SIDE
