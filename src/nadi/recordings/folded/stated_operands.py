"""Operands as columns, of traces that state them as columns or as texts."""

from __future__ import annotations

import numpy as np
import polars as pl

from nadi.trace.arrays import Ints
from nadi.trace.attributes import Attributes
from nadi.trace.dtypes import DTYPES
from nadi.trace.operand_columns import OperandColumns, TensorType
from nadi.trace.operands import OPERAND_NAMES
from nadi.trace.schema import TENSOR_ROLES
from nadi.trace.trace import Trace

__all__ = ["frame_of_operands", "operands_apart", "operands_of_frame"]

_TORCH = {dtype.cpp[0]: dtype.torch for dtype in DTYPES}
_COLUMNS = ("row", "is_output", "position", "tensor_id", "storage_id", "offset", "kind", "role")


def operands_apart(trace: Trace) -> tuple[OperandColumns | None, Attributes]:
    """Return the operands of a trace as columns, and its other attributes.

    None, and all attributes, if it has no operands, or its texts say more than columns do, such
    as strides or scalars.
    """
    if trace.operand_columns is not None:
        return trace.operand_columns, trace.attributes_without_operands
    attributes = trace.attributes
    codes = [number for number, name in enumerate(attributes.names) if name in OPERAND_NAMES]
    of_operands = np.isin(attributes.name, codes)
    if not of_operands.any():
        return None, attributes
    columns = _columns(trace)
    if columns is None or not _same(columns.texts(), attributes.filtered(of_operands)):
        return None, attributes
    return columns, attributes.filtered(~of_operands)


def _columns(trace: Trace) -> OperandColumns | None:
    operands, tensors = trace.operands, trace.tensors
    devices = tensors["device"].unique().cast(pl.String).to_list()
    dtypes = tensors["dtype"].cast(pl.String)
    plain = (
        len(devices) == 1
        and (operands["tensor"] >= 0).all()
        and dtypes.is_in(list(_TORCH)).all()
        and (tensors["strides"].list.len() == 0).all()
    )
    if not plain:
        return None
    shapes = tensors["shape"].to_list()
    types: dict[TensorType, int] = {}
    kind = [
        types.setdefault(TensorType(tuple(shape), _TORCH[dtype]), len(types))
        for shape, dtype in zip(shapes, dtypes.to_list(), strict=True)
    ]
    numbers = {name: tensors[name].to_numpy() for name in ("tensor_id", "storage_id", "offset")}
    return OperandColumns(
        node=operands["node"].to_numpy(), is_output=operands["is_output"].to_numpy(),
        position=operands["position"].to_numpy(), tensor=operands["tensor"].to_numpy(),
        **numbers, kind=np.array(kind, dtype=np.int64), types=tuple(types), device=devices[0],
        role=np.full(len(shapes), -1), roles=(),
    )  # fmt: skip


def _same(made: Attributes, stated: Attributes) -> bool:
    """Return whether attributes are the same, in whatever order of a node."""
    if len(made) != len(stated):
        return False
    return sorted(_keys(made)) == sorted(_keys(stated))


def _keys(attributes: Attributes) -> list[tuple[int, str, bytes]]:
    names = attributes.names
    return [
        (node, names[name], attributes.span(row))
        for row, (node, name) in enumerate(
            zip(attributes.node.tolist(), attributes.name.tolist(), strict=True)
        )
    ]


def frame_of_operands(columns: OperandColumns | None) -> pl.DataFrame:
    """Return operands as a row for each, with the ids of its tensor."""
    if columns is None:
        return pl.DataFrame(schema={
            name: pl.Boolean if name == "is_output" else pl.Int64 for name in _COLUMNS
        })  # fmt: skip
    tensor = columns.tensor
    roles = np.array([*map(TENSOR_ROLES.index, columns.roles), -1])  # the last is of none
    return pl.DataFrame({
        "row": columns.node, "is_output": columns.is_output, "position": columns.position,
        "tensor_id": columns.tensor_id[tensor], "storage_id": columns.storage_id[tensor],
        "offset": columns.offset[tensor], "kind": columns.kind[tensor],
        "role": roles[columns.role[tensor]],
    })  # fmt: skip


def operands_of_frame(
    frame: pl.DataFrame, types: tuple[TensorType, ...], device: str
) -> OperandColumns:
    """Return operands as columns; the inverse of :func:`frame_of_operands`."""
    tensor = frame.select("tensor_id", "storage_id", "offset", "kind", "role")
    known = tensor.unique(maintain_order=True)
    number: Ints = (
        tensor.join(
            known.with_row_index("number"), on=tensor.columns, how="left", maintain_order="left"
        )["number"].cast(pl.Int64).to_numpy()
    )  # fmt: skip
    return OperandColumns(
        node=frame["row"].to_numpy(), is_output=frame["is_output"].to_numpy(),
        position=frame["position"].to_numpy(), tensor=number,
        **{name: known[name].to_numpy() for name in known.columns}, types=types, device=device,
        roles=TENSOR_ROLES if (known["role"] >= 0).any() else (),
    )  # fmt: skip
