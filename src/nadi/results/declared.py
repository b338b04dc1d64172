"""Results declared once: text, JSON and the section of a page come from one declaration.

A result has facts (values of its own), tables of rows, and lines of text. A column says its key in
JSON, its title, its unit and what it means; a column without a title is data only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

from nadi.results.page.figures import Figures, bar, table, text
from nadi.results.text import TOP, make_table, name_cell, print_table
from nadi.units import format_count, format_ns, format_percent, printable

__all__ = ["COUNT", "FLAG", "NAME", "NS", "Column", "Lines", "Result", "Rows", "Unit", "share_of"]

_MOST = 40  # rows of a table on a page
_Data = dict[str, Any]
_Place = tuple[str | int, ...]


class Unit(NamedTuple):
    """How values are written.

    Attributes
    ----------
    show
        Takes a value and the data of the result; gives a cell of the text.
    write
        Takes the figures of a page, the place of the value, and the value; gives HTML.
    sign
        The last sign of the column's title on a page: ``#`` numbers, ``*`` long names.
    """

    show: Callable[[Any, _Data], str | Text]
    write: Callable[[Figures, _Place, Any], str]
    sign: str = "#"

    @property
    def justify(self) -> str:
        """The side to which the column's cells are moved."""
        return "right" if self.sign == "#" else "left"


def _yes(value: Any) -> str:
    return "yes" if value else ""


NS = Unit(lambda value, _: format_ns(value), lambda figures, at, _: figures.ns(*at))
COUNT = Unit(lambda value, _: format_count(value), lambda figures, at, _: figures.count(*at))
NAME = Unit(lambda value, _: name_cell(value), lambda _, __, value: text(value), "*")
FLAG = Unit(
    lambda value, _: "yes" if value else "", lambda _, __, value: "yes" if value else "", ""
)


def share_of(fact: str) -> Unit:
    """Write a value as a share of a fact of the result."""
    return Unit(
        lambda value, data: format_percent(value, data[fact]),
        lambda figures, at, value: (
            figures.share(at, (at[0], fact))
            + bar(value, figures.get(at[0], fact, otherwise=0), "gain")
        ),
    )


class Column(NamedTuple):
    """A column of a table, or a fact.

    Attributes
    ----------
    key
        In JSON. Of a column that is only shown: the key of the value that it shows.
    title
        In text and on pages; empty for data alone.
    about
        What it means.
    get
        Takes what was found (a fact), or an object of a row; by default the attribute or key.
    shown
        Takes the row's data: what is shown, where the value is not what JSON has. Such a column
        is not in JSON.
    """

    key: str
    title: str = ""
    unit: Unit = NAME
    about: str = ""
    get: Callable[[Any], Any] | None = None
    shown: Callable[[_Data], Any] | None = None

    def of(self, found: Any) -> Any:
        """Return the value for JSON."""
        if self.get is not None:
            return self.get(found)
        return found[self.key] if isinstance(found, Mapping) else getattr(found, self.key)

    def value(self, row: _Data) -> Any:
        """Return the value that is shown."""
        return self.shown(row) if self.shown is not None else row[self.key]


class Rows(NamedTuple):
    """A table of a result.

    Attributes
    ----------
    key
        In JSON.
    title
        Above the table; empty for data alone.
    rows
        Takes what was found; gives an object for each row.
    columns
        In their order.
    unless
        Takes the data: why the table is not shown in text; empty if it is.
    """

    key: str
    title: str
    rows: Callable[[Any], Iterable[Any]]
    columns: tuple[Column, ...]
    unless: Callable[[_Data], str] = lambda _: ""

    def data(self, found: Any) -> list[_Data]:
        """Return the rows for JSON."""
        kept = [column for column in self.columns if column.shown is None]
        return [{column.key: column.of(row) for column in kept} for row in self.rows(found)]

    def print(self, data: _Data, console: Console) -> None:
        """Print the first rows, or why there are none."""
        if why := self.unless(data):
            console.print(why, markup=False)
            return
        titled = [column for column in self.columns if column.title]
        drawn = make_table(self.title, **{one.title: one.unit.justify for one in titled})
        for row in data[self.key][:TOP]:
            drawn.add_row(*(one.unit.show(one.value(row), data) for one in titled))
        print_table(drawn, console)
        if len(data[self.key]) > TOP:
            console.print(f"... and {len(data[self.key]) - TOP} more (--json)")

    def html(self, kind: str, figures: Figures) -> str:
        """Write the table of a page; each number says where in the JSON it stands."""
        titled = [column for column in self.columns if column.title]
        rows = figures.rows(kind, self.key)
        cells = [
            [
                one.unit.write(figures, (kind, self.key, i, one.key), one.value(row))
                for one in titled
            ]
            for i, row in enumerate(rows[:_MOST])
        ]
        heads = [one.title + one.unit.sign for one in titled]
        return table(self.title, heads, cells, searchable=len(rows) > TOP)


class Lines(NamedTuple):
    """Lines of text between the tables of a result; ``of`` takes the data."""

    of: Callable[[_Data], Iterable[str]]


class Result(NamedTuple):
    """What a capability finds.

    Attributes
    ----------
    kind
        Its name among results: of the section of a page, and of its part of a page's results.
    title, order
        Of its section.
    facts
        Values of the whole.
    headline
        Takes the data; the first line.
    parts
        Tables and lines, in their order.
    """

    kind: str
    title: str
    order: int
    facts: tuple[Column, ...]
    headline: Callable[[_Data], str]
    parts: tuple[Rows | Lines, ...]

    def data(self, found: Any) -> _Data:
        """Return what JSON, pages and saved files hold."""
        facts = {fact.key: fact.of(found) for fact in self.facts}
        tables = {part.key: part.data(found) for part in self.parts if isinstance(part, Rows)}
        return facts | tables

    def print(self, data: _Data, console: Console) -> None:
        """Print the page of text."""
        console.print(Text(self.headline(data)))
        for part in self.parts:
            if isinstance(part, Lines):
                for line in part.of(data):
                    console.print(Text(printable(line)))
            elif part.title:
                part.print(data, console)

    def html(self, figures: Figures) -> str:
        """Write the section of a page; empty without this result."""
        data = figures.get(self.kind)
        if not data:
            return ""
        pieces = [f"<p>{text(self.headline(data))}</p>"]
        for part in self.parts:
            if isinstance(part, Lines):
                pieces += [f"<p>{text(line)}</p>" for line in part.of(data)]
            elif part.title and not part.unless(data):
                pieces.append(part.html(self.kind, figures))
        return "\n".join(pieces)
