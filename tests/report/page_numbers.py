"""The numbers on a page, each with what it says it is, read from the HTML alone."""

from __future__ import annotations

import base64
import gzip
import json
import re
from dataclasses import dataclass, field
from html import escape
from html.parser import HTMLParser
from typing import Any

from nadi.analyses.recorded.events import events_of
from nadi.analyses.recorded.operators import describe_operators
from nadi.trace.trace import Trace

__all__ = ["PageReader", "ShownNumber", "at_pointer", "read_page"]

_VOID = {"meta", "link", "input", "br", "i"}
_CELLS = {"td", "th"}
_ENDED_BY = {"td": _CELLS, "th": _CELLS, "tr": {*_CELLS, "tr"}}  # what begins after what
_ZIPPED = re.compile(r"<pre (?:class=opened hidden|hidden data-kind=\w+)>([^<]*)</pre>")


@dataclass
class ShownNumber:
    """A number: its exact value, where it stands in the results, and its text."""

    value: str
    at: str
    of: str = ""
    to: str = ""
    text: str = ""


@dataclass
class PageReader(HTMLParser):
    """Reads a page: its numbers, scripts, addresses, and text of cells outside of numbers."""

    numbers: list[ShownNumber] = field(default_factory=list)
    loose: list[str] = field(default_factory=list)
    scripts: list[tuple[dict[str, str | None], str]] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    sections: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        while self.open and self.open[-1][0] in _ENDED_BY.get(tag, ()):
            self.open.pop()
        self.addresses += [v or "" for k, v in attrs if k in ("src", "href", "action", "data")]
        assert not any(name.startswith("on") for name in given), given
        if tag == "data":
            at = given["data-at"] or ""
            if not at.startswith("/"):  # it goes on from that of its row
                at = f"{next(g for t, g in reversed(self.open) if t == 'tr')['data-at']}/{at}"
            self.numbers.append(ShownNumber(
                given["value"] or "", at, given.get("data-of") or "", given.get("data-to") or "",
            ))  # fmt: skip
        if tag == "script":
            self.scripts.append((given, ""))
        if tag == "section":
            self.sections.append(given["id"] or "")
        if tag not in _VOID:
            self.open.append((tag, given))

    def handle_endtag(self, tag: str) -> None:
        if tag in _VOID:
            return
        while self.open[-1][0] != tag and self.open[-1][0] in _ENDED_BY:
            self.open.pop()
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        tags = [tag for tag, _ in self.open]
        if "script" in tags:
            given, text = self.scripts[-1]
            self.scripts[-1] = given, text + data
        elif "data" in tags:
            self.numbers[-1].text += data
        elif "style" not in tags:
            self.words.append(data)
            if ("td", "number") in [(tag, given.get("class")) for tag, given in self.open]:
                self.loose.append(data)


def read_page(html: str) -> PageReader:
    reader = PageReader()
    reader.feed(_ZIPPED.sub(_unzipped, html))
    reader.close()
    assert reader.open == []
    return reader


def _unzipped(found: re.Match[str]) -> str:
    """Give what the page's script puts in the place of what is compressed."""
    text = gzip.decompress(base64.b64decode(found[1])).decode()
    return text if "opened" in found[0] else f"<pre hidden>{escape(text)}</pre>"


def at_pointer(results: Any, pointer: str) -> Any:
    """Give the value at a JSON pointer."""
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        results = results[int(name)] if isinstance(results, list) else results[name]
    return results


def operators_of(*traces: Trace) -> Any:
    """Give what a page says of operators, as JSON has it."""
    found = describe_operators([events_of(trace) for trace in traces])
    return json.loads(json.dumps(found))
