"""Numbers and names of results as HTML: each number says where in the results it stands."""

from __future__ import annotations

import base64
import gzip
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import msgspec
import numpy as np

from nadi.trace.arrays import Ints
from nadi.units import (
    UNSHOWN,
    format_percent,
    format_range,
    printable,
    shown_name,
)

Path = Sequence[str | int]
_SHOWN = 90  # letters of a name; the rest is shown when it is clicked
_COLUMNS = {"#": " class=num", "*": " class=name"}
_ROOM = 0.06  # of a bar, which a name in it takes
_TALL = 16  # rows of a table, above which it scrolls
_PLACE = re.compile(r' data-at="([^"]*)"')
_LEVEL = 6  # a sixth smaller than the fast compression of trace files, at 70 MB/s
_LONG = re.compile("(<details class=long><summary>)(.*?)(</summary><span>)(.*?)</span>")
_ENDS = re.compile("</t[dhr]>")
_NOT_SHOWN = re.compile(f"[{UNSHOWN}]")
_QUOTED = re.compile(r'="([\w.,/:;#%+-]+)"(?=[ >])')


class Figures:
    """The results that a page shows, as in ``summary.json``.

    Numbers on a page are ``<data>`` elements with the exact value, and with the place of the value
    in the results as a JSON pointer; so a test compares each number with the results. In a row of
    a table that has a pointer itself, those of its numbers go on from there.

    Attributes
    ----------
    results
        Plain values: dicts, lists, texts and numbers; times are int ns.
    place
        Where in the results places begin, such as ``("simulation",)``.
    """

    def __init__(self, results: dict[str, Any], place: Path = ()) -> None:
        self.results = results
        self.place = tuple(place)

    def under(self, *path: str | int) -> Figures:
        """Return the figures of a part of the results; places begin there."""
        return Figures(self.results, (*self.place, *path))

    def get(self, *path: str | int, otherwise: Any = None) -> Any:
        """Return the value at a place, or ``otherwise`` if there is none."""
        found: Any = self.results
        for step in (*self.place, *path):
            if isinstance(found, list):
                found = found[step] if isinstance(step, int) and step < len(found) else None
            else:
                found = found.get(step) if isinstance(found, dict) else None
        return otherwise if found is None else found

    def rows(self, *path: str | int) -> list[dict[str, Any]]:
        """Return the list at a place; empty if there is none."""
        found: list[dict[str, Any]] = self.get(*path, otherwise=[])
        return found

    def share(self, part: Path, whole: Path) -> str:
        """Write one number as a share of another one."""
        value, of = self.get(*part, otherwise=0), self.get(*whole, otherwise=0)
        shown = escape(format_percent(value, of)) if of else "-"
        return (
            f'<data value="{escape(str(value))}" data-at="{self._pointer(part)}" '
            f'data-of="{self._pointer(whole)}">'
            f"{shown}</data>"
        )

    def time_range(self, low: Path, high: Path) -> str:
        """Write two times as a range."""
        begin, end = self.get(*low), self.get(*high)
        if begin is None or end is None:
            return "-"
        return (
            f'<data value="{escape(str(begin))}" data-at="{self._pointer(low)}" '
            f'data-to="{self._pointer(high)}">'
            f"{escape(format_range(begin, end))}</data>"
        )

    def number(self, path: Path, write: Callable[[Any], str], otherwise: str = "-") -> str:
        """Write a number as ``write`` says; ``otherwise`` if there is none, or it says so."""
        value = self.get(*path)
        shown = otherwise if value is None else write(value)
        if shown == otherwise:
            return escape(otherwise)
        return (
            f'<data value="{escape(str(value))}" data-at="{self._pointer(path)}">'
            f"{escape(shown)}</data>"
        )

    def _pointer(self, path: Path) -> str:
        """Return a JSON pointer, as an attribute's value."""
        whole = (*self.place, *path)
        steps = (str(step).replace("~", "~0").replace("/", "~1") for step in whole)
        return escape("".join(f"/{step}" for step in steps))


def text(name: object, otherwise: str = "") -> str:
    """Write a text of a recording: escaped, on one line; a long one is opened by a click."""
    whole = str(name)
    shown = shown_name(whole, _SHOWN) or otherwise
    if shown == whole or not whole:
        return escape(shown)
    return (
        f"<details class=long><summary>{escape(shown)}</summary>"
        f"<span>{escape(printable(whole))}</span></details>"
    )


def table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, searchable: bool = False
) -> str:
    """Write a table of cells that are HTML already; nothing without rows.

    - ``columns``: Titles, without their last sign: ``#`` stands for numbers, ``*`` for long names.
    - ``searchable``: Whether there is a field to search its rows.
    """
    if not rows:
        return ""
    kinds = [_COLUMNS.get(name[-1:], "") for name in columns]
    head = "".join(
        f"<th{kind} scope=col>{escape(name.rstrip('#*'))}</th>"
        if name.rstrip("#*")
        else "<td></td>"
        for name, kind in zip(columns, kinds, strict=True)
    )
    body = "".join(
        _row("".join(f"<td{kind}>{cell}</td>" for cell, kind in zip(row, kinds, strict=True)))
        for row in rows
    )
    extra = " data-searchable" if searchable else ""
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    tall = " tall" if len(rows) > _TALL else ""
    return (
        f'<div class=block><div class="scroll{tall}"><table{extra}>{caption}<thead><tr>{head}</tr>'
        f"</thead>\n<tbody>{_told_apart(body)}</tbody></table></div></div>"
    )


def _told_apart(body: str) -> str:
    """Give names that would look the same when they are cut numbers, as the timeline does."""
    wholes: dict[str, list[str]] = {}
    for _, shown, _, whole in _LONG.findall(body):
        same = wholes.setdefault(shown, [])
        if whole not in same:
            same.append(whole)

    def numbered(found: re.Match[str]) -> str:
        begin, shown, middle, whole = found.groups()
        same = wholes[shown]
        number = f" #{same.index(whole) + 1}" if len(same) > 1 else ""
        return f"{begin}{shown}{number}{middle}{whole}</span>"

    return _LONG.sub(numbered, body)


def _row(cells: str) -> str:
    """Write a row; what the places of all its numbers begin with stands there once."""
    places = _PLACE.findall(cells)
    shared = places[0].rpartition("/")[0] if len(places) > 1 else ""
    while not all(place.startswith(f"{shared}/") for place in places):
        shared = shared.rpartition("/")[0]
    if not shared:
        return f"<tr>{cells}</tr>"
    cells = cells.replace(f' data-at="{shared}/', ' data-at="')
    return f'<tr data-at="{shared}">{cells}</tr>'


def compact(html: str) -> str:
    """Leave out of HTML what it means without: end tags of cells and rows, and quotes.

    Neither can be part of a text, where both are escaped.
    """
    return _QUOTED.sub(r"=\1", _ENDS.sub("", html))


def zipped(content: bytes) -> str:
    """Compress what the page's script unpacks: base64 of gzip."""
    return base64.b64encode(gzip.compress(content, _LEVEL, mtime=0)).decode()


def tiles(shown: Sequence[tuple[str, str, str]]) -> str:
    """Write tiles beside each other: the title, the value and the note of each."""
    each = (
        f"<div class=tile><h3>{title}</h3><p class=value>{value}</p><p>{note}</p></div>"
        for title, value, note in shown
    )
    return f"<div class=tiles>{''.join(each)}</div>"


def bar(value: float, largest: float, kind: str = "plain") -> str:
    """Draw a bar as long as a value is of the largest one."""
    width = 100 * max(min(value / largest, 1.0), 0.0) if largest > 0 else 0.0
    return f'<span class=bar><i class="{escape(kind)}" style="width:{width:.3g}%"></i></span>'


def _label(kind: str, share: str) -> str:
    return escape(f"{kind} {share}".replace("_", " ")).replace(" %", "&nbsp;%")


def stacked_bar(
    parts: Sequence[tuple[str, float]], whole: float, *, is_named: bool = False
) -> str:  # fmt: skip
    """Draw parts of a whole beside each other; each is a class of ``page.css`` and a value.

    ``is_named`` writes into each that has room for it what it is, and its share.
    """
    pieces = "".join(
        f'<i class="{escape(kind)}" style="width:{100 * value / whole:.3g}%">'
        + (_label(kind, format_percent(value, whole)) if is_named and value > _ROOM * whole else "")
        + "</i>"
        for kind, value in parts
        if value > 0 and whole > 0
    )  # fmt: skip
    return f'<span class="bar stacked{" named" if is_named else ""}">{pieces}</span>'


def packed(header: dict[str, Any], columns: Mapping[str, Ints]) -> str:
    """Pack a header and columns of integers, of at most 53 bits, into a text.

    The text is base64 of gzip of: the length of the header (4 bytes, little-endian), the header
    (JSON), and planes. Plane k of a column has byte k of each of its numbers; planes of zeros alone
    are left out, and numbers that can be negative are zigzag-coded. ``timeline_data.js`` reads it.
    Columns whose numbers can be negative have a name that ends in ``±``.
    """
    listed: list[dict[str, Any]] = []
    planes: list[bytes] = []
    for name, values in columns.items():
        coded = np.ascontiguousarray(_zigzag(values) if name.endswith("±") else values, "<i8")
        of_bytes = coded.view(np.uint8).reshape(-1, 8)
        largest = int(coded.max(initial=0))
        kept = [k for k in range(8) if largest >> (8 * k) and of_bytes[:, k].any()]
        planes += [of_bytes[:, k].tobytes() for k in kept]
        listed.append({"name": name, "size": coded.size, "planes": kept})
    told = msgspec.json.encode({**header, "columns": listed}).decode()
    head = _NOT_SHOWN.sub("\ufffd", told).encode()
    content = b"".join([len(head).to_bytes(4, "little"), head, *planes])
    return zipped(content)


def _zigzag(values: Ints) -> Ints:
    """Make numbers of both signs small ones without: 0, -1, 1, -2 become 0, 1, 2, 3."""
    coded: Ints = (values << 1) ^ (values >> 63)
    return coded
