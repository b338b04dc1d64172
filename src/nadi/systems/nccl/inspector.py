"""Logs of NCCL's and RCCL's Inspector: what each collective of a running program took.

The Inspector is a profiler plugin of NCCL (from 2.28 on). Each process writes a file with a JSON
object per line: the communicator (``header``), the file and moment (``metadata``), and one
collective (``coll_perf``) or message between two ranks (``p2p_perf``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nadi.systems.nccl.measured import MeasuredCollective, collective_named, nccl_tests_factors

if TYPE_CHECKING:
    import polars as pl

    from nadi.files.files import RawFile

_GATHERED = ("all_gather", "reduce_scatter")  # whose sizes count what a rank gives or keeps
_MOST_BYTES, _MOST_RANKS, _MOST_MICROS = 2**62, 2**31, 1e15
_ID, _RANK, _RANKS, _NODES, _NAME = (
    f"header.{key}" for key in ("id", "rank", "n_ranks", "nnodes", "comm_name")
)
_COLLECTIVE, _NUMBER, _SIZE, _TIME, _SOURCE = (
    f"coll_perf.{key}"
    for key in ("coll", "coll_sn", "coll_msg_size_bytes", "coll_exec_time_us", "coll_timing_source")
)
_FIELDS = (_ID, _RANK, _RANKS, _NODES, _NAME, _COLLECTIVE, _NUMBER, _SIZE, _TIME, _SOURCE)


def looks_inspected(head: bytes) -> bool:
    """Return whether a file begins as one of the Inspector's does."""
    first = head.lstrip().partition(b"\n")[0]
    return first.startswith(b"{") and b'"header"' in first and b"_perf" in first


def parse_inspector(raw: RawFile) -> pl.DataFrame:
    """Read the collectives of a file; messages between two ranks are passed over.

    Returns
    -------
    polars.DataFrame
        A row per collective of a rank: ``communicator`` and ``name``, its id, and its name if it
        has one; ``ranks`` and ``nodes`` of it, and the ``rank`` in it; ``collective``, as Nadi
        calls it; ``number`` of this collective in its communicator; ``size`` in bytes as nccl-tests
        counts them, of an all-gather those that are gathered; ``time_ns`` from its start to its end
        on this rank, with waiting for others; ``source``, what has measured the time. O(bytes).

    - Raises FormatError if a line is no object of the Inspector, with its number.
    """
    import polars as pl

    from nadi.files.json_file import Texts
    from nadi.files.json_objects import read_columns
    from nadi.files.read_columns import MISSING

    read = read_columns(raw, _FIELDS, is_list=False)
    called, ids = read.texts(_COLLECTIVE), read.texts(_ID)
    number, size = read.whole(_NUMBER, -1), read.whole(_SIZE, -1)
    ranks, nodes, rank = read.whole(_RANKS), read.whole(_NODES, 1), read.whole(_RANK)
    micros = read.reals(_TIME)
    is_there = called.codes >= 0
    for field, is_good in (
        (_RANKS, (ranks > 0) & (ranks < _MOST_RANKS)),
        (_NODES, (nodes > 0) & (nodes < _MOST_RANKS)),
        (_ID, (ids.codes >= 0) | (read.numbers(_ID) != MISSING)),
        (_COLLECTIVE, is_there | (number < 0)),
        (_NUMBER, ~is_there | (number >= 0)),
        (_SIZE, ~is_there | (size >= 0)),
        (_TIME, ~is_there | (micros >= 0) & (micros <= _MOST_MICROS)),
    ):
        if not is_good.all():
            raise read.error(field, "absent, or not what the Inspector writes", ~is_good)
    names = Texts(called.codes, tuple(collective_named(one.lower()) for one in called.unique))
    whole = pl.DataFrame({
        "communicator": ids.series().fill_null(pl.Series(read.numbers(_ID)).cast(pl.String)),
        "name": read.texts(_NAME).series().fill_null(""),
        "ranks": ranks, "nodes": nodes, "rank": rank,
        "collective": names.series(), "number": number, "size": size, "time_ns": micros * 1000,
        "source": read.texts(_SOURCE).series().fill_null(""),
    })  # fmt: skip
    gathered = pl.col("collective").is_in(_GATHERED)
    factor = pl.when(gathered).then("ranks").otherwise(1)
    fits = pl.col("size") <= _MOST_BYTES // factor
    return whole.filter(pl.col("collective").fill_null("") != "").with_columns(
        size=pl.when(fits).then(pl.col("size") * factor).otherwise(_MOST_BYTES)
    )


def inspected_table(found: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Tabulate collectives of files by communicator, kind and size.

    - Returns: ``communicator``, ``name``, ``ranks``, ``nodes``, ``collective``, ``size_bytes``,
      ``count``, ``seen_ranks`` (whose files there are), ``time_ns`` (the median of what each took
      on the rank that entered it last, the only one that waits for nobody), ``waiting_ns`` (the
      median of how much longer the first took), ``algbw_gb_per_s``, ``busbw_gb_per_s``.
    """
    import polars as pl

    key = ["communicator", "name", "ranks", "nodes", "collective", "size"]
    each = (
        pl.concat(found)
        .group_by(*key, "number")
        .agg(time_ns=pl.min("time_ns"), most_ns=pl.max("time_ns"), seen=pl.col("rank").n_unique())
    )
    table = each.group_by(key).agg(
        count=pl.len().cast(pl.Int64), seen_ranks=pl.max("seen").cast(pl.Int64),
        time_ns=pl.median("time_ns"), waiting_ns=(pl.col("most_ns") - pl.col("time_ns")).median(),
    )  # fmt: skip
    pairs = table.select("collective", "ranks").iter_rows()
    factor = pl.Series(
        [nccl_tests_factors(one, ranks)[1] for one, ranks in pairs], dtype=pl.Float64
    )
    bandwidth = pl.when(pl.col("time_ns") > 0).then(pl.col("size") / pl.col("time_ns"))
    return (
        table.with_columns(algbw_gb_per_s=bandwidth, busbw_gb_per_s=bandwidth * factor)
        .rename({"size": "size_bytes"})
        .sort("communicator", "collective", "size_bytes")
    )


def tables_of_inspected(found: Sequence[pl.DataFrame], name: str) -> list[MeasuredCollective]:
    """Return measured tables: by collective, ranks and nodes, of all communicators of such a size.

    The time of a size is the median of :func:`inspected_table`'s times. O(rows log rows).
    """
    import polars as pl

    if not found:
        return []
    kind = ["collective", "ranks", "nodes"]
    usable = (pl.col("size") > 0) & (pl.col("time_ns") > 0) & (pl.col("ranks") > 1)
    each = (
        pl.concat(found)
        .filter(usable)
        .group_by(*kind, "size", "communicator", "number")
        .agg(pl.min("time_ns"))
    )
    sizes = each.group_by(*kind, "size").agg(pl.median("time_ns")).sort(*kind, "size")
    tables = sizes.group_by(*kind, maintain_order=True).agg("size", "time_ns")
    return [
        MeasuredCollective(collective, ranks, nodes, tuple(of_size), tuple(times), name)
        for collective, ranks, nodes, of_size, times in tables.iter_rows()
    ]
