"""Arguments of calls such as ``c10d::broadcast_``: root or peer, tag, asynchronous or not.

The host trace holds the arguments of a call by position, and their names in ``op_schema``:

    c10d::send(Tensor[] tensors, ... process_group, int dst, int tag) -> ...

Ranks are counted within the process group, which is an object without a name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
import numpy as np
import polars as pl

from nadi.files.pytorch.recorded_inputs import tensor_bytes
from nadi.trace.arrays import Ints
from nadi.trace.attributes import Attributes
from nadi.trace.dtypes import MAX_BYTES

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
_MAX_RANK = 2**31


def c10d_calls(rows: Ints, attributes: Attributes) -> pl.DataFrame:
    """Read the arguments of ``c10d`` calls.

    Parameters
    ----------
    rows
        int64: rows of nodes whose names begin with ``c10d::``.
    attributes
        The trace's; only those of ``rows`` are read.

    Returns
    -------
    polars.DataFrame
        Columns as in :data:`C10D_CALLS`, one row per row of ``rows``, in their order; -1 if
        a call does not state a value. ``bytes`` is the size of the tensors sent: only of the
        arguments named input, if there are any. O(attributes + rows).
    """
    attributes = attributes.filtered(np.isin(attributes.node, rows))
    records = []
    for row in rows.tolist():
        stated = attributes.of(row)
        records.append({"node": row, **_call(stated.get("inputs.values"), stated.get("op_schema"))})
    missing = [pl.col(name).fill_null(-1) for name in C10D_CALLS]
    return pl.DataFrame(records, schema=dict(C10D_CALLS)).with_columns(missing)


@cache
def _arguments(schema: str) -> tuple[str, ...]:
    """Return the names of a call's arguments, in order."""
    found = _SCHEMA.match(schema)
    parts = found[1].split(",") if found and found[1] else []
    return tuple(part.partition("=")[0].split()[-1] if part.split() else "" for part in parts)


def _call(inputs: Any, schema: Any) -> dict[str, int]:
    """Read the inputs of a call, a JSON list, by their names in its schema."""
    try:
        values = msgspec.json.decode(inputs) if isinstance(inputs, str) else []
    except (msgspec.MsgspecError, RecursionError):
        values = []  # the rules on operands are the ones to complain
    names = _arguments(schema) if isinstance(schema, str) else ()
    stated: dict[str, int] = {}
    sent, given = [], []
    for position, value in enumerate(values if isinstance(values, list) else []):
        name = names[position] if position < len(names) else ""
        sizes = list(tensor_bytes(value))
        given += sizes
        if name.startswith("input"):
            sent += sizes
        if (meaning := _MEANING.get(name)) and isinstance(value, int) and 0 <= value < _MAX_RANK:
            stated[meaning] = int(value)
    if given:
        stated["bytes"] = min(sum(sent or given), MAX_BYTES)
    return stated
