"""Jobs that run on some of the ranks of a machine, several beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from nadi.errors import UsageError
from nadi.trace.arrays import Ints
from nadi.trace.schema import DEPS, GROUPS, ISSUES, NODES
from nadi.trace.trace import Provenance, Trace

_EVERYBODY = ("", "0")  # names of the group of all ranks
_TOLD = 4


@dataclass(frozen=True, eq=False)
class PlacedJob:
    """Where a job ran, and how long it takes if the others are not there.

    Attributes
    ----------
    name
        What it is called; its process groups are called such as ``name/dp[0]``.
    ranks
        int64, shape (ranks of the job,): the rank of the machine that each of them is.
    alone
        Its time with all other ranks of the machine idle, ns.
    """

    name: str
    ranks: Ints
    alone: int


def beside_each_other(
    sizes: Mapping[str, int], places: Mapping[str, Sequence[int]]
) -> dict[str, Ints]:
    """Choose the ranks of the machine on which each job runs.

    - ``sizes``: How many ranks each job has, by its name.
    - ``places``: The ranks of jobs for which they are given; other jobs take the lowest that are
      free, in their order.
    - Raises UsageError if a job has another number of ranks, or two jobs the same rank.
    """
    owner: dict[int, str] = {}
    for name, ranks in places.items():
        if len(ranks) != sizes[name]:
            raise UsageError(
                f"job {name}", f"it has {sizes[name]} ranks, and is to run on {len(ranks)}",
                "name one rank of the machine for each rank of the job",
            )  # fmt: skip
        for rank in ranks:
            if rank < 0 or owner.setdefault(rank, name) != name or len(set(ranks)) < len(ranks):
                raise UsageError(
                    f"job {name}", f"rank {rank} is no rank of its own",
                    "give each rank of the machine to one rank of one job",
                )  # fmt: skip
    found, free = {}, 0
    for name, size in sizes.items():
        own = [int(rank) for rank in places.get(name, ())]
        while len(own) < size:
            if free not in owner:
                owner[free] = name
                own.append(free)
            free += 1
        found[name] = np.array(own, dtype=np.int64)
    return found


def idle_trace() -> Trace:
    """Return the trace of a rank that does nothing."""
    given = {"id": [0], "name": ["idle"], "kind": ["INVALID"], "category": ["kernel"]}
    return Trace(
        nodes=NODES.build(1, {**given, "is_cpu": [False]}),
        deps=DEPS.empty(),
        groups=GROUPS.empty(),
        issues=ISSUES.empty(),
        provenance=Provenance("", ()),
    )


def placed_traces(
    traces: Sequence[Trace], name: str, ranks: Ints, groups: Mapping[str, Sequence[int]]
) -> list[Trace]:
    """Return the traces of a job as those of ranks of a machine.

    Ranks and the members of process groups are those of the machine, names of groups begin with
    that of the job, and what all ranks of the job do is done by a group of these. O(nodes).

    - ``groups``: Members of groups that traces do not state, or others than they state, by name.
    - Raises UsageError if a trace names a rank that the job does not have.
    """
    found: dict[int, Trace] = {}
    for trace in traces:
        if id(trace) not in found:
            found[id(trace)] = _placed(trace, name, ranks, groups)
    return [found[id(trace)] for trace in traces]


def _placed(
    trace: Trace, job: str, ranks: Ints, groups: Mapping[str, Sequence[int]]
) -> Trace:  # fmt: skip
    columns = {}
    for column in ("src", "dst"):
        ends = trace.nodes[column].to_numpy()
        _check(job, ends, ranks.size)
        columns[column] = pl.Series(column, np.where(ends >= 0, ranks[np.maximum(ends, 0)], -1))
    everybody = np.sort(ranks).tolist()
    names, members = [], []
    for name, own in trace.groups.select("name", "ranks").iter_rows():
        stated = np.array(groups.get(name) or own, dtype=np.int64)
        _check(job, stated, ranks.size)
        is_all = name in _EVERYBODY
        names.append(f"{job}/all" if is_all else f"{job}/{name}")
        # a group of all ranks works in their order, as on a machine of the job's size
        are_all = is_all or np.unique(stated).size == stated.size == ranks.size
        members.append(everybody if are_all else ranks[stated].tolist())
    table = trace.groups.with_columns(
        name=pl.Series(names, dtype=pl.String), ranks=pl.Series(members, dtype=pl.List(pl.Int64))
    )
    number = trace.nodes["group"].to_numpy()
    if (number < 0).any():
        number = np.where(number < 0, table.height, number)
        own_group = {"name": [f"{job}/all"], "ranks": [everybody]}
        table = pl.concat([table, GROUPS.build(1, own_group)])
    columns["group"] = pl.Series("group", number)
    return replace(trace, nodes=trace.nodes.with_columns(**columns), groups=table, rank=-1)


def _check(job: str, ranks: Ints, size: int) -> None:
    beyond = np.unique(ranks[ranks >= size])
    if beyond.size:
        told = ", ".join(map(str, beyond[:_TOLD].tolist()))
        raise UsageError(
            f"job {job}", f"it has ranks 0 to {size - 1}, but its traces name {told}",
            "give the traces of all its ranks, and the process groups of this job",
        )  # fmt: skip
