"""Files of a simulation: all results, the schedule, a timeline."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from nadi.errors import UsageError, checked
from nadi.files.csv_tables import csv_bytes
from nadi.files.files import check_target, locate, write_pieces
from nadi.results.text import to_json, with_units
from nadi.simulation.accounts.simulation_results import SimulationResults, results_of
from nadi.simulation.runs.result import SIMULATION
from nadi.simulation.runs.saved import write_tables
from nadi.simulation.simulation import Simulation
from nadi.trace.schema import (
    COLLECTIVE_TIMES,
    ISSUES,
)

_ROWS_AT_ONCE = 1 << 18


def named_schedule(simulation: Simulation) -> pl.DataFrame:
    """Return the schedule with the names of its operations.

    - Returns: ``rank``, ``node`` (row in the rank's trace), ``id``, ``name``, ``kind``, ``start``,
      ``end`` (ns), ``resource``, and as ``cause`` the id of the node of the rank whose end let it
      be issued; null for those at the start. O(nodes).
    """
    place: dict[int, int] = {}  # of each trace that differs
    which = np.array([place.setdefault(id(trace), len(place)) for trace in simulation.traces])
    different = {id(trace): trace for trace in simulation.traces}.values()
    heights = np.array([trace.nodes.height for trace in different])
    first = (np.cumsum(heights) - heights)[which]
    known = pl.concat([trace.nodes.select("id", "name", "kind") for trace in different])
    table = simulation.schedule.table
    start = first[table["rank"].to_numpy()]
    cause = table["bound_node"].to_numpy()
    ids = known["id"].to_numpy()[start + np.maximum(cause, 0)]
    return (
        table.select("rank", "node", "start", "end", "resource")
        .with_columns(known[start + table["node"].to_numpy()])
        .with_columns(cause=pl.when(pl.Series(cause >= 0)).then(pl.Series(ids)))
        .select("rank", "node", "id", "name", "kind", "start", "end", "resource", "cause")
    )


# files


def _whole(results: SimulationResults) -> dict[str, Any]:
    return {
        **SIMULATION.data(results),
        "per_collective": with_units(results.collectives, COLLECTIVE_TIMES),
        "settings": msgspec.to_builtins(results.system),
    }


def _write_json(simulation: Simulation, path: Path) -> pl.DataFrame:
    write_pieces(path, [to_json(_whole(results_of(simulation)))])
    return ISSUES.empty()


def _write_csv(simulation: Simulation, path: Path) -> pl.DataFrame:
    table = named_schedule(simulation)

    def pieces() -> Iterator[bytes]:
        for at in range(0, max(table.height, 1), _ROWS_AT_ONCE):
            rows = table.slice(at, _ROWS_AT_ONCE)
            yield csv_bytes(rows, header=at == 0)

    write_pieces(path, pieces())
    return ISSUES.empty()


def _write_native(simulation: Simulation, path: Path) -> pl.DataFrame:
    """Write a file that :func:`nadi.simulation.read_simulation` reads."""
    results = results_of(simulation)
    known = (
        "live_memory", "link_use", "job_times", "tier_traffic", "tier_use", "tier_waits",
    )  # fmt: skip
    if_known = {name: getattr(results, name) for name in known}
    tables = {
        "rank_times": results.rank_times,
        "collective_times": results.collectives,
        "issues": results.issues,
        **{name: table for name, table in if_known.items() if table is not None},
    }
    sums = {
        name: value
        for name, value in _whole(results).items()
        if not isinstance(value, (pl.DataFrame, list, dict))
        or name in ("settings", "priced", "bound")
    }
    write_tables(path, sums, named_schedule(simulation), tables)
    return ISSUES.empty()


def _write_timeline(simulation: Simulation, path: Path) -> pl.DataFrame:
    # which takes the graph of events
    from nadi.simulation.runs.timeline import write_simulated_timeline

    return write_simulated_timeline(simulation, path)


def _write_lines(simulation: Simulation, path: Path) -> pl.DataFrame:
    from nadi.simulation.runs.timeline import write_issue_lines  # as above

    return write_issue_lines(simulation, path)


_Writer = Callable[[Simulation, Path], pl.DataFrame]

# by the end of the name but for .gz; the first that fits, so .trace.json would stand before .json
_WRITERS: dict[str, _Writer] = {
    ".trace.json": _write_timeline,
    ".pftrace": _write_timeline,
    ".perfetto-trace": _write_timeline,
    ".log": _write_lines,
    ".json": _write_json,
    ".csv": _write_csv,
    ".nadi": _write_native,
}
_NOT_COMPRESSED = (".nadi",)  # once more


def _writer(path: Path) -> _Writer:
    name = path.name.removesuffix(".gz")
    for suffix, writer in _WRITERS.items():
        if name.endswith(suffix) and (name == path.name or suffix not in _NOT_COMPRESSED):
            return writer
    raise UsageError(
        str(path), "no output format has this suffix",
        f"use one of {' '.join(_WRITERS)}",
    )  # fmt: skip


def check_simulation_output(path: Path | str, sources: Sequence[Path], *, overwrite: bool) -> None:
    """Check that a result can be written before it is computed; writes nothing.

    - Raises UsageError if no format has its suffix, or it is one of ``sources``.
    - Raises InputError if it cannot be written, or exists already and ``overwrite`` is not given.
    """
    place = locate(path)
    _writer(place)
    check_target(place, sources, overwrite=overwrite)


@checked
def write_simulation(simulation: Simulation, path: Path | str) -> pl.DataFrame:
    """Write the result of a simulation.

    Parameters
    ----------
    path
        ``.json``: everything but the schedule, with all settings; ``.csv``: the schedule with
        names; either with ``.gz`` at its end is compressed. ``.nadi``: the schedule and all
        tables, exactly, as a zip of Arrow files. It is replaced only once all is written.

    Returns
    -------
    polars.DataFrame
        ``schema.ISSUES``: what could not be written.

    Raises
    ------
    UsageError
        If the suffix is none of these.
    InputError
        If the file cannot be written.
    """
    place = locate(path)
    return _writer(place)(simulation, place)
