"""Logs of NCCL's and RCCL's Inspector: what each collective of a running program took.

The Inspector is a profiler plugin of NCCL (from 2.28 on). Each process writes a file with a JSON
object per line: the communicator (``header``), the file and moment (``metadata``), and one
collective (``coll_perf``) or message between two ranks (``p2p_perf``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec

from nadi.errors import FormatError
from nadi.files.files import garbage_collection_paused
from nadi.systems.nccl.measured import MeasuredCollective, collective_named, nccl_tests_factors

if TYPE_CHECKING:
    import polars as pl

_GATHERED = ("all_gather", "reduce_scatter")  # whose sizes count what a rank gives or keeps
_REMEDY = "give the files that the Inspector writes, as they are"
_COLUMNS = {
    "communicator": "String", "name": "String", "ranks": "Int64", "nodes": "Int64", "rank": "Int64",
    "collective": "String", "number": "Int64", "size": "Int64", "time_ns": "Float64",
    "source": "String",
}  # fmt: skip
_MOST_BYTES = 2**62
_Whole = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
_Real = Annotated[float, msgspec.Meta(ge=0, le=1e15)]


class _Header(msgspec.Struct, gc=False):
    id: str | int
    rank: _Whole
    n_ranks: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    nnodes: Annotated[int, msgspec.Meta(ge=1, lt=2**31)] = 1
    comm_name: str = ""


class _Performance(msgspec.Struct, gc=False):
    coll: str
    coll_sn: _Whole
    coll_msg_size_bytes: _Whole
    coll_exec_time_us: _Real
    coll_timing_source: str = ""


class _Line(msgspec.Struct, gc=False):
    header: _Header
    coll_perf: _Performance | None = None


_decoder = msgspec.json.Decoder(_Line)
_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def looks_inspected(head: bytes) -> bool:
    """Return whether a file begins as one of the Inspector's does."""
    first = head.lstrip().partition(b"\n")[0]
    return first.startswith(b"{") and b'"header"' in first and b"_perf" in first


def parse_inspector(content: bytes, name: str) -> pl.DataFrame:
    """Read the collectives of a file; messages between two ranks are passed over.

    Returns
    -------
    polars.DataFrame
        A row per collective of a rank: ``communicator`` and ``name``, its id, and its name if it
        has one; ``ranks`` and ``nodes`` of it, and the ``rank`` in it; ``collective``, as Nadi
        calls it; ``number`` of this collective in its communicator; ``size`` in bytes as nccl-tests
        counts them, of an all-gather those that are gathered; ``time_ns`` from its start to its end
        on this rank, with waiting for others; ``source``, what has measured the time. O(bytes).

    - Raises FormatError if a line is no object of the Inspector.
    """
    import polars as pl

    try:
        with garbage_collection_paused():
            lines = _decoder.decode_lines(content)
    except _ERRORS:
        raise _error(content, name) from None
    called = _Names()
    done = [(line.header, one, called[one.coll]) for line in lines
            if (one := line.coll_perf) is not None and called[one.coll]]  # fmt: skip
    sizes = [one.coll_msg_size_bytes * (of.n_ranks if collective in _GATHERED else 1)
             for of, one, collective in done]  # fmt: skip
    return pl.DataFrame({
        "communicator": [str(of.id) for of, _, _ in done],
        "name": [of.comm_name for of, _, _ in done],
        "ranks": [of.n_ranks for of, _, _ in done],
        "nodes": [of.nnodes for of, _, _ in done],
        "rank": [of.rank for of, _, _ in done],
        "collective": [collective for _, _, collective in done],
        "number": [one.coll_sn for _, one, _ in done],
        "size": [min(size, _MOST_BYTES) for size in sizes],
        "time_ns": [one.coll_exec_time_us * 1000 for _, one, _ in done],
        "source": [one.coll_timing_source for _, one, _ in done],
    }, schema={name: getattr(pl, kind) for name, kind in _COLUMNS.items()})  # fmt: skip


class _Names(dict[str, str]):
    """What Nadi calls collectives, by their names; empty if it does not know one."""

    def __missing__(self, name: str) -> str:
        self[name] = found = collective_named(name.lower())
        return found


def _error(content: bytes, name: str) -> FormatError:
    """Return the error of the first line that is no object of the Inspector."""
    for number, line in enumerate(content.splitlines(), 1):
        try:
            _decoder.decode_lines(line)
        except _ERRORS as error:
            what = str(error)[:200]
            what = what if what.isprintable() else "no valid JSON"
            return FormatError(f"{name}, line {number}", what, _REMEDY)
    return FormatError(name, "objects that are not on a line each", _REMEDY)


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
