"""The events of a device file, each with its operation in the host trace."""

from __future__ import annotations

import numpy as np
import polars as pl

from nadi.trace.ancestors import nearest
from nadi.trace.arrays import Bools, Ints
from nadi.trace.attributes import Attributes
from nadi.trace.schema import DEVICE_EVENTS, DEVICE_WORK

__all__ = ["device_frame"]

# attributes of host nodes, and the columns that they fill
_TEXTS = {
    "op_schema": "op_schema",
    "inputs.shapes": "input_shapes",
    "inputs.types": "input_types",
    "outputs.shapes": "output_shapes",
    "outputs.types": "output_types",
}
_AS_THEY_ARE = (
    "event", "name", "category", "start", "duration", "thread", "stream", "correlation",
    "external_id",
)  # fmt: skip


def device_frame(nodes: pl.DataFrame, attributes: Attributes) -> pl.DataFrame:
    """Correlate the events of a device file with the nodes of the host trace.

    Parameters
    ----------
    nodes, attributes
        Those of a trace linked from both files.

    Returns
    -------
    DataFrame
        ``schema.DEVICE_EVENTS``, in the order of the file. An operator or annotation has its
        own host node; device work has the innermost operation around the call that launched
        it; other events have none. O(events + bytes of the texts).
    """
    event = nodes["event"].to_numpy()
    rows = np.flatnonzero(event >= 0)
    rows = rows[np.argsort(event[rows], kind="stable")]
    of = _operations(nodes, attributes)[rows]
    known = of >= 0
    host_rows, place = np.unique(of[known], return_inverse=True)
    columns: dict[str, pl.Series | Ints] = {name: nodes[name][rows] for name in _AS_THEY_ARE}
    columns["node"] = rows
    columns["et_node"] = np.where(known, nodes["id"].to_numpy()[of], -1)
    names = nodes["name"].cast(pl.String).gather(host_rows)
    columns["et_node_name"] = _spread(names, place, known)
    for name, column in _TEXTS.items():
        columns[column] = _spread(_texts(attributes, name, host_rows), place, known)
    return DEVICE_EVENTS.build(rows.size, columns)


def _operations(nodes: pl.DataFrame, attributes: Attributes) -> Ints:
    """Return the row of each node's operation in the host trace, or -1."""
    is_host = np.zeros(nodes.height, dtype=np.bool_)
    # the host trace says this of every node, and no other file says it
    is_host[attributes.node[attributes.rows_named("op_schema")]] = True
    found = np.where(is_host, np.arange(nodes.height), -1)
    parent = nodes["parent"].to_numpy()
    work = np.flatnonzero(nodes["category"].is_in(DEVICE_WORK).to_numpy())
    found[work] = nearest(parent[work], parent, is_host)
    return found


def _texts(attributes: Attributes, name: str, nodes: Ints) -> pl.Series:
    """Return an attribute of some nodes, in ascending order, as text; empty if absent."""
    texts = np.full(nodes.size, "", dtype=np.object_)
    rows = attributes.rows_named(name)
    owner = attributes.node[rows].astype(np.int64)
    at = np.minimum(np.searchsorted(nodes, owner), max(nodes.size - 1, 0))
    wanted = nodes[at] == owner if nodes.size else np.zeros(rows.size, dtype=np.bool_)
    for place, row in zip(at[wanted].tolist(), rows[wanted].tolist(), strict=True):
        texts[place] = attributes.span(row).decode()
    return pl.Series(texts.tolist(), dtype=pl.String)


def _spread(texts: pl.Series, place: Ints, known: Bools) -> pl.Series:
    """Return texts in the rows of known events, and empty texts in the others."""
    at = np.full(known.size, texts.len(), dtype=np.int64)
    at[known] = place
    return pl.concat([texts, pl.Series([""], dtype=pl.String)]).gather(at)
