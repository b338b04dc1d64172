"""The time of modules: as data, and as a table in which layers that are alike share a row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.text import Text

from nadi.graph.module_times import OUTSIDE, ModuleTimes
from nadi.results.text import make_table, name_cell, print_table
from nadi.trace.arrays import Ints
from nadi.units import format_count, format_ns, format_percent

__all__ = ["describe_modules", "print_modules"]

_TIMES = tuple(
    f"{phase}_{place}"
    for place in ("host", "device")
    for phase in ("forward", "backward", "optimizer", "other")
)
_ALIKE = 0.25  # layers share a row that differ from their median by at most this part of it
_MAX_ROWS = 40
_NUMBERED = re.compile(r"^(.*?)\d+$")
_INDENT = "  "


def describe_modules(found: ModuleTimes) -> dict[str, Any]:
    """Compute the JSON output: a row per module, times in int ns."""
    times = {name: f"{name}_ns" for name in (*_TIMES, "critical")}
    return {
        "recorded": found.is_recorded,
        "optimizer": found.optimizer,
        "rows": found.table.rename(times).to_dicts(),
    }


def print_modules(found: ModuleTimes, path_length: int, console: Console) -> None:
    """Print the table. The modules in repeated layers are in the JSON output only."""
    table = found.table
    if table.height == 1:
        console.print("modules: none recorded; nadi.record(..., stacks=True) records them")
        return
    on_device = bool((table["device_operations"] != 0).any())
    shown = [name for name in _TIMES if (table[name] != 0).any()]
    title = "time by module" if found.is_recorded else "time by module (annotations)"
    printed = make_table(
        title, module="left", calls="right",
        **{name.replace("_", " "): "right" for name in shown},
        **({"device operations": "right"} if on_device else {}),
        **{"on the path": "right", "each: min, median, max": "left"},
    )  # fmt: skip
    groups = list(_groups(table))
    for name, rows in groups[:_MAX_ROWS]:
        sums = table[rows].select(pl.exclude("module").sum()).row(0, named=True)
        cells = [format_count(sums["calls"]) if name != OUTSIDE else ""]
        cells += [format_ns(sums[column]) for column in shown]
        if on_device:
            cells.append(format_count(sums["device_operations"]))
        cells.append(format_percent(sums["critical"], path_length))
        each = _total(table)[rows]
        spread = (each.min(), np.median(each), each.max()) if len(rows) > 1 else ()
        cells.append(", ".join(format_ns(int(time)) for time in spread))
        indent = name[: len(name) - len(name.lstrip())]
        printed.add_row(Text(indent) + name_cell(name.lstrip()), *cells)
    print_table(printed, console)
    if len(groups) > _MAX_ROWS:
        console.print(f"{len(groups) - _MAX_ROWS} more modules: --json prints all")
    if found.optimizer:
        console.print(Text(f"optimizer: {found.optimizer}"))


def _groups(table: pl.DataFrame) -> Iterator[tuple[str, list[int]]]:
    """Yield the rows to print: a name, and the rows of the table that share it, in order."""
    paths, parent = table["module"].to_list(), table["parent"].to_list()
    inner: dict[int, dict[str, list[int]]] = {}
    names = []
    for row, (path, around) in enumerate(zip(paths[:-1], parent[:-1], strict=True)):
        names.append(path.removeprefix(f"{paths[around]}.") if around >= 0 else path)
        kind = _NUMBERED.sub(r"\1", names[row])
        inner.setdefault(around, {}).setdefault(kind, []).append(row)
    total = _total(table)

    def walk(around: int, indent: str) -> Iterator[tuple[str, list[int]]]:
        for kind, rows in inner.get(around, {}).items():
            middle = np.median(total[rows])
            alike = [row for row in rows if abs(total[row] - middle) <= _ALIKE * middle]
            if len(alike) > 1:
                last = names[alike[-1]].removeprefix(kind)
                yield f"{indent}{names[alike[0]]}-{last} ({len(alike)} x)", alike
            for row in rows if len(alike) < 2 else sorted(set(rows) - set(alike)):
                yield indent + names[row], [row]
                if len(rows) == 1:
                    yield from walk(row, indent + _INDENT)

    yield from walk(-1, "")
    yield OUTSIDE, [len(paths) - 1]


def _total(table: pl.DataFrame) -> Ints:
    """Return the time of each module on host and device; ns, shape (rows,)."""
    return table.select(pl.sum_horizontal(_TIMES)).to_series().to_numpy()
