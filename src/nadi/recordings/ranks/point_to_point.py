"""Match sends with receives."""

from __future__ import annotations

import polars as pl

from nadi.recordings.communication.issue_order import PAIRWISE
from nadi.recordings.ranks.all_ranks import Across

__all__ = ["match_pairs"]

_LANE = ("group", "is_cpu", "src", "dst", "tag")


def match_pairs(across: Across) -> pl.DataFrame:
    """Match the k-th send from one rank to another with the k-th receive between the same ranks.

    Both are of the same group and, for gloo, of the same tag. NCCL matches by order alone.

    Returns
    -------
    polars.DataFrame
        One row per pair: ``send`` and ``receive``, rows of ``across.work``.
        O(communications).
    """
    # operations without a known peer stay unmatched, as do those of a rank with itself
    work = across.work.filter(
        pl.col("kind").is_in(PAIRWISE) & (pl.col("src") >= 0) & (pl.col("dst") >= 0)
    ).with_columns(tag=pl.when("is_cpu").then("tag").otherwise(-1))
    work = work.with_columns(place=pl.int_range(pl.len()).over(*_LANE, "kind"))
    sends = work.filter((pl.col("kind") == "COMM_SEND") & (pl.col("rank") == pl.col("src")))
    receives = work.filter((pl.col("kind") == "COMM_RECV") & (pl.col("rank") == pl.col("dst")))
    return sends.select(*_LANE, "place", send="part").join(
        receives.select(*_LANE, "place", receive="part"), on=[*_LANE, "place"],
        how="inner", maintain_order="left",
    ).select("send", "receive")  # fmt: skip
