"""Join the traces of single ranks to a job: match communication and align clocks.

Ranks are of one job if they state one world size, and overlap in time.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import polars as pl

from nadi.errors import PairError, checked
from nadi.recordings.communication.process_groups import group_order
from nadi.recordings.ranks.clock_skew import align_clocks
from nadi.recordings.ranks.collective_matching import (
    Across,
    communications_of,
    match_collectives,
    match_pairs,
    report_collectives,
    report_pairs,
)
from nadi.trace.arrays import Ints
from nadi.trace.issues import IssueLog
from nadi.trace.schema import CLOCKS, COMMUNICATION_KINDS, MATCHES, NODES
from nadi.trace.trace import Job, Trace
from nadi.units import format_ns

_TOLD = 4  # files or ranks
_ONE_RUN = "give the recordings of one run; nadi diff compares two runs"


def common_world_size(traces: Sequence[Trace], log: IssueLog) -> int:
    """Return the world size that all traces state, or 1 if none does.

    Records ranks that are outside it and in no larger group.

    - Raises PairError if traces state different sizes.
    """
    refuse_other_sizes((_path(trace), trace.rank, trace.world_size) for trace in traces)
    size = max((trace.world_size for trace in traces), default=-1)
    outside = [trace.rank for trace in traces if trace.rank >= size and not _is_member(trace)]
    log.add(
        "job.world-size", "warning", len(outside) if size > 0 else 0,
        f"ranks are outside the world size {size:,} that traces state: {outside[:_TOLD]}",
        "give files of one job only",
    )  # fmt: skip
    return max(size, 1)


def refuse_other_sizes(recordings: Iterable[tuple[str, int, int]]) -> None:
    """Raise PairError if recordings state different world sizes.

    - ``recordings``: Path, rank and world size of each; a size that is not above 0 is not stated.
    """
    stating: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for path, rank, size in recordings:
        if size > 0:
            stating[size].append((path, rank))
    if len(stating) > 1:
        said = (f"{_ranks(r for _, r in same)} of {n:,}" for n, same in sorted(stating.items()))
        raise PairError(
            ", ".join(same[0][0] for _, same in sorted(stating.items())[:_TOLD]),
            f"the traces state different world sizes, and are of different jobs: {', '.join(said)}",
            _ONE_RUN,
        )


def refuse_apart(traces: Sequence[Trace]) -> None:
    """Raise PairError if some ranks end before all others begin, on clocks that are aligned.

    Ranks of one job run at the same time. Clocks that merely disagree are aligned by collectives;
    where there are none, ranks that lie apart say nothing about each other.
    """
    spans = []
    for trace in traces:
        start = trace.column("start")
        end = (start + trace.column("duration"))[start >= 0]
        if end.size:
            spans.append((int(start[start >= 0].min()), int(end.max()), trace))
    spans.sort(key=lambda span: span[:2])
    latest = spans[0] if spans else None
    for number, span in enumerate(spans):
        if latest and span[0] > latest[1]:
            before = _ranks(trace.rank for *_, trace in spans[:number])
            raise PairError(
                f"{_path(latest[2])}, {_path(span[2])}",
                f"do not overlap in time: {_ranks([span[2].rank])} begins "
                f"{format_ns(span[0] - latest[1])} after {before} ended",
                _ONE_RUN,
            )
        latest = max(latest or span, span, key=lambda one: one[1])


def _is_member(trace: Trace) -> bool:
    return any(trace.rank in ranks for ranks in trace.groups["ranks"].to_list())


def _ranks(ranks: Iterable[int]) -> str:
    each = list(ranks)
    told = ", ".join(map(str, each[:_TOLD]))
    more = f" and {len(each) - _TOLD} more" if len(each) > _TOLD else ""
    return f"rank{'s' if len(each) > 1 else ''} {told}{more}"


def _path(trace: Trace) -> str:
    sources = trace.provenance.sources
    return sources[-1].path if sources else f"rank {trace.rank}"


@checked
def link_job(traces: Sequence[Trace]) -> Job:
    """Put the linked traces of several ranks together.

    Collectives, and sends with receives, are matched by process group and order of issue. If a
    recording does not name the group of an operation (gloo), the group is inferred from the thread
    that ran it. Failing that, each group takes the operations that all of its members have in
    common, in order, largest group first. If collectives show that clocks disagree, the times of
    ranks are shifted.

    Returns
    -------
    Job
        Traces in ascending order of rank. O(nodes + communications log communications).

    Raises
    ------
    PairError
        If two traces have the same rank, or traces state different world sizes or do not overlap
        in time.
    """
    ordered = sorted(traces, key=lambda trace: trace.rank)
    for one, other in pairwise(ordered):
        if one.rank == other.rank:
            raise PairError(
                ", ".join(trace.provenance.sources[-1].path for trace in (one, other)),
                f"both are device traces of rank {one.rank}",
                "give one trace for each rank",
            )
    log = IssueLog()
    size = common_world_size(ordered, log)
    ordered = _without_absent(ordered, size)
    if len(ordered) > 1:
        return _matched(ordered, log)
    if size > 1:
        kinds = ordered[0].nodes["kind"]
        log.add(
            "job.group-incomplete", "warning", int((kinds == "COMM_COLL").sum()),
            "collectives belong to process groups with missing ranks",
            "they keep their measured duration, which may include wait time; give all ranks of "
            "the job",
        )  # fmt: skip
    return Job(tuple(ordered), MATCHES.empty(), log.table(), CLOCKS.empty())


def _without_absent(traces: list[Trace], world_size: int) -> list[Trace]:
    """Drop members of groups that are not in the job, where all ranks of the job have a trace.

    A part of a job has fewer ranks, but its events state roots and peers by their place in the
    groups of the whole job. So files keep those.
    """
    if world_size > len(traces):
        return traces
    here = pl.Series([trace.rank for trace in traces], dtype=pl.Int64)
    every = pl.concat([trace.groups["ranks"] for trace in traces])  # of all ranks in one call
    if np.isin(every.explode(empty_as_null=False).to_numpy(), here.to_numpy()).all():
        return traces
    is_here = pl.element().filter(pl.element().is_in(here.implode()))
    found = []
    for trace in traces:
        members = trace.groups["ranks"].list.eval(is_here)
        same = members.list.len().equals(trace.groups["ranks"].list.len())
        groups = trace.groups if same else trace.groups.with_columns(ranks=members)
        found.append(trace if same else trace.changed(groups=groups))
    return found


def _matched(traces: list[Trace], log: IssueLog) -> Job:
    across = communications_of(traces)
    settled, collectives = _best_groups(across)
    pairs = match_pairs(settled)
    report_collectives(settled, collectives, log)
    report_pairs(settled, pairs, log)
    parts = _numbered(settled, collectives, pairs)
    aligned = IssueLog()
    clocks = align_clocks([trace.rank for trace in traces], parts, aligned)
    if (clocks["shift"] != 0).any() and any(trace.is_part for trace in traces):
        clocks = _uncorrected(clocks)
    else:
        log.add_all(aligned)
        clocks = _after_the_epoch(traces, clocks)
    columns = {name: parts[name] for name in ("collective", "rank", "node")}
    changed = _with_groups(traces, across, settled, collectives)
    shifted = tuple(map(_shifted, changed, clocks["shift"].to_list()))
    if not any(trace.is_part for trace in traces):  # little of each rank may be in a part
        refuse_apart(shifted)
    return Job(shifted, MATCHES.build(parts.height, columns), log.table(), clocks)


def _best_groups(across: Across) -> tuple[Across, pl.DataFrame]:
    """Match collectives by the groups inferred from threads, or without these if they are wrong.

    The inferred groups are wrong if everything matches without them, or if most does not match
    with them. An operation that one rank lacks must stay unmatched, and not be matched within a
    group of fewer ranks.
    """
    collectives = match_collectives(across)
    groups = across.groups.with_row_index("group").filter(pl.col("is_here") & (pl.col("size") > 1))
    told = groups["group"].cast(pl.Int64)
    by_thread = (
        pl.col("is_cpu") & (pl.col("kind") == "COMM_COLL") & pl.col("group").is_in(told.implode())
    )
    work = across.work.filter(by_thread)
    num_alone = work.join(collectives, on="part", how="anti").height
    if across.groups.height < 2 or num_alone == 0:
        return across, collectives
    group = pl.when(by_thread).then(pl.lit(-1, pl.Int64)).otherwise("group")
    untold = across._replace(work=across.work.with_columns(group=group))
    others = match_collectives(untold)
    num_lost = work.join(others, on="part", how="anti").height
    doubtful = num_lost == 0 or 2 * num_alone > work.height
    better = doubtful and others.height > collectives.height
    return (untold, others) if better else (across, collectives)


def _numbered(across: Across, collectives: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """Enumerate matched operations by earliest start; returns their parts with their nodes."""
    together = collectives.select("part", key=pl.struct("lane", "place").rank("dense"))
    first_pair = int(together["key"].max() or 0) + 1  # type: ignore[arg-type]
    number = np.arange(first_pair, first_pair + pairs.height)
    ends = [pl.DataFrame({"part": pairs[end], "key": number}) for end in pairs.columns]
    parts = pl.concat([together, *ends], how="vertical_relaxed").join(
        across.work, on="part", how="inner", maintain_order="left"
    )
    order = parts.group_by("key").agg(pl.col("start").min()).sort("start", "key")
    order = order.select("key", collective=pl.int_range(pl.len(), dtype=pl.Int64))
    return parts.join(order, on="key", how="inner").sort("collective", "rank")


def _with_groups(
    traces: list[Trace], before: Across, after: Across, collectives: pl.DataFrame
) -> list[Trace]:
    """Assign the groups that matching found to communication, and order it by group."""
    found = collectives.filter(pl.col("group") >= 0).select("part", matched="group")
    group = pl.coalesce("matched", "group")
    work = after.work.join(found, on="part", how="left", maintain_order="left")
    work = work.select("rank", "node", group=group, was=before.work["group"])
    changed = work.filter(pl.col("group") != pl.col("was"))
    names = after.groups["name"].to_list()
    by_rank = {rank: part for (rank,), part in changed.partition_by("rank", as_dict=True).items()}
    given = []
    for trace in traces:
        if (part := by_rank.get(trace.rank)) is None:
            given.append(trace)
            continue
        row_of_name = {name: row for row, name in enumerate(trace.groups["name"])}
        # the last is for no group, -1; a group that only other ranks know changes nothing
        row_of_group = [*map(row_of_name.get, names), -1]
        column = trace.column("group").copy()
        for node, number in part.select("node", "group").iter_rows():
            if (row := row_of_group[number]) is not None:
                column[node] = row
        given.append(_regrouped(trace, column))
    return given


def _regrouped(trace: Trace, group: Ints) -> Trace:
    """Assign groups to communication operations, and order them by group."""
    nodes = trace.nodes.with_columns(group=group)
    deps = trace.deps.filter(pl.col("kind") != "comm")
    made = trace.changed(nodes=nodes, codes={})
    return made.changed(deps=pl.concat([deps, group_order(made)]))


def as_in_job(trace: Trace, group: Sequence[int], shift: int) -> Trace:
    """Apply to a rank what linking the communication of all ranks found: groups and a shift.

    - ``group``: The group of each of its communication operations, in the order of its nodes.
    - ``shift``: Nanoseconds to add to its times.
    """
    rows = np.flatnonzero(trace.nodes["kind"].is_in(COMMUNICATION_KINDS).to_numpy())
    column = trace.column("group").copy()
    column[rows] = np.asarray(group, dtype=np.int64)
    regrouped = (column != trace.column("group")).any()
    return _shifted(_regrouped(trace, column) if regrouped else trace, shift)


def _uncorrected(clocks: pl.DataFrame) -> pl.DataFrame:
    """Keep the times of parts: all of the job was aligned before, by more communication."""
    return clocks.with_columns(
        shift=pl.lit(0, pl.Int64),
        low=pl.min_horizontal("low", pl.lit(0, pl.Int64)),
        high=pl.max_horizontal("high", pl.lit(0, pl.Int64)),
    )


def _after_the_epoch(traces: list[Trace], clocks: pl.DataFrame) -> pl.DataFrame:
    """Shift all ranks by the same amount if some times would otherwise precede the epoch."""
    starts = [trace.column("start") for trace in traces]
    first = [int(start[start >= 0].min()) if (start >= 0).any() else 0 for start in starts]
    earliest = (clocks["shift"].to_numpy() + np.array(first)).min()
    return clocks.with_columns(shift=pl.col("shift") - min(int(earliest), 0))


def _shifted(trace: Trace, shift: int) -> Trace:
    """Add ``shift`` ns to all times of a trace."""
    if shift == 0:
        return trace
    start = trace.column("start")
    start = np.where(start >= 0, start + shift, start)
    return trace.changed(nodes=NODES.changed(trace.nodes, start=start), codes={})
