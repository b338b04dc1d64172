"""Report where ranks disagree about their communication: rank, node, name, and the other rank."""

from typing import Any

import polars as pl

from nadi.recordings.communication.process_groups import PAIRWISE
from nadi.recordings.ranks.collective_matching import SAME_BYTES, Across, collectives_of
from nadi.trace.issues import IssueLog
from nadi.units import format_count, printable

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
