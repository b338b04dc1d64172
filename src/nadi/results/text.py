"""Shared layout of the text output: tables, shortened names, issues, and JSON."""

import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from nadi.trace.schema import Table as Declared
from nadi.units import format_count, format_counted, printable, shown_name

_MANY_NOTES = 4  # issues that are no warning
TOP = 10  # rows of a table of operations
_NAME_WIDTH = 60
_BEGIN, _BEFORE, _MIDDLE, _END = 16, 4, 22, 11  # of a name that looks like another one
_UNITS = {"ns": "_ns", "GB/s": "_gb_per_s", "bytes": "_bytes"}
_WIDEST = 100_000  # of a table in a file or a pipe
# what terminals may take as a command, or as an order to show text from right to left
_COMMANDS = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class PrintableConsole(Console):
    """A console that prints control characters of texts as their escapes.

    Names in recordings are written by others, and a terminal does what control characters say.
    """

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Render an object in pieces of text, each printable."""
        for piece in super().render(renderable, options):
            if piece.control or piece.text == "\n" or piece.text.isprintable():
                yield piece
            else:
                text = "\n".join(printable(line) for line in piece.text.split("\n"))
                yield Segment(text, piece.style)


def make_table(title: str, **columns: str) -> Table:
    """Create a table without lines; each column is justified ``left`` or ``right``.

    In a narrow terminal texts, on the left, go on in the next line; none is cut.
    """
    table = Table(title=title, title_justify="left", title_style="", box=None, pad_edge=False)
    for name, justify in columns.items():
        if justify == "right":
            table.add_column(name, justify="right")
        else:
            table.add_column(name, overflow="fold")
    return table


class NameCell(Text):
    """A shortened name in a table, and the whole one."""

    def __init__(self, name: str, otherwise: str = "") -> None:
        super().__init__(shown_name(name, _NAME_WIDTH) or otherwise)
        self.name = printable(name)


def name_cell(name: str, otherwise: str = "") -> NameCell:
    """Format a name for a table: on one line, shortened, without markup."""
    return NameCell(name, otherwise)


def tell_apart(cells: Iterable[NameCell]) -> None:
    """Shorten different names that look alike to their begins, where they differ, and their ends.

    Of the place where a name differs from the others, the part is shown that follows what it has in
    common with that one with which it has most in common.
    """
    alike: dict[str, dict[str, list[NameCell]]] = {}
    for cell in cells:
        alike.setdefault(cell.plain, {}).setdefault(cell.name, []).append(cell)
    for by_name in alike.values():
        names = sorted(by_name)
        common = [_num_common(*two) for two in itertools.pairwise(names)]
        for name, *shared in zip(names, [0, *common], [*common, 0], strict=True):
            differs = max(shared)
            if not differs:  # it looks like no other name
                continue
            middle = name[max(differs - _BEFORE, 0) :][:_MIDDLE]
            for cell in by_name[name]:
                cell.plain = f"{name[:_BEGIN]} ... {middle} ... {name[-_END:]}"


def _num_common(one: str, other: str) -> int:
    """Return with how many equal characters two different texts begin."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def print_table(table: Table, console: Console) -> None:
    """Print a table; in a file or a pipe, cells are not cut."""
    for column in table.columns:
        tell_apart(cell for cell in column.cells if isinstance(cell, NameCell))
    width = console.width
    if console.soft_wrap:  # a table is as wide as its columns, whatever room there is
        console.width = max(width, _WIDEST)
    console.print(table)
    console.width = width


def issue_lines(issues: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield a line per issue."""
    for issue in issues:
        remedy = f"; {issue['remedy']}" if issue["remedy"] else ""
        count = format_count(issue["count"])
        yield f"{issue['severity']}: {issue['detail']} [{count}x]{remedy}"


def print_issues(issues: Iterable[dict[str, Any]], console: Console) -> None:
    """Print a line per issue; of many that are no warning, that they need no action."""
    rows = list(issues)
    for line in issue_lines(rows):
        console.print(Text(printable(line)))
    if sum(row["severity"] == "info" for row in rows) >= _MANY_NOTES:
        console.print(
            "info lines are notes of what was inferred or left out, and need no action; warnings do"
        )


def print_written(path: Path | str, left_out: pl.DataFrame, console: Console) -> None:
    """Print the written file and the data that its format cannot hold (``schema.ISSUES``)."""
    console.print(f"wrote {path}", markup=False)
    print_issues(left_out.iter_rows(named=True), console)


def to_json(data: Any) -> bytes:
    """Write indented JSON that ends with a newline; frames are lists of objects.

    What a terminal may take as a command is escaped, as it is in other output.
    """
    content = msgspec.json.format(msgspec.json.encode(data, enc_hook=_rows_of), indent=2) + b"\n"
    if content.isascii() and b"\x7f" not in content:
        return content
    return _COMMANDS.sub(lambda one: f"\\u{ord(one[0]):04x}", content.decode()).encode()


def _rows_of(frame: pl.DataFrame) -> msgspec.Raw:
    return msgspec.Raw(frame.write_json().encode())


def with_units(frame: pl.DataFrame, table: Declared) -> pl.DataFrame:
    """Add units to the column names of a declared table, and replace unknown values by null."""
    names = {
        column.name: column.name + _UNITS[column.unit]
        for column in table.columns
        if column.unit and not column.name.startswith("bytes") and column.name in frame.columns
    }
    floats = pl.selectors.float()
    return frame.with_columns(pl.when(floats >= 0).then(floats)).rename(names)


def of_steps(number: int, otherwise: str) -> str:
    """Say of how many steps a time is; ``otherwise`` if of 0, as it holds more than whole steps."""
    if number == 1:
        return "a step"
    return format_counted(number, "step") if number else otherwise


def rank_ranges(ranks: Iterable[int]) -> str:
    """Format ranks as ranges: ``0-3, 6``."""
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and rank == parts[-1][-1] + 1:
            parts[-1][1:] = [rank]
        else:
            parts.append([rank])
    return ", ".join("-".join(map(str, part)) for part in parts)
