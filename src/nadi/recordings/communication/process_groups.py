"""Process groups of one rank: their members, and the group of each communication operation."""

from __future__ import annotations

import numpy as np
import polars as pl

from nadi.trace.arrays import Ints
from nadi.trace.issues import IssueLog
from nadi.trace.schema import COMM_TYPES, GROUPS
from nadi.trace.trace import Trace

__all__ = ["Members", "group_of_each", "with_default_group"]

_PAIRWISE = [COMM_TYPES.index("send"), COMM_TYPES.index("recv")]
_DEFAULT = "0"  # PyTorch's name of the group of all ranks
_MOST_RANKS = 2**17  # of a group, as for the groups of a file


class Members:
    """The global ranks of groups, looked up by the rank within the group."""

    def __init__(self, ranks: pl.Series) -> None:
        self.size = ranks.list.len().to_numpy().astype(np.int64)
        self._first = np.cumsum(self.size) - self.size
        self._ranks = ranks.explode(empty_as_null=False).to_numpy().astype(np.int64)

    def rank(self, group: Ints, place: Ints) -> Ints:
        """Return the global rank at each place of a group; -1 where there is none."""
        found = np.full(group.size, -1, dtype=np.int64)
        known = np.flatnonzero((group >= 0) & (place >= 0))
        known = known[place[known] < self.size[group[known]]]
        found[known] = self._ranks[self._first[group[known]] + place[known]]
        return found


def with_default_group(trace: Trace, rows: Ints, types: Ints) -> pl.DataFrame:
    """Return the trace's groups, with the members of the group of all ranks filled in.

    Older recordings do not list these members. If a recording names no group at all and all its
    collectives ran on one stream, the group of all ranks was the only one: every group has a
    stream of its own.

    Parameters
    ----------
    rows, types
        int64, shape (communications,): nodes, and their places in ``schema.COMM_TYPES``.
    """
    groups = trace.groups
    if not 0 < trace.world_size <= _MOST_RANKS:
        return groups
    everyone = list(range(trace.world_size))
    if groups.height:
        unknown = (pl.col("name") == _DEFAULT) & (pl.col("ranks").list.len() == 0)
        ranks = pl.lit(pl.Series([everyone], dtype=GROUPS.dtypes["ranks"])).first()
        return groups.with_columns(ranks=pl.when(unknown).then(ranks).otherwise("ranks"))
    collectives = rows[~np.isin(types, _PAIRWISE)]
    on_device = collectives[trace.column("stream")[collectives] >= 0]
    streams = np.stack([trace.column(name)[on_device] for name in ("device", "stream")])
    if np.unique(streams, axis=1).shape[1] > 1:
        return groups
    columns = {"name": [_DEFAULT], "description": ["default_pg"], "ranks": [everyone]}
    return GROUPS.build(1, columns)


def group_of_each(
    trace: Trace, groups: pl.DataFrame, rows: Ints, types: Ints, recorded: Ints, log: IssueLog
) -> Ints:
    """Find the group of each communication operation: rows of ``groups``, or -1.

    If the recording does not name the group and several exist, it is inferred from the thread that
    ran the operation: every gloo group has threads of its own, created together and in the order
    of the groups. gloo runs sends and receives on the calling thread; they are assigned to the
    group of all ranks.

    Parameters
    ----------
    rows, types
        int64, shape (communications,), as for :func:`with_default_group`.
    recorded
        int64, shape (communications,): the group that a file names, or -1.
    """
    found = recorded.copy()
    unknown = np.flatnonzero(found < 0)
    if groups.height == 1:
        found[unknown] = 0
    elif groups.height > 1:
        on_host = trace.nodes["is_cpu"].to_numpy()[rows[unknown]]
        pairwise = np.isin(types[unknown], _PAIRWISE)
        sizes = groups["ranks"].list.len().to_numpy()
        found[unknown[on_host & pairwise]] = int(sizes.argmax())
        gloo = unknown[on_host & ~pairwise]
        backend = groups["backend"]
        candidates = np.flatnonzero(((backend == "") | backend.str.contains("gloo")).to_numpy())
        number = _by_thread(trace.column("thread")[rows[gloo]], candidates.size)
        found[gloo] = np.where(number >= 0, candidates[number], -1) if candidates.size else -1
    log.add(
        "link.comm-group-inferred", "info", int((found[unknown] >= 0).sum()),
        "communication operations name no process group: their groups are inferred from threads "
        "and streams",
    )  # fmt: skip
    log.add(
        "link.comm-group-unknown", "info", int((found < 0).sum()),
        "communication operations have an unknown process group",
        "link all ranks together: groups are then inferred from collectives that ranks share",
    )  # fmt: skip
    return found


def _by_thread(thread: Ints, num_groups: int) -> Ints:
    """Find the group of each operation from the gaps between the ids of their threads.

    Threads of one group are created right after one another, so the widest gaps separate groups.
    -1 for all operations if there are too few threads, or if the gaps are ambiguous.
    """
    used = np.unique(thread)
    gaps = np.diff(used)
    widest = np.argsort(-gaps, kind="stable")[: num_groups - 1]
    within = np.delete(gaps, widest).max(initial=1)
    if used.size < num_groups or (gaps[widest] <= within).any():
        return np.full(thread.size, -1, dtype=np.int64)
    return np.searchsorted(used[np.sort(widest) + 1], thread, side="right").astype(np.int64)
