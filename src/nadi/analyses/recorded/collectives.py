"""Collectives over ranks: the time that ranks wait for the last, and the time that is left."""

import polars as pl

from nadi.errors import InputError, checked
from nadi.systems.nccl.measured import nccl_tests_factors
from nadi.trace.trace import Job


@checked
def collective_list(job: Job) -> pl.DataFrame:
    """List the collectives of a job: the skew of its ranks apart from its communication latency.

    The transfer time is from the moment when the last rank began to the last end, as in
    simulations. The communication latency is to the end of the rank that ends first after it. It
    and the skew are TraceLens's terms. If no collective is matched over several ranks, as of a
    recording of one, those of each rank are listed, whose time includes the wait for others.

    Returns
    -------
    polars.DataFrame
        In order of time: ``collective``, ``name``, ``type``, ``ranks`` (that are recorded),
        ``size_bytes`` (of the tensors of a rank; -1 if not recorded), ``start_ns`` (since the
        origin of the job), ``last_rank`` (that began last), ``skew_ns`` (from the first begin to
        the last), ``comm_latency_ns``, ``transfer_ns`` (these three null of one rank),
        ``longest_ns`` (of a rank, with its wait). O(collectives).

    Raises
    ------
    InputError
        If no collective is recorded.
    """
    parts = []
    for trace in job.traces:
        mine = job.matches.filter(pl.col("rank") == trace.rank)
        rows = mine["node"].to_numpy()
        parts.append(trace.nodes[rows].select(
            pl.col("name").cast(pl.String), pl.col("comm_type").cast(pl.String).alias("type"),
            "start", "duration", "comm_bytes",
            mine["collective"], mine["rank"],
        ))  # fmt: skip
    table = pl.concat(parts).filter(pl.col("start") >= 0) if parts else pl.DataFrame()
    several = table.filter(pl.len().over("collective") > 1) if table.height else table
    if several.height == 0:
        return _of_each_rank(job)
    end = pl.col("start") + pl.col("duration")
    last = pl.max("start")
    return (
        several.group_by("collective")
        .agg(
            pl.first("name"), pl.first("type"), ranks=pl.len().cast(pl.Int64),
            size_bytes=pl.max("comm_bytes"), start_ns=pl.min("start") - job.origin,
            last_rank=pl.col("rank").get(pl.col("start").arg_max()),
            skew_ns=last - pl.min("start"), comm_latency_ns=pl.max_horizontal(end.min() - last, 0),
            transfer_ns=end.max() - last,
            longest_ns=pl.max("duration"),
        )
        .sort("start_ns", "collective")
    )  # fmt: skip


def _of_each_rank(job: Job) -> pl.DataFrame:
    """List the collectives of each rank apart, as :func:`collective_list` does."""
    unknown = pl.lit(None, pl.Int64)
    rows = [
        trace.nodes.filter((pl.col("kind") == "COMM_COLL") & (pl.col("start") >= 0)).select(
            pl.col("name").cast(pl.String), pl.col("comm_type").cast(pl.String).alias("type"),
            ranks=pl.lit(1, pl.Int64), size_bytes="comm_bytes",
            start_ns=pl.col("start") - job.origin, last_rank=pl.lit(trace.rank, pl.Int64),
            skew_ns=unknown, comm_latency_ns=unknown, transfer_ns=unknown, longest_ns="duration",
        )
        for trace in job.traces
    ]  # fmt: skip
    table = pl.concat(rows).sort("start_ns", "last_rank")
    if not table.height:
        raise InputError(
            "", "no collective is recorded", "pass the device traces of ranks that communicate"
        )
    return table.select(pl.int_range(pl.len(), dtype=pl.Int64).alias("collective"), pl.all())


@checked
def collective_skew(job: Job) -> pl.DataFrame:
    """Summarize collectives by name, size and number of ranks.

    Returns
    -------
    polars.DataFrame
        ``name``, ``type``, ``ranks``, ``size_bytes``, ``count``, ``comm_latency_ns``,
        ``transfer_ns`` and ``skew_ns`` (means; null of one rank), ``longest_ns`` (the mean of the
        longest of a rank, with its wait), ``skew_percent`` (of the skew and the communication
        latency), ``algbw_gb_per_s``, ``busbw_gb_per_s`` (as nccl-tests has them, for the transfer
        time; null where sizes or factors are not known); the most time first.
        O(collectives).

    Raises
    ------
    InputError
        As :func:`collective_list`.
    """
    table = (
        collective_list(job)
        .group_by("name", "type", "ranks", "size_bytes")
        .agg(
            count=pl.len().cast(pl.Int64),
            comm_latency_ns=pl.mean("comm_latency_ns"),
            transfer_ns=pl.mean("transfer_ns"),
            skew_ns=pl.mean("skew_ns"),
            longest_ns=pl.mean("longest_ns"),
        )
    )
    factors = [
        nccl_tests_factors(kind, ranks) for kind, ranks in table.select("type", "ranks").iter_rows()
    ]
    whole, bus = (pl.Series([pair[k] for pair in factors], dtype=pl.Float64) for k in range(2))
    rate = pl.when((pl.col("size_bytes") > 0) & (pl.col("transfer_ns") > 0)).then(
        pl.col("size_bytes") * pl.lit(whole) / pl.col("transfer_ns")
    )
    both = pl.col("comm_latency_ns") + pl.col("skew_ns")
    return table.with_columns(
        skew_percent=100 * pl.col("skew_ns") / both,
        algbw_gb_per_s=rate,
        busbw_gb_per_s=pl.when(pl.lit(bus) > 0).then(rate * pl.lit(bus)),
    ).sort(
        both.fill_null(pl.col("longest_ns")) * pl.col("count"), "name", "size_bytes",
        descending=[True, False, False],
    )  # fmt: skip
