"""Declared results: text, JSON and pages hold the same values."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from nadi.results.declared import (
    COUNT,
    FLAG,
    NAME,
    NS,
    Column,
    Lines,
    Result,
    Rows,
    share_of,
)
from nadi.results.page.figures import Figures
from nadi.results.page.page_sections import all_sections

FOUND = {
    "whole": 2_000_000,
    "rows": [
        {"name": f"kernel <{k}>", "ns": 100_000 * k, "calls": k, "late": k == 2} for k in range(12)
    ],
}
RESULT = Result(
    "times", "Times", 1,
    (Column("whole", unit=NS),),
    lambda data: f"{len(data['kernels'])} kernels",
    (
        Rows("kernels", "kernels by time", lambda found: found["rows"], (
            Column("name", "kernel", NAME),
            Column("ns", "time", NS),
            Column("ns", "share", share_of("whole"), shown=lambda row: row["ns"]),
            Column("calls", "calls", COUNT),
            Column("late", "late", FLAG),
        ), unless=lambda data: "" if data["whole"] else "no time"),
        Lines(lambda data: [f"{data['whole']} ns in all"]),
        Rows("hidden", "", lambda found: found["rows"][:1], (Column("name"),)),
    ),
)  # fmt: skip


def printed(data: dict[str, object]) -> str:
    out = io.StringIO()
    RESULT.print(data, Console(file=out, width=120))
    return out.getvalue()


def test_text_shows_what_json_has() -> None:
    data = RESULT.data(FOUND)
    assert data["kernels"] == FOUND["rows"]
    assert data["hidden"] == [{"name": "kernel <0>"}]
    lines = [line.rstrip() for line in printed(data).splitlines()]
    assert lines[:2] == ["12 kernels", "kernels by time"]
    assert lines[2].split() == ["kernel", "time", "share", "calls", "late"]
    assert lines[5].split() == ["kernel", "<2>", "200.0", "us", "10.0", "%", "2", "yes"]
    assert lines[-2:] == ["... and 2 more (--json)", "2000000 ns in all"]


def test_numbers_of_a_page_say_where_they_stand() -> None:
    data = RESULT.data(FOUND)
    html = RESULT.html(Figures({"times": data}))
    numbers = re.findall(r'<data value="(\d+)" data-at="/times/kernels/(\d+)/(\w+)"', html)
    assert len(numbers) == 3 * 12
    for value, row, key in numbers:
        assert data["kernels"][int(row)][key] == int(value)
    assert "kernel &lt;2&gt;" in html
    assert RESULT.html(Figures({})) == ""


def test_a_table_says_why_it_is_not_shown() -> None:
    data = RESULT.data(FOUND | {"whole": 0})
    assert printed(data).splitlines()[1] == "no time"
    assert "<table" not in RESULT.html(Figures({"times": data}))


@pytest.mark.parametrize("section", all_sections(), ids=lambda section: section.name)
def test_each_section_has_a_place_and_is_empty_without_its_results(section: object) -> None:
    _, name, title, render = section  # type: ignore[misc]
    assert name
    assert title
    assert render(Figures({})) == ""
