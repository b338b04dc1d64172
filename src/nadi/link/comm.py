"""From traces of single ranks to a job: which operations of different ranks are one collective."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import pairwise

import numpy as np

from nadi.errors import PairError
from nadi.issues import IssueLog
from nadi.schema import MATCHES
from nadi.trace import Job, Trace

__all__ = ["link_job"]

_Operation = tuple[int, str, int]  # node row, communication type, bytes
_Group = tuple[str, tuple[int, ...]]  # name and ranks; names alone need not differ


def link_job(traces: Sequence[Trace]) -> Job:
    """Put the linked traces of several ranks together.

    Collectives are matched by process group and order of issue. Where a recording does
    not name the group of an operation (gloo), it is told by the thread that did the work,
    or else each group takes what all of its members have in common, in order, largest
    group first.

    Raises
    ------
    PairError
        If two traces are of the same rank.
    """
    ordered = sorted(traces, key=lambda trace: trace.rank)
    for one, other in pairwise(ordered):
        if one.rank == other.rank:
            raise PairError(
                ", ".join(trace.provenance.sources[-1].path for trace in (one, other)),
                f"two device traces of rank {one.rank}",
                "give each rank once",
            )
    log = IssueLog()
    sizes = {trace.world_size for trace in ordered if trace.world_size > 0}
    outside = [trace.rank for trace in ordered if sizes and trace.rank >= max(sizes)]
    log.add(
        "job.world-size", "warning", len(outside) + len(sizes) - bool(sizes),
        f"contradictions about the size of the job: sizes {sorted(sizes)}, ranks {outside} beyond",
        "are these files of one job?",
    )  # fmt: skip
    collectives: list[dict[int, int]] = []
    if len(ordered) > 1:
        collectives = _match_named(ordered, log) + _match_unnamed(ordered, log)
    elif max(sizes, default=1) > 1:
        _report_absent(log, int((ordered[0].nodes["kind"] == "COMM_COLL").sum()))
    _report_point_to_point(ordered, log)
    columns = {
        "collective": [number for number, parts in enumerate(collectives) for _ in parts],
        "rank": [rank for parts in collectives for rank in parts],
        "node": [node for parts in collectives for node in parts.values()],
    }
    matches = MATCHES.build(len(columns["rank"]), columns)
    return Job(tuple(ordered), matches, log.table())


def _groups(trace: Trace) -> list[_Group]:
    names, ranks = trace.groups["name"].to_list(), trace.groups["ranks"].to_list()
    return [(name, tuple(members)) for name, members in zip(names, ranks, strict=True)]


def _operations(trace: Trace, *, named: bool) -> list[tuple[_Group, _Operation]]:
    """List the collectives of a rank in order of issue, each with its group if it has one."""
    rows = np.flatnonzero((trace.nodes["kind"] == "COMM_COLL").to_numpy())
    rf_id, start = trace.column("rf_id"), trace.column("start")
    # work on several gloo threads may start in another order than it was asked for
    rows = rows[np.lexsort((start[rows], rf_id[rows]))]
    groups = _groups(trace)
    comm_type = trace.nodes["comm_type"].cast(str)
    comm_bytes, group = trace.column("comm_bytes"), trace.column("group")
    return [
        (
            groups[group[row]] if group[row] >= 0 else ("", ()),
            (int(row), comm_type[int(row)], int(comm_bytes[row])),
        )
        for row in rows
        if (group[row] >= 0) == named
    ]


def _match_named(traces: Sequence[Trace], log: IssueLog) -> list[dict[int, int]]:
    """Match the k-th collective of a group on one rank with the k-th on every other."""
    by_group: dict[_Group, dict[int, list[_Operation]]] = defaultdict(lambda: defaultdict(list))
    for trace in traces:
        for group, operation in _operations(trace, named=True):
            by_group[group][trace.rank].append(operation)
    collectives = []
    unequal = incomplete = 0
    for (_, members), ranks in by_group.items():
        if set(ranks) != set(members):
            incomplete += sum(map(len, ranks.values()))
            continue
        shortest = min(len(operations) for operations in ranks.values())
        unequal += sum(len(operations) - shortest for operations in ranks.values())
        for k in range(shortest):
            parts = {rank: operations[k] for rank, operations in ranks.items()}
            if len({comm_type for _, comm_type, _ in parts.values()}) > 1:
                unequal += len(parts)
            elif len(parts) > 1:  # a group may be of one rank
                collectives.append({rank: row for rank, (row, _, _) in parts.items()})
    _report_absent(log, incomplete)
    _report_unmatched(log, unequal)
    return collectives


def _match_unnamed(traces: Sequence[Trace], log: IssueLog) -> list[dict[int, int]]:
    """Match operations of unrecorded groups: by thread, else by what ranks have in common."""
    left = {
        trace.rank: [operation for _, operation in _operations(trace, named=False)]
        for trace in traces
    }
    groups = _groups_present(traces)
    collectives = _match_by_thread(traces, left, groups)
    if collectives is None:
        collectives = _match_common(left, groups)
    _report_unmatched(log, sum(map(len, left.values())) - sum(map(len, collectives)))
    return collectives


def _match_by_thread(
    traces: Sequence[Trace], left: dict[int, list[_Operation]], present: set[_Group]
) -> list[dict[int, int]] | None:
    """Match by the thread that did the work: every gloo group has threads of its own.

    A group's threads are created together, so their ids lie side by side. None if the
    groups found so do not have the same sequence of collectives on all of their ranks.
    """
    sequences: dict[_Group, dict[int, list[_Operation]]] = defaultdict(lambda: defaultdict(list))
    for trace in traces:
        groups = _groups(trace)
        thread = trace.column("thread")
        used = np.unique(thread[[row for row, _, _ in left[trace.rank]]])
        if not groups or used.size < len(groups) or not set(groups) <= present:
            return None
        widest = np.argsort(-np.diff(used), kind="stable")[: len(groups) - 1]
        first_threads = used[np.sort(widest) + 1]
        for operation in left[trace.rank]:
            number = int(np.searchsorted(first_threads, thread[operation[0]], side="right"))
            sequences[groups[number]][trace.rank].append(operation)
    collectives = []
    for (_, members), by_rank in sequences.items():
        kinds = {tuple(operation[1:] for operation in ops) for ops in by_rank.values()}
        if len(kinds) > 1 or tuple(sorted(by_rank)) != members:
            return None
        collectives += [
            {rank: row for rank, (row, _, _) in zip(by_rank, parts, strict=True)}
            for parts in zip(*by_rank.values(), strict=True)
        ]
    return collectives


def _match_common(left: dict[int, list[_Operation]], groups: set[_Group]) -> list[dict[int, int]]:
    """Match by common subsequences of type and bytes, the largest group first."""
    left = dict(left)
    collectives = []
    for members in sorted({ranks for _, ranks in groups}, key=lambda m: (-len(m), m)):
        common = left[members[0]]
        for rank in members[1:]:
            common = [common[i] for i, _ in _common_subsequence(common, left[rank])]
        parts: list[dict[int, int]] = [{} for _ in common]
        for rank in members:
            pairs = _common_subsequence(common, left[rank])
            taken = {j for _, j in pairs}
            for i, j in pairs:
                parts[i][rank] = left[rank][j][0]
            left[rank] = [operation for j, operation in enumerate(left[rank]) if j not in taken]
        collectives += parts
    return collectives


def _groups_present(traces: Sequence[Trace]) -> set[_Group]:
    """Give the groups of several ranks that are all here; all ranks where none is recorded."""
    present = {trace.rank for trace in traces}
    groups = {group for trace in traces for group in _groups(trace)}
    if not groups:
        return {("", tuple(sorted(present)))}
    return {(name, ranks) for name, ranks in groups if len(ranks) > 1 and set(ranks) <= present}


def _common_subsequence(
    left: Sequence[_Operation], right: Sequence[_Operation]
) -> list[tuple[int, int]]:
    """Pair the positions of operations of equal type and bytes, in order."""
    a, b = [op[1:] for op in left], [op[1:] for op in right]
    # ranks mostly do the same: what they begin with alike needs no search
    same = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y),
                min(len(a), len(b)))  # fmt: skip
    matcher = SequenceMatcher(None, a[same:], b[same:], autojunk=False)
    return [(i, i) for i in range(same)] + [
        (same + block.a + k, same + block.b + k)
        for block in matcher.get_matching_blocks()
        for k in range(block.size)
    ]


def _report_absent(log: IssueLog, count: int) -> None:
    log.add(
        "job.group-incomplete", "warning", count,
        "collective operations belong to groups of which ranks are absent",
        "they keep their measured time, in which they may have waited",
    )  # fmt: skip


def _report_point_to_point(traces: Sequence[Trace], log: IssueLog) -> None:
    kinds = ("COMM_SEND", "COMM_RECV")
    count = sum(int(trace.nodes["kind"].is_in(kinds).sum()) for trace in traces)
    log.add(
        "job.point-to-point", "info", count,
        "send and receive operations are not matched across ranks", "they keep their measured time",
    )  # fmt: skip


def _report_unmatched(log: IssueLog, count: int) -> None:
    log.add(
        "job.unmatched-collective", "warning", count,
        "collective operations have no counterpart on the other ranks of their group",
        "they keep their measured time; record all ranks over the same steps",
    )  # fmt: skip
