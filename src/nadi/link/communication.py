"""Communication of one rank: what the calls that asked for it say of it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.formats.communication import comm_kind, comm_type_of_call
from nadi.schema import NODES
from nadi.trace import Trace

__all__ = ["communication"]

_Ints = npt.NDArray[np.int64]
_MAX_CLIMB = 16  # levels between a kernel's launch and the call that names its tensors


def communication(
    trace: Trace, host: Trace, host_row: _Ints, parent: _Ints, launcher: _Ints
) -> dict[str, pl.Series]:
    """Complete type and bytes of communication from the calls that asked for it.

    Parameters
    ----------
    trace, host
        The linked trace, and the host trace behind it.
    host_row
        int64, shape (nodes,): the host node that each node is, or -1.
    parent, launcher
        int64, shape (nodes,): rows of the linked trace, or -1.

    Returns
    -------
    dict
        New columns ``comm_type``, ``comm_bytes`` and ``kind`` of the nodes.
    """
    names = trace.nodes["name"].cast(str)
    comm_type = trace.nodes["comm_type"].cast(str).to_list()
    comm_bytes = trace.column("comm_bytes").copy()
    host_bytes = host.column("comm_bytes")
    host_types = host.nodes["comm_type"].cast(str)
    rows = np.flatnonzero((trace.nodes["comm_type"] != "none").to_numpy())
    for row in rows:
        if launcher[row] >= 0:
            # gloo runs some collectives as another one; the call says which was meant
            asked = comm_type_of_call(names[int(launcher[row])])
            comm_type[row] = asked if asked != "none" else comm_type[row]
        call = _nearest_call(int(row), host_row, host_bytes, parent)
        if comm_bytes[row] < 0 and call >= 0:
            comm_bytes[row] = host_bytes[call]
        if comm_type[row] == "other" and call >= 0:
            comm_type[row] = host_types[call]
    kinds = {row: comm_kind(comm_type[row]) for row in rows.tolist()}
    kind = trace.nodes["kind"].cast(str).scatter(list(kinds), list(kinds.values()))
    return {
        "comm_type": pl.Series(comm_type, dtype=NODES.dtypes["comm_type"]),
        "comm_bytes": pl.Series(comm_bytes),
        "kind": kind.cast(NODES.dtypes["kind"]),
    }


def _nearest_call(row: int, host_row: _Ints, host_bytes: _Ints, parent: _Ints) -> int:
    """Climb from an operation to the first host node that communicates; -1 if there is none."""
    for _ in range(_MAX_CLIMB):
        if row < 0:
            break
        if host_row[row] >= 0 and host_bytes[host_row[row]] >= 0:
            return int(host_row[row])
        row = int(parent[row])
    return -1
