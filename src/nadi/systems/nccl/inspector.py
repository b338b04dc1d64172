"""Logs of NCCL's and RCCL's Inspector: what each collective of a running program took.

The Inspector is a profiler plugin of NCCL (from 2.28 on). Each process writes a file with a JSON
object per line: the communicator (``header``), the file and moment (``metadata``), and one
collective (``coll_perf``) or message between two ranks (``p2p_perf``).
"""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from nadi.errors import FormatError
from nadi.systems.nccl.measured import MeasuredCollective, collective_named, nccl_tests_factors

if TYPE_CHECKING:
    import polars as pl

_GATHERED = ("all_gather", "reduce_scatter")  # whose sizes count what a rank gives or keeps
_REMEDY = "give the files that the Inspector writes, as they are"
_Whole = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
_Real = Annotated[float, msgspec.Meta(ge=0, le=1e15)]


class _Header(msgspec.Struct):
    id: str | int
    rank: _Whole
    n_ranks: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    nnodes: Annotated[int, msgspec.Meta(ge=1, lt=2**31)] = 1
    comm_name: str = ""


class _Performance(msgspec.Struct):
    coll: str
    coll_sn: _Whole
    coll_msg_size_bytes: _Whole
    coll_exec_time_us: _Real
    coll_timing_source: str = ""


class _Line(msgspec.Struct):
    header: _Header
    coll_perf: _Performance | None = None


class InspectedCollective(NamedTuple):
    """A collective as one rank of it saw it."""

    # communicator, name: its id, and its name if it has one
    communicator: str
    name: str
    # ranks, nodes, rank: of the communicator, and the rank in it
    ranks: int
    nodes: int
    rank: int
    collective: str  # as Nadi calls it
    number: int  # of this collective in its communicator
    size: int  # bytes as nccl-tests counts them: of an all-gather those that are gathered
    time_ns: float  # from its start to its end on this rank, with waiting for others
    source: str  # what has measured the time: the kernel on the device, or the CPU


_decoder = msgspec.json.Decoder(_Line)


def looks_inspected(head: bytes) -> bool:
    """Return whether a file begins as one of the Inspector's does."""
    first = head.lstrip().partition(b"\n")[0]
    return first.startswith(b"{") and b'"header"' in first and b"_perf" in first


def parse_inspector(content: bytes, name: str) -> list[InspectedCollective]:
    """Read the collectives of a file; messages between two ranks are passed over. O(bytes).

    - Raises FormatError if a line is no object of the Inspector.
    """
    found = []
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        try:
            said = _decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            what = str(error)[:200]
            raise FormatError(
                f"{name}, line {number}", what if what.isprintable() else "no valid JSON", _REMEDY
            ) from None
        if (one := said.coll_perf) is None:
            continue
        collective = collective_named(one.coll.lower())
        if not collective:
            continue
        scale = said.header.n_ranks if collective in _GATHERED else 1
        found.append(InspectedCollective(
            str(said.header.id), said.header.comm_name, said.header.n_ranks, said.header.nnodes,
            said.header.rank, collective, one.coll_sn, one.coll_msg_size_bytes * scale,
            one.coll_exec_time_us * 1000, one.coll_timing_source,
        ))  # fmt: skip
    return found


def inspected_table(found: list[InspectedCollective]) -> pl.DataFrame:
    """Tabulate collectives by communicator, kind and size.

    - Returns: ``communicator``, ``name``, ``ranks``, ``nodes``, ``collective``, ``size_bytes``,
      ``count``, ``seen_ranks`` (whose files there are), ``time_ns`` (the median of what each took
      on the rank that entered it last, the only one that waits for nobody), ``waiting_ns`` (the
      median of how much longer the first took), ``algbw_gb_per_s``, ``busbw_gb_per_s``.
    """
    import polars as pl

    rows = pl.DataFrame(found, schema=list(InspectedCollective._fields), orient="row")
    key = ["communicator", "name", "ranks", "nodes", "collective", "size"]
    each = rows.group_by(*key, "number").agg(
        time_ns=pl.min("time_ns"), most_ns=pl.max("time_ns"), seen=pl.col("rank").n_unique()
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


def tables_of_inspected(found: list[InspectedCollective], name: str) -> list[MeasuredCollective]:
    """Return measured tables: by collective, ranks and nodes, of all communicators of such a size.

    The time of a size is the median of :func:`inspected_table`'s times. O(rows log rows).
    """
    first: dict[tuple[str, int, int], dict[int, dict[tuple[str, int], float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for one in found:
        if one.size > 0 and one.time_ns > 0 and one.ranks > 1:
            times = first[one.collective, one.ranks, one.nodes][one.size]
            key = one.communicator, one.number
            times[key] = min(times.get(key, one.time_ns), one.time_ns)
    return [
        MeasuredCollective(
            collective, ranks, nodes, tuple(sorted(sizes)),
            tuple(median(sizes[size].values()) for size in sorted(sizes)), name,
        )
        for (collective, ranks, nodes), sizes in sorted(first.items())
    ]  # fmt: skip
