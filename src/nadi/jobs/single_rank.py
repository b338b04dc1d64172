"""A job of one rank, whose process groups have one member each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from nadi.files.communication_names import comm_type_of_host, comm_type_of_kernel
from nadi.trace.groups import RankGroups
from nadi.trace.schema import GROUPS
from nadi.trace.trace import Trace

__all__ = ["with_own_roles"]

_ALONE = "broadcast"  # what collectives of a recording become that no other rank takes part in


def with_own_roles(trace: Trace) -> tuple[Trace, RankGroups]:
    """Return the trace of the only rank, in which each of its groups is a role.

    Collectives of a recording get the types that their names say.
    """
    nodes = trace.nodes
    names = [
        about or name or f"group-{number}"
        for number, (name, about) in enumerate(
            trace.groups.select("name", "description").iter_rows()
        )
    ]
    names = [name if names.count(name) == 1 else f"{name}-{k}" for k, name in enumerate(names)]
    types = nodes["comm_type"].cast(pl.String).to_list()
    text = nodes["name"].cast(pl.String).to_list()
    for row in np.flatnonzero((nodes["comm_type"] == _ALONE).to_numpy()).tolist():
        said = {comm_type_of_host(text[row]), comm_type_of_kernel(text[row])} - {"none", "other"}
        types[row] = next(iter(said), types[row])
    groups = GROUPS.build(len(names), {
        "name": names, "ranks": [[] for _ in names], "backend": trace.groups["backend"],
    })  # fmt: skip
    nodes = nodes.with_columns(pl.Series("comm_type", types, dtype=nodes.schema["comm_type"]))
    one = np.zeros((1, 1), dtype=np.int64)
    roles = RankGroups(dict.fromkeys(names, one), 1)
    return replace(trace, nodes=nodes, groups=groups, rank=-1, process=-1), roles
