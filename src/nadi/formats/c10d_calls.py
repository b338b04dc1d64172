"""What a call such as ``c10d::broadcast_`` was given: root or peer, tag, whether to wait for it.

The host trace has the values of a call by position, and in ``op_schema`` what each position is:

    c10d::send(Tensor[] tensors, ... process_group, int dst, int tag) -> ...

Ranks are counted within the process group, which is an object without a name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.attributes import Attributes
from nadi.operands import operand_tables

__all__ = ["C10D_CALLS", "c10d_calls"]

C10D_CALLS: Mapping[str, pl.DataType] = {
    "node": pl.Int64(),
    "bytes": pl.Int64(),
    "src": pl.Int64(),
    "dst": pl.Int64(),
    "root": pl.Int64(),
    "tag": pl.Int64(),
    "is_async": pl.Int64(),
}
_SCHEMA = re.compile(r"^[\w:.]+\((.*)\) ->")
# how the arguments are called that say something; the names changed over time
_MEANING = {
    "src": "src", "dst": "dst", "root_rank": "root", "tag": "tag", "async_op": "is_async",
    "asyncOp": "is_async",
}  # fmt: skip
_FLAGS = {"true": 1, "false": 0}
_MAX_BYTES = 2**62


def c10d_calls(rows: npt.NDArray[np.int64], attributes: Attributes) -> pl.DataFrame:
    """Read what calls of ``c10d`` were given.

    Parameters
    ----------
    rows
        int64: rows of nodes whose names begin with ``c10d::``.
    attributes
        The trace's; only those of ``rows`` are looked at.

    Returns
    -------
    polars.DataFrame
        Columns as in :data:`C10D_CALLS`, one row per row of ``rows``, in their order; -1 is
        what a call does not say. ``bytes`` is of the tensors sent: where some arguments are
        called input, of these alone. O(attributes + rows).
    """
    attributes = attributes.filtered(np.isin(attributes.node, rows))
    tables = operand_tables(attributes)
    sizes = (tables.tensors["elements"] * tables.tensors["itemsize"]).to_list()
    inputs = tables.operands.filter(~pl.col("is_output") & (pl.col("position") >= 0))
    found: dict[int, list[tuple[int, int, int, str]]] = {}
    for node, *leaf in inputs.select("node", "position", "item", "tensor", "value").iter_rows():
        position, item, tensor, value = leaf
        size = sizes[tensor] if tensor >= 0 else -1
        found.setdefault(node, []).append((position, item, size, value))
    schema_at = attributes.rows_named("op_schema")
    schema = {int(attributes.node[at]): str(attributes.python_value(at)) for at in schema_at}
    records = [
        {"node": row, **_call(found.get(row, []), _arguments(schema.get(row, "")))}
        for row in rows.tolist()
    ]
    missing = [pl.col(name).fill_null(-1) for name in C10D_CALLS]
    return pl.DataFrame(records, schema=dict(C10D_CALLS)).with_columns(missing)


@cache
def _arguments(schema: str) -> tuple[str, ...]:
    """Give the names of a call's arguments, in order."""
    found = _SCHEMA.match(schema)
    parts = found[1].split(",") if found and found[1] else []
    return tuple(part.partition("=")[0].split()[-1] if part.split() else "" for part in parts)


def _call(leaves: list[tuple[int, int, int, str]], names: tuple[str, ...]) -> dict[str, Any]:
    stated: dict[str, Any] = {}
    sent, given = [], []
    for position, item, size, value in leaves:
        name = names[position] if position < len(names) else ""
        if size >= 0:
            given.append(size)
            if name.startswith("input"):
                sent.append(size)
        elif item < 0 and (meaning := _MEANING.get(name)):
            stated[meaning] = _FLAGS.get(value.lower(), _rank(value))
    if given:
        stated["bytes"] = min(sum(sent or given), _MAX_BYTES)
    return stated


def _rank(value: str) -> int:
    """Read a number of up to nine digits; -1 if it is none."""
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else -1
