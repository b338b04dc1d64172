"""Times of collectives: a few lines for one, a table for several, and files."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from nadi.errors import UsageError
from nadi.files.csv_tables import csv_bytes
from nadi.files.files import check_target, locate, write_pieces
from nadi.results.declared import ALL, LABEL, NS, UNCUT, Column, Lines, Result, Rows, text_of
from nadi.results.text import to_json
from nadi.simulation.alone.collective import CollectiveEstimate, ComparedCollective
from nadi.units import (
    format_bytes,
    format_count,
    format_counted,
    format_ns,
    format_number,
    format_percent,
)

_DECIMAL = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "KB"), (1, "B"))
_SUFFIXES = (".csv", ".json")


def _described(
    asked: tuple[Sequence[CollectiveEstimate] | Sequence[ComparedCollective], str],
) -> dict[str, Any]:
    """Compute the JSON output of collectives on a system; the units are at the ends of names."""
    found, system = asked
    renamed = {"size": "size_bytes", "bandwidth": "bandwidth_gb_per_s",
               "bus_bandwidth": "bus_bandwidth_gb_per_s"}  # fmt: skip
    rows = [
        {renamed.get(name, name): value for name, value in msgspec.structs.asdict(one).items()}
        for one in found
    ]
    return {"system": system, "collectives": rows}


def check_collective_output(path: Path | str, sources: Sequence[Path], *, overwrite: bool) -> None:
    """Check that a result can be written before it is computed; writes nothing.

    - Raises UsageError if its suffix is neither .csv nor .json, or it is one of ``sources``.
    - Raises InputError if it cannot be written, or exists already and ``overwrite`` is not given.
    """
    place = locate(path)
    if place.suffix not in _SUFFIXES:
        raise UsageError(
            str(path), f"{place.suffix or 'no suffix'} is not a suffix of a table",
            f"use {' or '.join(_SUFFIXES)}",
        )  # fmt: skip
    check_target(place, sources, overwrite=overwrite)


def write_collectives(data: dict[str, Any], path: Path | str) -> None:
    """Write a row per size as CSV or JSON, by the suffix of ``path``."""
    place = locate(path)
    is_table = place.suffix == ".csv"
    content = csv_bytes(pl.DataFrame(data["collectives"])) if is_table else to_json(data)
    write_pieces(place, [content])


def _bytes(size: int) -> str:
    """Write a size as users do: in decimal units if it is a multiple of 1,000 bytes."""
    if size % 1000:
        return format_bytes(size)
    scale, unit = next(pair for pair in _DECIMAL if size >= pair[0] or pair[0] == 1)
    return f"{size / scale:.4g} {unit}"


def _title(data: dict[str, Any]) -> str:
    first = data["collectives"][0]
    nodes = format_counted(first["nodes"], "node")
    return (
        f"{first['collective']}, {format_count(first['ranks'])} ranks on {nodes} of "
        f"{data['system']}"
    )


def _one(data: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a single size."""
    if len(data["collectives"]) > 1:
        return
    (one,) = data["collectives"]
    yield f"{_title(data)}, {_bytes(one['size_bytes'])}"
    yield f"  time      {format_ns(one['time_ns'])}  ({one['source']})"
    if one["modeled_ns"] >= 0:
        yield f"  model     {format_ns(one['modeled_ns'])}  (the library's own, not corrected)"
    how = one["algorithm"] or "-"
    if one["protocol"]:
        channels = format_counted(one["channels"], "channel")
        how = f"{one['algorithm']}, protocol {one['protocol']}, {channels}"
    yield f"  algorithm {how}"
    bus = ""
    if one["bus_bandwidth_gb_per_s"] >= 0:
        bus = f", bus bandwidth {_gbps(one['bus_bandwidth_gb_per_s'])}"
    yield f"  bandwidth {_gbps(one['bandwidth_gb_per_s'])}{bus}"
    bound = "unknown"
    if one["bound_ns"] >= 0:
        bound = (
            f"{format_ns(one['bound_ns'])} for the bytes on the busiest link, {_share(one)} of "
            "the time"
        )
    yield f"  bound     {bound}"


def _gbps(rate: float) -> str:
    return f"{format_number(rate)} GB/s" if rate >= 0 else "-"


def _share(one: dict[str, Any]) -> str:
    return format_percent(one["bound_ns"], one["time_ns"]) if one["bound_ns"] >= 0 else "-"


COLLECTIVES = Result(
    kind="collectives", title="Collectives alone", order=80, facts=_described, headline=None,
    parts=(
        Lines(_one),
        Rows("collectives", _title, None, (
            Column("size_bytes", "size", text_of(_bytes)), Column("time_ns", "time", NS),
            Column("algorithm", "algorithm", UNCUT, shown=lambda one: one["algorithm"] or "-"),
            Column("protocol", "protocol", UNCUT, shown=lambda one: one["protocol"] or "-"),
            Column("channels", "channels", LABEL, shown=lambda one: one["channels"] or "-"),
            Column("bus_bandwidth_gb_per_s", "busbw", text_of(_gbps)),
            Column("bound_ns", "efficiency", LABEL, shown=_share),
            Column("source", "source", UNCUT),
        ), top=ALL, pick=lambda data: (
            range(len(data["collectives"])) if len(data["collectives"]) > 1 else ()
        )),
    ),
)  # fmt: skip
"""Made of collectives, and of the name of their system."""
COMPARED = Result(
    kind="collectives", title="Collectives as measured", order=80, facts=_described, headline=None,
    parts=(
        Rows("collectives", lambda data: f"measured, and estimated of {data['system']}", None, (
            Column("collective", "collective", UNCUT), Column("ranks", "ranks", LABEL),
            Column("nodes", "nodes", LABEL), Column("size_bytes", "size", text_of(_bytes)),
            Column("measured_ns", "measured", NS, shown=lambda one: round(one["measured_ns"])),
            Column("bus_bandwidth_gb_per_s", "busbw", text_of(_gbps)),
            Column("estimated_ns", "estimated", NS),
            Column("estimated_ns", "ratio", LABEL,
                   shown=lambda one: format_number(one["estimated_ns"] / one["measured_ns"])),
            Column("source", "source", UNCUT),
        ), top=ALL),
    ),
)  # fmt: skip
"""Made of compared collectives, and of the name of their system."""
