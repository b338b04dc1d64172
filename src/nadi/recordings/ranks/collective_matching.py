"""The communication operations of all ranks in one table, and which of them form one collective.

Sends are matched with receives.

Report where ranks disagree about their communication: rank, node, name, and the other rank.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from nadi.recordings.communication.process_groups import PAIRWISE, communication_rows
from nadi.recordings.matching.name_alignment_kernels import align
from nadi.trace.arrays import Ints
from nadi.trace.issues import IssueLog
from nadi.trace.trace import Trace
from nadi.units import format_count, printable

# operations of two ranks without a partner, between which pairs are as many as can be
_MOST_EDITS = 512
_COLUMNS = (
    "id", "name", "kind", "comm_type", "comm_bytes", "group", "src", "dst", "tag", "comms_id",
    "is_cpu", "start", "duration",
)  # fmt: skip


class Across(NamedTuple):
    """The communication operations and process groups of several ranks."""

    # one row per communication operation, by rank and then in the order of issue: columns of the
    # nodes, ``rank``, ``node`` (its row), ``end`` in ns, ``part`` (the row in this table).
    # ``group`` is a row of ``groups``, or -1.
    work: pl.DataFrame
    # one row per group of the job: ``name``, ``ranks``, ``size``, and ``is_here``, whether all of
    # its members have a trace. If no rank lists the members of a group, they are the ranks that use
    # it.
    groups: pl.DataFrame
    is_whole: bool  # whether all ranks of the job have a trace


def communications_of(traces: Sequence[Trace]) -> Across:
    """Collect the communication operations of ranks. O(nodes + members of groups)."""
    present = np.array([trace.rank for trace in traces], dtype=np.int64)
    rows = [communication_rows(trace) for trace in traces]
    parts = [trace.nodes.select(_COLUMNS)[own] for trace, own in zip(traces, rows, strict=True)]
    heights = [trace.groups.height for trace in traces]
    every = pl.concat([trace.groups.select("name", "ranks") for trace in traces]).with_columns(
        # names alone are not unique: two halves of a job may each have a group "1"
        members=pl.col("ranks").cast(pl.List(pl.String)).list.join(","),
        group=np.concatenate([np.arange(height) for height in heights]),
        rank=np.repeat(present, heights),
    )
    number = every.unique(["name", "members"], maintain_order=True).with_row_index("number")
    numbers = every.join(number.select("name", "members", "number"), on=["name", "members"])
    work = (
        pl.concat(parts)
        .with_columns(
            rank=np.repeat(present, [own.size for own in rows]), node=np.concatenate(rows)
        )
        .join(
            numbers.select("rank", "group", "number"),
            on=["rank", "group"], how="left", maintain_order="left",
        )
        .with_columns(
            group=pl.col("number").cast(pl.Int64).fill_null(-1),
            end=pl.col("start") + pl.col("duration"),
        )
        .drop("number")
        .with_row_index("part")
        .with_columns(pl.col("part").cast(pl.Int64))
    )  # fmt: skip
    is_whole = max(trace.world_size for trace in traces) <= len(traces)
    return Across(work, _groups(number, work, present), is_whole)


def _groups(number: pl.DataFrame, work: pl.DataFrame, present: Ints) -> pl.DataFrame:
    """Add to each group whether all of its members have a trace."""
    users = work.group_by("group").agg(users=pl.col("rank").unique().sort())
    stated = number.select(
        "name", "ranks", group=pl.col("number").cast(pl.Int64)
    ).join(users, on="group", how="left", maintain_order="left")  # fmt: skip
    ranks = pl.when(pl.col("ranks").list.len() > 0).then("ranks").otherwise("users")
    stated = stated.with_columns(ranks=ranks.fill_null(pl.lit([], pl.List(pl.Int64))))
    members = stated["ranks"].explode(empty_as_null=False)
    size = stated["ranks"].list.len().to_numpy().astype(np.int64)
    here = np.append(0, np.cumsum(np.isin(members.to_numpy(), present)))
    last = np.cumsum(size)
    num_here = here[last] - here[last - size]
    return stated.select("name", "ranks").with_columns(
        size=pl.Series(size), is_here=pl.Series((num_here == size) & (size > 0))
    )


_LANE = ("group", "is_cpu")  # host and device collectives of a group do not wait for each other
SAME_BYTES = ("all_reduce", "reduce", "broadcast", "reduce_scatter", "all_gather", "barrier")


def collectives_of(across: Across) -> pl.DataFrame:
    """Return the collectives of groups whose ranks all have a trace.

    - Returns: Rows of ``across.work`` with ``place``: the number of collectives of the group that
      the rank issued before. Coalesced sends and receives are left out, as not all ranks of the
      group need to take part in them.
    """
    groups = across.groups.with_row_index("group").with_columns(pl.col("group").cast(pl.Int64))
    fused = (pl.col("comm_type") == "other") & pl.col("name").cast(pl.String).str.contains(
        "SendRecv"
    )
    return (
        across.work.filter((pl.col("kind") == "COMM_COLL") & ~fused)
        .join(
            groups.filter(pl.col("is_here") & (pl.col("size") > 1)).select("group", "size"),
            on="group", how="inner", maintain_order="left",
        )
        .with_columns(place=pl.int_range(pl.len(), dtype=pl.Int64).over(*_LANE, "rank"))
    )  # fmt: skip


def match_collectives(across: Across) -> pl.DataFrame:
    """Match the k-th collective of a group on one rank with the k-th on every other.

    If all collectives of a group have a ``comms_id``, those with the same one are matched instead.

    Ranks disagree if one recording began later or lacks operations. Collectives are then counted
    from the end, or matched by the longest common subsequence. Of these ways, the one is chosen in
    which most collectives have one size on all ranks; then the one that leaves the fewest
    unmatched; then the one in which the fewest end before others begin. Operations with an unknown
    group are matched by common subsequences too, the largest groups first.

    - Returns: ``part``, a row of ``across.work``; ``group``; ``lane`` and ``place``, the same for
      all parts of a collective. O(communications log communications) if ranks agree.
    """
    named = collectives_of(across)
    stated, named = _by_comms_id(named)
    agreeing = _agrees(named)
    settled = named.join(agreeing.filter("agrees"), on=_LANE, how="semi", maintain_order="left")
    others = named.join(agreeing.filter(~pl.col("agrees")), on=_LANE, how="semi")
    found = [stated, settled, *map(_realigned, others.partition_by(*_LANE, maintain_order=True))]
    lane = 2 * pl.col("group") + pl.col("is_cpu").cast(pl.Int64)
    matched = pl.concat([part.select("part", "group", "place", lane=lane) for part in found])
    return pl.concat([matched, *_match_unnamed(across)])


def _by_comms_id(named: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Match the collectives of groups that all have an id; returns these, and the others.

    Collectives of a rank with the same id, such as coalesced ones, are matched in their order. Ids
    of which ranks share under half are none: some versions of PyTorch number the calls of a
    process, and not those of a group.
    """
    has_ids = (pl.col("comms_id") >= 0).all().over(*_LANE)
    number = pl.int_range(pl.len(), dtype=pl.Int64).over(*_LANE, "rank", "comms_id")
    place = pl.struct("comms_id", number.alias("number")).rank("dense").cast(pl.Int64)
    whole = _whole(named.filter(has_ids).with_columns(place=place))
    counts = named.group_by(*_LANE, "rank").len().group_by(*_LANE).agg(pl.col("len").min())
    shared = whole.group_by(*_LANE, "rank").len().unique(_LANE).rename({"len": "shared"})
    agreed = shared.join(counts, on=_LANE).filter(2 * pl.col("shared") >= pl.col("len"))
    stated = whole.join(agreed, on=_LANE, how="semi", maintain_order="left")
    return stated, named.join(agreed, on=_LANE, how="anti", maintain_order="left")


def _whole(lane: pl.DataFrame) -> pl.DataFrame:
    """Return the parts of collectives that all ranks take part in, with one type."""
    told = pl.col("comm_type").filter(pl.col("comm_type") != "other")
    is_whole = (pl.len().over(*_LANE, "place") == pl.col("size")) & (
        told.n_unique().over(*_LANE, "place") <= 1
    )
    return lane.filter(is_whole)


def _equal(lane: pl.DataFrame) -> pl.DataFrame:
    """Return the parts of whole collectives that have one size on all ranks, where it must be."""
    size = pl.when(pl.col("comm_type").is_in(SAME_BYTES) & (pl.col("comm_bytes") >= 0))
    num_sizes = size.then("comm_bytes").drop_nulls().n_unique().over(*_LANE, "place")
    return _whole(lane).filter(num_sizes <= 1)


def _agrees(named: pl.DataFrame) -> pl.DataFrame:
    """Return for each lane whether every collective in it is whole and has one size."""
    equal = _equal(named).select("part", is_equal=True)
    marked = named.join(equal, on="part", how="left", maintain_order="left")
    return marked.group_by(*_LANE, maintain_order=True).agg(
        agrees=pl.col("is_equal").is_not_null().all()
    )


def _realigned(lane: pl.DataFrame) -> pl.DataFrame:
    """Renumber the collectives of a group whose ranks disagree; returns the whole ones."""
    from_end = pl.col("place") - pl.len().cast(pl.Int64).over("rank")
    ways = [_whole(lane), _whole(lane.with_columns(place=from_end - from_end.min()))]
    shortest = int(lane.group_by("rank").len()["len"].min() or 0)  # type: ignore[arg-type]
    if max(_equal(way).height for way in ways) < shortest * int(lane["size"][0]):
        ways.append(_in_common(lane))
    return min(ways, key=lambda way: (-_equal(way).height, -way.height, _num_contradictions(way)))


def _num_contradictions(lane: pl.DataFrame) -> int:
    """Count the parts that end before another rank begins the same collective."""
    begins_last = pl.col("start").max().over("place")
    return lane.filter(pl.col("end") < begins_last).height


def _in_common(lane: pl.DataFrame) -> pl.DataFrame:
    """Keep the collectives that all ranks of a group have in common, in order."""
    members = lane["rank"].unique().sort().to_list()
    if len(members) < int(lane["size"][0]):
        return lane.clear()
    rows = {rank: part for (rank,), part in lane.partition_by("rank", as_dict=True).items()}
    kinds = _kinds(lane)
    own = {rank: kinds[part["part"].to_numpy()] for rank, part in rows.items()}
    chosen = _common(own, members)
    parts = [
        rows[rank][places].with_columns(place=np.arange(places.size))
        for rank, places in chosen.items()
    ]
    return pl.concat(parts).select(lane.columns)


def _kinds(work: pl.DataFrame) -> Ints:
    """Enumerate collectives by what is equal on all ranks: type and, usually, bytes; by part."""
    size = pl.when(pl.col("comm_type").is_in(SAME_BYTES)).then("comm_bytes").otherwise(-1)
    number = work.select(pl.struct("comm_type", size).rank("dense").cast(pl.Int64)).to_series()
    kinds = np.full(int(work["part"].max() or 0) + 1, -1, dtype=np.int64)  # type: ignore[arg-type]
    kinds[work["part"].to_numpy()] = number.to_numpy()
    return kinds


def _common(kinds: dict[int, Ints], members: list[int]) -> dict[int, Ints]:
    """Find a common subsequence of several sequences: its places in each of them, by rank."""
    first = members[0]
    common = np.arange(kinds[first].size)
    for rank in members[1:]:
        common = common[_partners(kinds[first][common], kinds[rank]) >= 0]
    places = {first: common}
    for rank in members[1:]:
        places[rank] = _partners(kinds[first][common], kinds[rank])
    # the second search may choose another subsequence than the first, and drop items
    complete = np.all([places[rank] >= 0 for rank in members], axis=0)
    return {rank: places[rank][complete] for rank in members}


def _partners(left: Ints, right: Ints) -> Ints:
    """Return the place in ``right`` of the equal element of each of ``left``, or -1."""
    partner = np.full(left.size, -1, dtype=np.int64)
    align(left, right, _MOST_EDITS, partner)
    return partner


def _match_unnamed(across: Across) -> list[pl.DataFrame]:
    """Match operations with an unknown group, the largest groups first."""
    left = across.work.filter((pl.col("group") < 0) & (pl.col("kind") == "COMM_COLL"))
    if left.height == 0:
        return []
    groups = across.groups.with_row_index("group").filter("is_here")
    candidates = [(row["group"], row["ranks"]) for row in groups.iter_rows(named=True)]
    if across.groups.height == 0 and across.is_whole:
        candidates = [(-1, across.work["rank"].unique().sort().to_list())]
    candidates = [(group, ranks) for group, ranks in candidates if len(ranks) > 1]
    kinds = _kinds(left)
    rest = {
        rank: part["part"].to_numpy()
        for (rank,), part in left.partition_by("rank", as_dict=True).items()
    }
    found = []
    for number, (group, ranks) in enumerate(sorted(candidates, key=lambda c: -len(c[1]))):
        if not set(ranks) <= set(rest):
            continue
        places = _common({rank: kinds[rest[rank]] for rank in ranks}, ranks)
        for rank, at in places.items():
            columns = {"part": rest[rank][at], "place": np.arange(at.size)}
            lane = 2 * across.groups.height + number  # after the lanes of named groups
            found.append(
                pl.DataFrame(columns).select(
                    "part", pl.lit(group, pl.Int64).alias("group"), "place",
                    pl.lit(lane, pl.Int64).alias("lane"),
                )
            )  # fmt: skip
            rest[rank] = np.delete(rest[rank], at)
    return found


_LANE_OF_POINT = ("group", "is_cpu", "src", "dst", "tag")


def match_pairs(across: Across) -> pl.DataFrame:
    """Match the k-th send from one rank to another with the k-th receive between the same ranks.

    Both are of the same group and, for gloo, of the same tag. NCCL matches by order alone.

    - Returns: One row per pair: ``send`` and ``receive``, rows of ``across.work``.
      O(communications).
    """
    # operations without a known peer stay unmatched, as do those of a rank with itself
    work = across.work.filter(
        pl.col("kind").is_in(PAIRWISE) & (pl.col("src") >= 0) & (pl.col("dst") >= 0)
    ).with_columns(tag=pl.when("is_cpu").then("tag").otherwise(-1))
    work = work.with_columns(place=pl.int_range(pl.len()).over(*_LANE_OF_POINT, "kind"))
    sends = work.filter((pl.col("kind") == "COMM_SEND") & (pl.col("rank") == pl.col("src")))
    receives = work.filter((pl.col("kind") == "COMM_RECV") & (pl.col("rank") == pl.col("dst")))
    return sends.select(*_LANE_OF_POINT, "place", send="part").join(
        receives.select(*_LANE_OF_POINT, "place", receive="part"), on=[*_LANE_OF_POINT, "place"],
        how="inner", maintain_order="left",
    ).select("send", "receive")  # fmt: skip


_MOST_SHOWN = 3
_LONGEST_NAME = 60
_ALONE = "they keep their measured duration"


def report_collectives(across: Across, matched: pl.DataFrame, log: IssueLog) -> None:
    """Report the collectives without a counterpart, and those of different sizes.

    - ``matched``: As :func:`nadi.recordings.ranks.collective_matching.match_collectives` returns
      it.
    """
    work = across.work.filter(pl.col("kind") == "COMM_COLL")
    groups = across.groups.with_row_index("group").with_columns(pl.col("group").cast(pl.Int64))
    alone = work.join(matched, on="part", how="anti", maintain_order="left").join(
        groups, on="group", how="left", maintain_order="left"
    )
    is_absent = (pl.col("group") >= 0) & ~pl.col("is_here")
    if not across.is_whole and across.groups.height == 0:
        is_absent = pl.lit(value=True)  # the members of groups are unknown
    absent = alone.filter(is_absent)
    log.add(
        "job.group-incomplete", "warning", absent.height,
        "collectives belong to process groups with missing ranks",
        "they keep their measured duration, which may include wait time; give all ranks of the job",
    )  # fmt: skip
    # a group of one rank has nothing to wait for
    alone = alone.filter(~is_absent & ((pl.col("group") < 0) | (pl.col("size") > 1)))
    log.add(
        "job.unmatched-collective", "warning", alone.height,
        "collectives have no counterpart on other ranks of their process group"
        + _shown(_disagreements(across, alone)),
        f"{_ALONE}; record all ranks over the same steps",
    )  # fmt: skip
    together = matched.join(work, on="part", how="inner", maintain_order="left").filter(
        pl.col("comm_type").is_in(SAME_BYTES) & (pl.col("comm_bytes") >= 0)
    )
    _report_sizes(together, log)


def _report_sizes(together: pl.DataFrame, log: IssueLog) -> None:
    """Report the collectives whose sizes differ between ranks; by lane and place."""
    bytes_ = pl.col("comm_bytes")
    unequal = (
        together.group_by("lane", "place", maintain_order=True)
        .agg(
            first=pl.struct("rank", "id", "name", "comm_type", "comm_bytes").first(),
            other=pl.struct("rank", "id", "name", "comm_type", "comm_bytes")
            .filter(bytes_ != bytes_.first())
            .first(),
        )
        .drop_nulls("other")
    )
    told = [
        f"{_described(row['first'])}, but {_described(row['other'])}"
        for row in unequal.head(_MOST_SHOWN).iter_rows(named=True)
    ]
    log.add(
        "job.collective-size", "warning", unequal.height,
        f"collectives have different sizes on their ranks{_shown(told)}",
        "they are matched anyway",
    )  # fmt: skip


def _disagreements(across: Across, alone: pl.DataFrame) -> list[str]:
    """Describe the first mismatch of each of the first groups."""
    told = []
    every = collectives_of(across)
    for group, place in _first_places(every, alone):
        at = every.filter((pl.col("group") == group) & (pl.col("place") == place))
        first = at.row(0, named=True)
        unlike = at.filter(pl.col("comm_type") != first["comm_type"])
        name = across.groups["name"][group]
        if unlike.height:
            what = _described(unlike.row(0, named=True))
        else:
            absent = sorted(set(across.groups["ranks"][group]) - set(at["rank"]))
            if not absent:
                continue
            what = f"rank {absent[0]} has no further collective"
        told.append(f"collective {place} of group {name!r}: {_described(first)}, but {what}")
    unnamed = alone.filter(pl.col("group") < 0).head(_MOST_SHOWN - len(told))
    told += [f"{_described(row)}, of an unknown group" for row in unnamed.iter_rows(named=True)]
    return told[:_MOST_SHOWN]


def _first_places(every: pl.DataFrame, alone: pl.DataFrame) -> list[tuple[int, int]]:
    """Return the first place of each group at which its ranks disagree."""
    groups = alone["group"].unique(maintain_order=True)
    unlike = (
        every.filter(pl.col("group").is_in(groups.implode()))
        .group_by("group", "is_cpu", "place")
        .agg(differs=(pl.len() < pl.col("size").first()) | (pl.col("comm_type").n_unique() > 1))
        .filter("differs")
        .group_by("group")
        .agg(pl.col("place").min())
        .sort("group")
    )
    return list(unlike.head(_MOST_SHOWN).iter_rows())


def report_pairs(across: Across, pairs: pl.DataFrame, log: IssueLog) -> None:
    """Report the sends and receives without a counterpart, and those of different sizes.

    - ``pairs``: As :func:`nadi.recordings.ranks.collective_matching.match_pairs` returns it.
    """
    work = across.work
    matched = pl.concat([pairs["send"], pairs["receive"]])
    alone = work.filter(pl.col("kind").is_in(PAIRWISE) & ~pl.col("part").is_in(matched.implode()))
    unknown = (pl.col("src") < 0) | (pl.col("dst") < 0)
    log.add(
        "job.point-to-point-unknown", "warning", alone.filter(unknown).height,
        "send and receive operations have an unknown peer", _ALONE,
    )  # fmt: skip
    alone = alone.filter(~unknown)
    peer = pl.when(pl.col("kind") == "COMM_SEND").then("dst").otherwise("src")
    here = peer.is_in(work["rank"].unique().implode())
    log.add(
        "job.point-to-point-absent", "warning", alone.filter(~here).height,
        "send and receive operations have a peer without a trace", _ALONE,
    )  # fmt: skip
    lost = alone.filter(here)
    told = [
        f"{_described(row)} from rank {row['src']} to {row['dst']}, tag {row['tag']}, "
        "without a counterpart on the peer"
        for row in lost.head(_MOST_SHOWN).iter_rows(named=True)
    ]
    log.add(
        "job.unmatched-point-to-point", "warning", lost.height,
        f"send and receive operations have no counterpart on their peer{_shown(told)}",
        f"{_ALONE}; record all ranks over the same steps",
    )  # fmt: skip
    columns = pl.struct("rank", "id", "name", "comm_type", "comm_bytes")
    both = pl.DataFrame(
        {
            "send": work.select(columns).to_series().gather(pairs["send"]),
            "receive": work.select(columns).to_series().gather(pairs["receive"]),
        }
    )
    sizes = [pl.col(end).struct.field("comm_bytes") for end in both.columns]
    unequal = both.filter((sizes[0] >= 0) & (sizes[1] >= 0) & (sizes[0] != sizes[1]))
    told = [
        f"{_described(row['send'])}, but {_described(row['receive'])}"
        for row in unequal.head(_MOST_SHOWN).iter_rows(named=True)
    ]
    log.add(
        "job.point-to-point-size", "warning", unequal.height,
        f"sends and their receives have different sizes{_shown(told)}",
        "they are matched anyway",
    )  # fmt: skip


def _described(node: dict[str, Any]) -> str:
    size = node["comm_bytes"]
    amount = f"{format_count(size)} bytes" if size >= 0 else "an unknown size"
    name = printable(node["name"], _LONGEST_NAME)
    return f"rank {node['rank']} has node {node['id']} ({name}), {node['comm_type']} of {amount}"


def _shown(told: list[str]) -> str:
    return f": {'; '.join(told)}" if told else ""
