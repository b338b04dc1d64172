"""In which order a rank asked for the communications of each process group."""

from __future__ import annotations

import numpy as np
import polars as pl

from nadi.model.arrays import Ints
from nadi.model.schema import DEPS

__all__ = ["PAIRWISE", "communication_rows", "group_order"]

PAIRWISE = ("COMM_SEND", "COMM_RECV")
_KINDS = (*PAIRWISE, "COMM_COLL")


def communication_rows(nodes: pl.DataFrame) -> Ints:
    """Give the timed communications in the order in which they were asked for.

    gloo's threads take work in turn, and may start it in another order than it was asked
    for; the record function id is given when it is. Kernels of a process group may be on
    several streams, which need not run them in the order of their launches; the correlation
    id is given at the launch. Where some work has none it goes by starts.

    Returns
    -------
    int64, shape (communications,)
        Rows, those of gloo first. O(nodes).
    """
    rows = np.flatnonzero((nodes["kind"].is_in(_KINDS) & (nodes["start"] >= 0)).to_numpy())
    chosen = nodes[rows]
    start, rf_id = chosen["start"].to_numpy(), chosen["rf_id"].to_numpy()
    on_device = ~chosen["is_cpu"].to_numpy()
    launch = chosen["correlation"].to_numpy()
    if (launch[on_device] <= 0).any():
        launch = np.zeros_like(launch)
    asked = np.where(on_device, launch, rf_id)
    return rows[np.lexsort((rows, start, asked, on_device))]


def group_order(nodes: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    """Order the communications of each process group.

    Collectives follow one another; so do sends to one rank and receives from one rank. gloo
    and a device's library are apart, as they are for a group that has both.

    Returns
    -------
    polars.DataFrame
        ``schema.DEPS`` of kind comm; inferred where there are several groups and gloo did the
        work, which does not say for which. O(nodes).
    """
    rows = communication_rows(nodes)
    chosen = nodes[rows].select("group", "is_cpu", "kind", "src", "dst")
    pairwise = chosen["kind"].is_in(PAIRWISE)
    ends = [pl.when(pairwise).then(end).otherwise(-1) for end in ("src", "dst")]
    # what sends and receives to and from an unknown rank has no order to be told
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
