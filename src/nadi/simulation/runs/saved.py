"""Save and load the result of a simulation, as a zip of Arrow files.

``simulation.json`` comes first: the system, totals, and the version of the format. Each table is
an Arrow file, exact to the bit. A change that an older reader would misread raises the version.
"""

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from nadi.errors import FormatError
from nadi.files.files import locate, read_head, write_pieces
from nadi.files.native.nadi_file import (
    DAMAGED,
    SIMULATION,
    add_member,
    add_table,
    first_line,
    holds_simulation,
    open_members,
    read_arrow,
    read_header,
)
from nadi.simulation.accounts.simulation_results import SimulationResults
from nadi.simulation.simulation import TimeBound
from nadi.systems.prices.priced_traces import PricedWork
from nadi.systems.system import System
from nadi.trace.schema import (
    COLLECTIVE_TIMES,
    ISSUES,
    JOB_TIMES,
    LINK_USE,
    LIVE_MEMORY,
    RANK_TIMES,
    TIER_TRAFFIC,
    TIER_USE,
    TIER_WAITS,
    Table,
)

_VERSION = 1
_SCHEDULE = "schedule"
_OF_SCHEDULE = ["rank", "node", "id", "name", "kind", "start", "end", "resource", "cause"]
_WHOLE = ("rank", "node", "id", "start", "end", "cause")
_TABLES: dict[str, Table] = {
    "rank_times": RANK_TIMES,
    "collective_times": COLLECTIVE_TIMES,
    "issues": ISSUES,
}
_IF_KNOWN: dict[str, Table] = {
    "live_memory": LIVE_MEMORY,
    "link_use": LINK_USE,
    "job_times": JOB_TIMES,
    "tier_traffic": TIER_TRAFFIC,
    "tier_use": TIER_USE,
    "tier_waits": TIER_WAITS,
}


@dataclass(frozen=True, eq=False)
class SavedSimulation(SimulationResults):
    """The result of a simulation, and when each node ran.

    Attributes
    ----------
    schedule
        When each node ran, with its name: ``rank``, ``node`` (row in the rank's trace), ``id``,
        ``name``, ``kind``, ``start``, ``end`` (ns), ``resource``, and ``cause``, the id of the
        node whose end allowed it to be issued; null at the start.
    """

    schedule: pl.DataFrame


class _Header(msgspec.Struct):
    version: int
    nodes: int
    settings: System
    priced: PricedWork | None = None
    bound: TimeBound | None = None


def write_tables(
    path: Path, sums: Mapping[str, Any], schedule: pl.DataFrame, tables: Mapping[str, pl.DataFrame]
) -> None:
    """Write the tables of a simulation; equal tables give equal bytes.

    ``sums`` contain at least the number of ``nodes`` and the ``settings`` of the system.

    - Raises InputError if the file cannot be written; an existing file is unchanged.
    """
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as members:
        header = msgspec.json.encode({"format": "nadi simulation", "version": _VERSION, **sums})
        add_member(members, SIMULATION, msgspec.json.format(header, indent=2) + b"\n")
        for name, table in {_SCHEDULE: schedule, **tables}.items():
            add_table(members, name, table)
    write_pieces(path, [file.getvalue()])


def is_saved_simulation(path: Path | str) -> bool:
    """Return whether :func:`read_simulation` reads a file; False if it does not exist."""
    place = locate(path)
    return place.is_file() and holds_simulation(read_head(place))


def read_simulation(path: Path | str) -> SavedSimulation:
    """Read a file that ``nadi simulate -o`` or :func:`nadi.simulation.write_simulation` wrote.

    Parameters
    ----------
    path
        A file or an address.

    Raises
    ------
    InputError
        If the file cannot be read, is damaged, or is not the result of a simulation.
    """
    place = locate(path)
    if not holds_simulation(read_head(place)):
        raise FormatError(
            str(path), "not the result of a simulation",
            "pass a .nadi file that nadi simulate -o wrote",
        )  # fmt: skip
    with open_members(place) as members:
        header = read_header(place, members, SIMULATION, _Header, _VERSION, "simulate again")
        there = set(members.namelist())
        tables = {
            name: _checked(place, read_arrow(place, members, f"{name}.arrow"), table)
            for name, table in {**_TABLES, **_IF_KNOWN}.items()
            if name in _TABLES or f"{name}.arrow" in there
        }
        schedule = read_arrow(place, members, f"{_SCHEDULE}.arrow")
    if schedule.columns != _OF_SCHEDULE:
        what = f"table {_SCHEDULE}: expected {_OF_SCHEDULE}, got {schedule.columns}"
        raise FormatError(str(path), what, DAMAGED)
    for name in _WHOLE:
        own = schedule[name]
        if not own.dtype.is_integer() or (own.null_count() and name != "cause"):
            what = f"table {_SCHEDULE}: {name} is no whole number everywhere"
            raise FormatError(str(path), what, DAMAGED)
    if not tables["rank_times"].height:
        raise FormatError(str(path), "table rank_times: it has no rank", DAMAGED)
    return SavedSimulation(
        header.settings, header.nodes, tables["rank_times"], tables["collective_times"],
        tables.get("live_memory"), tables["issues"], schedule,
        priced=header.priced, bound=header.bound,
        **{name: tables.get(name) for name in _IF_KNOWN if name != "live_memory"},
    )  # fmt: skip


def _checked(path: Path, frame: pl.DataFrame, table: Table) -> pl.DataFrame:
    try:
        table.check(frame)
    except ValueError as error:
        raise FormatError(str(path), first_line(error), DAMAGED) from None
    return frame
