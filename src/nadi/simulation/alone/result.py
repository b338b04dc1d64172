"""Times of collectives: a few lines for one, a table for several, and files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
from rich.console import Console
from rich.text import Text

from nadi.errors import UsageError
from nadi.files.csv_tables import csv_bytes
from nadi.files.files import check_target, check_writable, is_local, locate, write_pieces
from nadi.results.text import make_table, print_table, to_json
from nadi.simulation.alone.collective import CollectiveEstimate, ComparedCollective
from nadi.units import (
    format_bytes,
    format_count,
    format_counted,
    format_ns,
    format_number,
    format_percent,
    printable,
)

__all__ = [
    "check_collective_output", "describe_collectives", "print_collectives", "print_compared",
    "write_collectives",
]  # fmt: skip

_DECIMAL = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "KB"), (1, "B"))
_SUFFIXES = (".csv", ".json")


def describe_collectives(
    found: Sequence[CollectiveEstimate] | Sequence[ComparedCollective], system: str
) -> dict[str, Any]:  # fmt: skip
    """Compute the JSON output; the units are at the ends of the names."""
    renamed = {"size": "size_bytes", "bandwidth": "bandwidth_gb_per_s",
               "bus_bandwidth": "bus_bandwidth_gb_per_s"}  # fmt: skip
    rows = [
        {renamed.get(name, name): value for name, value in msgspec.structs.asdict(one).items()}
        for one in found
    ]
    return {"system": system, "collectives": rows}


def check_collective_output(path: Path | str, sources: Sequence[Path], *, overwrite: bool) -> None:
    """Check that a result can be written before it is computed; writes nothing.

    Raises
    ------
    UsageError
        If its suffix is neither .csv nor .json, or it is one of ``sources``.
    InputError
        If it cannot be written, or exists already and ``overwrite`` is not given.
    """
    place = locate(path)
    if place.suffix not in _SUFFIXES:
        raise UsageError(
            str(path), f"{place.suffix or 'no suffix'} is not a suffix of a table",
            f"use {' or '.join(_SUFFIXES)}",
        )  # fmt: skip
    check_target(place, sources, overwrite=overwrite)
    if is_local(place):
        check_writable(place)


def write_collectives(
    found: Sequence[CollectiveEstimate] | Sequence[ComparedCollective], system: str,
    path: Path | str,
) -> None:  # fmt: skip
    """Write a row per size as CSV or JSON, by the suffix of ``path``."""
    place = locate(path)
    described = describe_collectives(found, system)
    if place.suffix == ".csv":
        content = csv_bytes(pl.DataFrame(described["collectives"]))
    else:
        content = to_json(described)
    write_pieces(place, [content])


def print_collectives(
    found: Sequence[CollectiveEstimate], system: str, console: Console
) -> None:  # fmt: skip
    """Print a few lines for one size, and a table for several."""
    first = found[0]
    nodes = format_counted(first.nodes, "node")
    what = f"{first.collective}, {format_count(first.ranks)} ranks on {nodes} of {system}"
    if len(found) > 1:
        _print_sizes(found, what, console)
        return
    console.print(Text(printable(f"{what}, {_bytes(first.size)}")))
    lines = [("time", f"{format_ns(first.time_ns)}  ({first.source})")]
    if first.modeled_ns >= 0:
        own = f"{format_ns(first.modeled_ns)}  (the library's own, not corrected)"
        lines.append(("model", own))
    lines.append(("algorithm", _algorithm(first)))
    lines.append(("bandwidth", _bandwidths(first)))
    lines.append(("bound", _bound(first)))
    for title, text in lines:
        console.print(Text(f"  {title:<9} {printable(text)}"))


def _bytes(size: int) -> str:
    """Write a size as users do: in decimal units if it is a multiple of 1,000 bytes."""
    if size % 1000:
        return format_bytes(size)
    scale, unit = next(pair for pair in _DECIMAL if size >= pair[0] or pair[0] == 1)
    return f"{size / scale:.4g} {unit}"


def _algorithm(one: CollectiveEstimate) -> str:
    if not one.protocol:
        return one.algorithm or "-"
    channels = f"{one.channels} channel{'s' if one.channels > 1 else ''}"
    return f"{one.algorithm}, protocol {one.protocol}, {channels}"


def _bandwidths(one: CollectiveEstimate) -> str:
    own = f"{format_number(one.bandwidth)} GB/s"
    return (
        f"{own}, bus bandwidth {format_number(one.bus_bandwidth)} GB/s"
        if one.bus_bandwidth >= 0
        else own
    )


def _bound(one: CollectiveEstimate) -> str:
    if one.bound_ns < 0:
        return "unknown"
    share = format_percent(one.bound_ns, one.time_ns)
    return f"{format_ns(one.bound_ns)} for the bytes on the busiest link, {share} of the time"


def _print_sizes(found: Sequence[CollectiveEstimate], what: str, console: Console) -> None:
    table = make_table(
        printable(what), size="right", time="right", algorithm="left", protocol="left",
        channels="right", busbw="right", efficiency="right", source="left",
    )  # fmt: skip
    for one in found:
        table.add_row(
            _bytes(one.size), format_ns(one.time_ns), Text(one.algorithm or "-"),
            one.protocol or "-", str(one.channels or "-"),
            f"{format_number(one.bus_bandwidth)} GB/s" if one.bus_bandwidth >= 0 else "-",
            format_percent(one.bound_ns, one.time_ns) if one.bound_ns >= 0 else "-",
            Text(one.source),
        )  # fmt: skip
    print_table(table, console)


def print_compared(found: Sequence[ComparedCollective], system: str, console: Console) -> None:
    """Print measured times beside those of a system, a row per collective and size."""
    table = make_table(
        printable(f"measured, and estimated of {system}"), collective="left", ranks="right",
        nodes="right", size="right", measured="right", busbw="right", estimated="right",
        ratio="right", source="left",
    )  # fmt: skip
    for one in found:
        table.add_row(
            one.collective, str(one.ranks), str(one.nodes), _bytes(one.size),
            format_ns(round(one.measured_ns)), f"{format_number(one.bus_bandwidth)} GB/s",
            format_ns(one.estimated_ns), format_number(one.estimated_ns / one.measured_ns),
            Text(one.source),
        )  # fmt: skip
    print_table(table, console)
