"""The order in which a rank issued the communication operations of each process group."""

from __future__ import annotations

import numpy as np
import polars as pl

from nadi.trace.arrays import Ints
from nadi.trace.schema import DEPS

__all__ = ["PAIRWISE", "communication_rows", "group_order"]

PAIRWISE = ("COMM_SEND", "COMM_RECV")
_KINDS = (*PAIRWISE, "COMM_COLL")


def communication_rows(nodes: pl.DataFrame) -> Ints:
    """Return the timed communication operations in the order in which they were issued.

    gloo's threads take work in turn, and may start it in another order than it was issued; the
    record function id is assigned when it is issued. Kernels of a process group may be on several
    streams, which need not run them in the order of their launches; the correlation id is assigned
    at the launch. If any operation of the host, or of a device, has no such id, all of them are
    ordered by their starts.

    Returns
    -------
    int64, shape (communications,)
        Rows, those of gloo first. O(nodes).
    """
    rows = np.flatnonzero((nodes["kind"].is_in(_KINDS) & (nodes["start"] >= 0)).to_numpy())
    chosen = nodes[rows]
    start, rf_id = chosen["start"].to_numpy(), chosen["rf_id"].to_numpy()
    on_device = ~chosen["is_cpu"].to_numpy()
    asked = np.where(on_device, chosen["correlation"].to_numpy(), rf_id)
    for place, none in ((on_device, 0), (~on_device, -1)):
        if (asked[place] <= none).any():
            asked[place] = 0
    return rows[np.lexsort((rows, start, asked, on_device))]


def group_order(nodes: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    """Order the communication operations of each process group.

    Collectives follow one another; so do sends to one rank and receives from one rank. If a group
    uses both gloo and a device library, each of the two has its own order.

    Returns
    -------
    polars.DataFrame
        ``schema.DEPS`` of kind comm; inferred for gloo if there are several groups, as gloo does
        not record the group. O(nodes).
    """
    rows = communication_rows(nodes)
    chosen = nodes[rows].select("group", "is_cpu", "kind", "src", "dst")
    pairwise = chosen["kind"].is_in(PAIRWISE)
    ends = [pl.when(pairwise).then(end).otherwise(-1) for end in ("src", "dst")]
    # sends and receives with an unknown peer have no known order
    known = (chosen["group"] >= 0) & ~(pairwise & ((chosen["src"] < 0) | (chosen["dst"] < 0)))
    pairs = (
        chosen.with_columns(*ends, row=rows)
        .filter(known)
        .with_columns(before=pl.col("row").shift(1).over("group", "is_cpu", "kind", "src", "dst"))
        .drop_nulls("before")
    )
    columns = {
        "src": pairs["before"],
        "dst": pairs["row"],
        "kind": "comm",
        "inferred": pairs["is_cpu"] & (groups.height > 1),
    }
    return DEPS.build(pairs.height, columns)
