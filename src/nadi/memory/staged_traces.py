"""Traces in which tensors move between tiers: the nodes of a trace, and loads and stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import polars as pl

from nadi.memory.staged_moves import Moves
from nadi.trace.arrays import Ints
from nadi.trace.schema import DEPS, NODES, TENSOR_ROLES
from nadi.trace.trace import Trace

__all__ = ["staged_trace"]

_SHARED = ("duration", "exclusive", "flops", "bytes")  # columns that parts of a node share


def staged_trace(trace: Trace, moves: Moves, tiers: Sequence[str]) -> Trace:
    """Return a trace with loads and stores (MEM_LOAD and MEM_STORE, column ``tier``).

    Nodes keep their rows; parts of them, and moves, come after all. Loads from a tier are done one
    after the other, and so are stores to it. O(nodes + moves).

    Parameters
    ----------
    tiers
        Names of the lower tiers.
    """
    if not moves.tier.size and (moves.parts == 1).all():
        return trace
    nodes = pl.concat([_with_parts(trace.nodes, moves.parts), _nodes(trace, moves, tiers)])
    return replace(trace, nodes=nodes, deps=_deps(trace, moves))


def _with_parts(nodes: pl.DataFrame, parts: Ints) -> pl.DataFrame:
    """Return nodes, of which some work in parts; all but the last parts come after all nodes."""
    size, spread = parts.size, np.flatnonzero(parts > 1)
    count = parts[spread] - 1
    of = np.repeat(spread, count)
    part = np.arange(of.size) - np.repeat(np.cumsum(count) - count, count)
    rank = np.argsort(np.argsort(nodes["id"].to_numpy(), kind="stable"))
    most = int(parts.max(initial=1))
    source = np.concatenate([np.arange(size), of])
    which = np.concatenate([parts - 1, part])
    found = nodes[source] if of.size else nodes
    columns = {"id": pl.Series(rank[source] * most + which)}
    for name in _SHARED if of.size else ():
        whole, number = nodes[name].to_numpy()[source], parts[source]
        share = whole * (which + 1) // number - whole * which // number
        columns[name] = pl.Series(np.where(whole >= 0, share, whole))
    return found.with_columns(**columns)


def _nodes(trace: Trace, moves: Moves, tiers: Sequence[str]) -> pl.DataFrame:
    size, first = moves.tier.size, trace.nodes.height * int(moves.parts.max(initial=1))
    store = moves.is_store
    names = []
    for row, tier, stores in zip(
        (moves.bytes > 0).tolist(), moves.tier.tolist(), store.tolist(), strict=True
    ):
        what = ", ".join(role for role, has in zip(TENSOR_ROLES, row, strict=True) if has)
        way = f"to {tiers[tier - 1]}" if stores else f"from {tiers[tier - 1]}"
        names.append(f"{'store' if stores else 'load'} {what} {way}")
    return NODES.build(size, {
        "id": first + np.arange(size),
        "name": names,
        "kind": pl.Series(["MEM_LOAD", "MEM_STORE"]).gather(store.astype(np.int64)),
        "category": "kernel",
        "is_cpu": False,
        "device": int(trace.column("device").max(initial=0)),
        "bytes": moves.bytes.sum(axis=1),
        "tier": pl.Series(tiers).gather(moves.tier - 1),
    })  # fmt: skip


def _deps(trace: Trace, moves: Moves) -> pl.DataFrame:
    """Return what waits for what: an operation in parts waits with its first one."""
    src, dst = (trace.deps[name].to_numpy() for name in ("src", "dst"))
    first = moves.first_part
    spread = np.flatnonzero(moves.parts > 1)
    chain = [
        [*range(int(first[row]), int(first[row]) + int(moves.parts[row]) - 1), row]
        for row in spread.tolist()
    ]
    links = np.array(
        [pair for items in chain for pair in pairwise(items)], dtype=np.int64
    ).reshape(-1, 2).T  # fmt: skip
    kinds = trace.deps["kind"]
    added = np.concatenate([links, moves.waits], axis=1)
    return pl.concat([
        DEPS.build(src.size, {"src": src, "dst": first[dst], "kind": kinds,
                              "inferred": trace.deps["inferred"]}),
        DEPS.build(added.shape[1], {"src": added[0], "dst": added[1], "kind": "data"}),
    ])  # fmt: skip
