"""Results declared once: text, JSON and the sections of a page come from one declaration.

A result has facts (values of its own), tables of rows, lines of text, and what only a page can
show. A column says its key in JSON, its title, its unit and what it means; a column without a title
is data only. Keys may lead into nested objects: ``interval/low_ns``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from rich.console import Console
from rich.text import Text

from nadi.results.charts.chart_files import chart_html
from nadi.results.charts.charts import Chart
from nadi.results.page.figures import Figures, bar, stacked_bar, table, text, tiles
from nadi.results.text import TOP, make_table, name_cell, print_table, rank_ranges, to_json
from nadi.units import (
    format_bytes,
    format_count,
    format_ns,
    format_number,
    format_percent,
    format_range,
    printable,
)

BOTH, TEXT, PAGE = "text and page", "text", "page"
"""Where a column or a part is shown."""
ALL = 1 << 60  # rows of a table in text
_MOST = 40  # rows of a table on a page
_MARKS = re.compile(r"[\\`*_\[\]|~#@]")
_Data = dict[str, Any]
_Place = tuple[str | int, ...]


class Unit(NamedTuple):
    """How values are written."""

    # takes a value and the data of the result; gives a cell of the text
    show: Callable[[Any, _Data], str | Text]
    # takes the figures of a page, the place of the value, and the value; gives HTML
    write: Callable[[Figures, _Place, Any], str]
    # the last sign of the column's title on a page: ``#`` numbers, ``*`` long names
    sign: str = "#"
    side: str = ""  # to which cells of the text are moved; by default numbers to the right

    @property
    def justify(self) -> str:
        """The side to which the column's cells are moved."""
        return self.side or ("right" if self.sign == "#" else "left")


def number(show: Callable[[Any], str], otherwise: str = "-") -> Unit:
    """Write a number alike in text and on pages; ``otherwise`` where there is none."""
    return Unit(
        lambda value, _: otherwise if value is None else show(value),
        lambda figures, at, _: figures.number(at, show, otherwise),
    )


def decimals(count: int) -> Unit:
    """Write a number with so many decimals."""
    return number(lambda value: f"{value:,.{count}f}")


def text_of(show: Callable[[Any], object]) -> Unit:
    """Write what is made of a value as words at the right."""
    return in_words(lambda value: str(show(value)))._replace(side="right")


def name_or(otherwise: str = "") -> Unit:
    """Write a name of a recording, or what stands for none."""
    return Unit(
        lambda value, _: name_cell(value, otherwise),
        lambda _, __, value: text(value, otherwise), "*",
    )  # fmt: skip


def in_words(told: Callable[[Any], str]) -> Unit:
    """Write a value in words that are ours: no name of a recording, no number."""
    return Unit(lambda value, _: told(value), lambda _, __, value: text(told(value)), "")


def share_of(fact: str) -> Unit:
    """Write a value as a share of a fact of the result."""
    return Unit(
        lambda value, data: format_percent(value, value_at(data, fact)),
        lambda figures, at, _: figures.share(at, _steps(fact)),
    )


def range_of(low: str, high: str) -> Unit:
    """Write the two times with these keys in an object as a range."""
    return Unit(
        lambda value, _: format_range(value[low], value[high]),
        lambda figures, at, _: figures.time_range((*at, low), (*at, high)),
    )


def or_dash(unit: Unit) -> Unit:
    """Write a dash for 0."""
    return Unit(
        lambda value, data: unit.show(value, data) if value else "-",
        lambda figures, at, value: unit.write(figures, at, value) if value else "-",
    )


def barred(unit: Unit, kind: str = "plain") -> Unit:
    """Draw a bar on pages beside each value, as long as it is of the largest of its column."""

    def write(figures: Figures, at: _Place, value: Any) -> str:
        place = [i for i, step in enumerate(at) if isinstance(step, int)][-1]
        among = (Figures(row).get(*at[place + 1 :], otherwise=0)
                 for row in figures.rows(*at[:place]))  # fmt: skip
        drawn = bar(value, max(among), kind) if value else ""
        return unit.write(figures, at, value) + drawn

    return unit._replace(write=write)


def _signed(nanoseconds: float) -> str:
    return f"{'+' if nanoseconds > 0 else ''}{format_ns(round(nanoseconds))}"


def _spaced(value: Any) -> str:
    return str(value).replace("_", " ")


NS = number(lambda value: format_ns(round(value)))
CHANGE_NS = number(_signed)
COUNT = number(format_count)
BYTES = number(lambda size: format_bytes(size) if size >= 0 else "-")
MEAN = number(lambda value: f"{value:.4g}")
GB_PER_S = number(lambda rate: f"{rate:.4g}" if rate >= 0 else "-")
PLAIN = number(str)
NUMBER = number(format_number)
PERCENT = number(lambda fraction: format_percent(fraction, 1))
SECONDS = number(lambda seconds: format_ns(round(1e9 * seconds)))
NAME = name_or()
WORDS = in_words(_spaced)
LABEL = text_of(str)
UNCUT = NAME._replace(
    show=lambda value, _: Text(printable(str(value))),
    write=lambda _, __, value: escape(printable(str(value))),
)
"""A text that is not shortened."""
FLAG = in_words(lambda value: "yes" if value else "")
RANKS = in_words(rank_ranges)
KIND = WORDS._replace(
    write=lambda _, __, value: f'<i class="key {escape(value)}"></i>{escape(_spaced(value))}'
)
"""A kind of time, whose color on pages has a class of its name."""


class Column(NamedTuple):
    """A column of a table, or a fact."""

    key: str  # in JSON. Of a column that is only shown: the key of the value that it shows.
    title: str = ""  # in text and on pages; empty for data alone
    unit: Unit = NAME
    about: str = ""  # what it means
    # takes what was found (a fact), or an object of a row; by default the attribute or key
    get: Callable[[Any], Any] | None = None
    # takes the row's data: what is shown, where the value is not what JSON has. Such a column is
    # not in JSON.
    shown: Callable[[_Data], Any] | None = None
    on: str = BOTH  # where it is shown
    is_rare: bool = False  # whether it is left out where no row has a value but 0
    whole: str = ""  # of a tile: the key of what its note begins with its share of

    def of(self, found: Any) -> Any:
        """Return the value for JSON."""
        if self.get is not None:
            return self.get(found)
        return found[self.key] if isinstance(found, Mapping) else getattr(found, self.key)

    def value(self, row: _Data) -> Any:
        """Return the value that is shown."""
        return self.shown(row) if self.shown is not None else value_at(row, self.key)

    def is_there(self, rows: Iterable[Any]) -> bool:
        """Return whether it is shown of these rows."""
        if not self.is_rare:
            return True
        values = (self.value(row) for row in rows)
        return any(value or isinstance(value, float) for value in values)


def named(title: str, words: Callable[[str], str] = str) -> Column:
    """Return the column of the names of an object, in words."""
    return Column("", title, in_words(words), shown=lambda row: row["name"])


def valued(title: str, unit: Unit) -> Column:
    """Return a column of the values of an object."""
    return Column("", title, unit, shown=lambda row: row["value"])


def stacked(
    title: str, parts: Callable[[_Data], dict[str, float]], *, alone: bool = True
) -> Column:  # fmt: skip
    """Declare a column of pages that draws the parts of each row, by the class of their color.

    A bar is as long as its parts are of all of the row, or of the largest row.
    """

    def write(figures: Figures, at: _Place, row: _Data) -> str:
        rows = [row] if alone else figures.rows(*at[:-1])
        whole = max(sum(parts(one).values()) for one in rows)
        return stacked_bar(list(parts(row).items()), whole)

    return Column("", title, Unit(lambda _, __: "", write, ""), shown=lambda row: row, on=PAGE)


class Rows(NamedTuple):
    """A table of a result."""

    key: str  # in JSON
    # above the table, or a function of the data; empty for data alone
    title: str | Callable[[_Data], str]
    # takes what was found; gives an object for each row, or a frame, all of whose columns are data;
    # None if a fact or another table has the data. Where that is an object, rows are its names with
    # their values, other than 0 (``named``, ``valued``).
    rows: Callable[[Any], Iterable[Any] | pl.DataFrame] | None
    # in their order, or a function of the data
    columns: tuple[Column, ...] | Callable[[_Data], Iterable[Column]]
    # takes the data: why the table is not shown, for text; empty if it is shown, and None if
    # nothing is said
    unless: Callable[[_Data], str | None] = lambda _: ""
    # takes the data; gives the numbers of the rows that are shown, in their order
    pick: Callable[[_Data], Iterable[int]] | None = None
    # what is said in text after the title, if there is no row; nothing is said if it is empty
    empty: str = ""
    # top, most: rows that are shown at most in text, and on pages
    top: int | None = None
    most: int = _MOST
    on: str = BOTH  # where it is shown
    # takes the data; gives the rows that are shown where none of a list are, each with the place of
    # its values in the data
    made: Callable[[_Data], Iterable[tuple[_Place, Any]]] | None = None

    def data(self, found: Any) -> list[_Data]:
        """Return the rows for JSON."""
        rows = self.rows(found) if self.rows else ()
        if isinstance(rows, pl.DataFrame):
            return rows.to_dicts()
        kept = () if callable(self.columns) else self.columns
        kept = tuple(column for column in kept if column.shown is None)
        return [{column.key: column.of(row) for column in kept} for row in rows]

    def print(self, data: _Data, console: Console, top: int = TOP) -> None:
        """Print the first rows, or why there are none."""
        why = self.unless(data) if self.title else None
        if why != "":
            if why:
                console.print(why, markup=False)
            return
        shown = self._shown(data)
        if not shown:
            if self.empty:
                console.print(f"{self._title(data)}: {self.empty}", markup=False)
            return
        top = self.top or top
        titled = self._titled(data, TEXT, shown)
        drawn = make_table(
            printable(self._title(data)), **{one.title: one.unit.justify for one in titled}
        )
        for _, row in shown[:top]:
            drawn.add_row(*(one.unit.show(one.value(row), data) for one in titled))
        print_table(drawn, console)
        if len(shown) > top:
            console.print(f"... and {len(shown) - top:,} more (--json)")

    def markdown(self, data: _Data) -> str:
        """Write all rows as a table of Markdown, below its title."""
        shown = [] if not self.title or self.unless(data) else self._shown(data)
        if not shown:
            return ""
        titled = self._titled(data, TEXT, shown)
        cells = [
            [one.title for one in titled],
            ["--:" if one.unit.justify == "right" else "---" for one in titled],
            *([_marked(one.unit.show(one.value(row), data)) for one in titled] for _, row in shown),
        ]
        lines = (f"| {' | '.join(row)} |" for row in cells)
        return "\n".join((f"{_marked(self._title(data))}\n", *lines))

    def html(self, data: _Data, figures: Figures) -> str:
        """Write the table of a page; each number says where in the JSON it stands."""
        shown = self._shown(data) if self.title and self.unless(data) == "" else []
        if not shown:
            return ""
        titled = self._titled(data, PAGE, shown)
        cells = [
            [one.unit.write(figures, (*place, *_steps(one.key)), one.value(row)) for one in titled]
            for place, row in shown[: self.most]
        ]
        heads = [one.title + one.unit.sign for one in titled]
        title, left = self._title(data), len(shown) - self.most
        title += f"; the first {self.most} of {len(shown):,}" if left > 0 else ""
        return table(title, heads, cells, searchable=len(shown) > TOP or self.most == ALL)

    def _shown(self, data: _Data) -> Sequence[tuple[_Place, Any]]:
        if self.made is not None:
            return list(self.made(data))
        rows = value_at(data, self.key)
        rows = rows.to_dicts() if isinstance(rows, pl.DataFrame) else rows or ()
        if isinstance(rows, dict):
            return [
                ((*_steps(self.key), name), {"name": name, "value": value})
                for name, value in rows.items() if value
            ]  # fmt: skip
        picked = self.pick(data) if self.pick and rows else range(len(rows))
        return [((*_steps(self.key), i), rows[i]) for i in picked]

    def _title(self, data: _Data) -> str:
        return self.title(data) if callable(self.title) else self.title

    def _titled(self, data: _Data, on: str, shown: Sequence[tuple[_Place, Any]]) -> list[Column]:
        columns = self.columns(data) if callable(self.columns) else self.columns
        rows = [row for _, row in shown]
        return [one for one in columns if one.title and on in one.on and one.is_there(rows)]


class Sums(NamedTuple):
    """Times by name, of objects whose keys are names: a row for each name that has some."""

    # title, head: above the table, and above the names
    title: str
    head: str
    of: Mapping[str, str]  # the key of each object by the title of its column
    unit: Unit = KIND  # of the names
    whole: str = ""  # the fact of which a column shows the share; empty without such a column
    total: bool = True  # whether the last row has the sums
    on: str = BOTH  # where it is shown

    def print(self, data: _Data, console: Console, top: int = TOP) -> None:
        """Print all rows."""
        share = {"share": "right"} if self.whole else {}
        drawn = make_table(
            self.title, **{self.head: "left"}, **dict.fromkeys(self.of, "right"), **share
        )
        found = [value_at(data, key) or {} for key in self.of.values()]
        for one in self._names(data):
            times = [times.get(one, 0) for times in found]
            shares = [format_percent(times[0], value_at(data, self.whole))] if self.whole else []
            drawn.add_row(self.unit.show(one, data), *map(format_ns, times), *shares)
        if self.total:
            sums = (format_ns(sum(times.values())) for times in found)
            drawn.add_row("total", *sums, style="bold")
        print_table(drawn, console)

    def html(self, data: _Data, figures: Figures) -> str:
        """Write the table of a page; each number says where in the JSON it stands."""
        places = [_steps(key) for key in self.of.values()]
        times = [time for key in self.of.values() for time in (value_at(data, key) or {}).values()]
        rows = []
        for one in self._names(data):
            cells = [
                figures.number((*place, one), format_ns)
                + bar(figures.get(*place, one, otherwise=0), max(times), one)
                for place in places
            ]
            share = [figures.share((*places[0], one), _steps(self.whole))] if self.whole else []
            rows.append([self.unit.write(figures, (), one), *cells, *share])
        shares = ["share#"] if self.whole else []
        if self.whole and self.total:
            total = figures.number(_steps(self.whole), format_ns)
            rows.append(["<b>total</b>", f"<b>{total}</b>", ""])
        return table(self.title, [self.head, *(f"{one}#" for one in self.of), *shares], rows)

    def _names(self, data: _Data) -> list[str]:
        found = [value_at(data, key) or {} for key in self.of.values()]
        names = dict.fromkeys(one for times in found for one in times)
        return [one for one in names if any(times.get(one) for times in found)]


class Lines(NamedTuple):
    """Lines of text between the tables of a result; ``of`` takes the data."""

    of: Callable[[_Data], Iterable[str | Text]]
    on: str = BOTH

    def print(self, data: _Data, console: Console, top: int = TOP) -> None:
        """Print each line."""
        for line in self.of(data):
            console.print(line if isinstance(line, Text) else Text(printable(line)))

    def markdown(self, data: _Data) -> str:
        """Write each as an item of a list."""
        return "\n".join(f"- {_marked(line)}" for line in self.of(data) if line)

    def html(self, data: _Data, figures: Figures) -> str:
        """Write each as a paragraph."""
        return "\n".join(f"<p>{_sentence(line)}</p>" for line in self.of(data) if line)


BLANK = Lines(lambda _: [""], TEXT)


class Facts(NamedTuple):
    """Facts of a page below each other; ``of`` takes the data, and gives those that are shown."""

    title: str
    of: Callable[[_Data], Iterable[Column]]
    on: str = PAGE

    def html(self, data: _Data, figures: Figures) -> str:
        """Write a row for each."""
        return table(self.title, ["", "#"], [
            [one.title, one.unit.write(figures, _steps(one.key), value_at(data, one.key))]
            for one in self.of(data)
        ])  # fmt: skip


class Charts(NamedTuple):
    """Charts of a page; ``of`` takes the data."""

    of: Callable[[_Data], Iterable[Chart]]
    on: str = PAGE

    def html(self, data: _Data, figures: Figures) -> str:
        """Draw each."""
        return "\n".join(map(chart_html, self.of(data)))


class Tiles(NamedTuple):
    """Facts beside each other on a page, each with what it means below it."""

    facts: tuple[Column, ...] | Callable[[_Data], Iterable[Column]]
    on: str = PAGE

    def html(self, data: _Data, figures: Figures) -> str:
        """Write those that have a value."""
        shown = []
        for one in self.facts(data) if callable(self.facts) else self.facts:
            at, value, note = _steps(one.key), value_at(data, one.key), text(one.about)
            if one.whole:
                note = f"{figures.share(at, _steps(one.whole))} {note}"
            if value is not None:
                shown.append((one.title, one.unit.write(figures, at, value), note))
        return tiles(shown)


class Html(NamedTuple):
    """What only a page can show, such as tiles and charts; ``of`` takes its figures."""

    of: Callable[[Figures], str]
    on: str = PAGE

    def html(self, data: _Data, figures: Figures) -> str:
        """Write it."""
        return self.of(figures)


class Within(NamedTuple):
    """A result within another in text, after an empty line; nothing where it has none."""

    key: str
    result: Result
    on: str = TEXT

    def print(self, data: _Data, console: Console, top: int = TOP) -> None:
        """Print it."""
        if found := value_at(data, self.key):
            console.print()
            self.result.print(found, console, top)

    def html(self, data: _Data, figures: Figures) -> str:
        """Write nothing: it has a section of its own."""
        return ""


class Result(NamedTuple):
    """What a capability finds, or a part of it that is a section of a page."""

    # its name among results: of the section of a page, and of its part of a page's results
    kind: str
    # title, order: of its section
    title: str
    order: int
    # values of the whole, or a function from what was found to an object that has them
    facts: tuple[Column, ...] | Callable[[Any], _Data]
    headline: Callable[[_Data], str] | None  # takes the data; the first line, if there is one
    # tables, lines and more, in their order
    parts: tuple[Rows | Sums | Lines | Facts | Charts | Tiles | Html | Within, ...]
    # where a page's results have it: None under its kind, else a key; the empty one is all
    at: str | None = None
    needs: str = ""  # the key of a value without which there is no section

    def data(self, found: Any) -> _Data:
        """Return what JSON, pages and saved files hold."""
        data = self.facts(found) if callable(self.facts) else {}
        for fact in () if callable(self.facts) else self.facts:
            _put(data, fact.key, fact.of(found))
        for part in self.parts:
            if isinstance(part, Rows) and part.rows is not None:
                _put(data, part.key, part.data(found))
        return data

    def print(self, data: _Data, console: Console, top: int = TOP) -> None:
        """Print the page of text; of each table the first rows."""
        if self.headline is not None:
            console.print(Text(self.headline(data), style="bold"))
        for part in self.parts:
            if TEXT in part.on and isinstance(part, Rows | Sums | Lines | Within):
                part.print(data, console, top)

    def markdown(self, data: _Data) -> str:
        """Write the headline, the lines and the tables of rows as Markdown, such as a comment."""
        pieces = [f"**{_marked(self.headline(data))}**"] if self.headline else []
        pieces += [part.markdown(data) for part in self.parts
                   if TEXT in part.on and isinstance(part, Rows | Lines)]  # fmt: skip
        return "\n\n".join(filter(None, pieces)) + "\n"

    def tell(self, data: Any, *written: Path | str | None, as_json: bool, top: int = TOP) -> None:
        """Print the result of a command as JSON, or as text with the files that were written."""
        if as_json:
            sys.stdout.write(to_json(data).decode())
            return
        from nadi.results.terminal.options import output_console  # pages do without a terminal

        console = output_console()
        self.print(data, console, top)
        for file in filter(None, written):
            console.print(f"wrote {file}", markup=False)

    def html(self, figures: Figures) -> str:
        """Write the section of a page; empty without this result."""
        figures = figures.under(*_steps(self.kind if self.at is None else self.at))
        if figures.get(*_steps(self.needs)) is None:
            return ""
        data = figures.get()
        pieces = [f"<p class=first>{_sentence(self.headline(data))}</p>"] if self.headline else []
        pieces += [part.html(data, figures) for part in self.parts if PAGE in part.on]
        return "\n".join(filter(None, pieces))


def value_at(data: Any, key: str) -> Any:
    """Return the value at a key, which may lead into objects and lists; None if there is none."""
    return Figures(data).get(*_steps(key))


def _marked(text: str | Text) -> str:
    """Write text in Markdown, which no name of a recording can leave."""
    return _MARKS.sub(r"\\\g<0>", escape(printable(str(text)), quote=False))


def _sentence(line: str | Text) -> str:
    return escape(printable(str(line)))


def _steps(key: str) -> tuple[str | int, ...]:
    steps = key.split("/") if key else ()
    return tuple(int(step) if step.isdecimal() else step for step in steps)


def _put(data: _Data, key: str, value: Any) -> None:
    *outer, last = key.split("/")
    for step in outer:
        data = data.setdefault(step, {})
    data[last] = value
