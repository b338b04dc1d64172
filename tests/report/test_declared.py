"""Declared results: text, JSON and pages hold the same values."""

from __future__ import annotations

import io
import re

import polars as pl
import pytest
from rich.console import Console

from nadi.results.declared import (
    CHANGE_NS,
    COUNT,
    FLAG,
    NAME,
    NS,
    PAGE,
    TEXT,
    Column,
    Html,
    Lines,
    Result,
    Rows,
    Sums,
    barred,
    range_of,
    share_of,
)
from nadi.results.page.figures import Figures
from nadi.results.page.page_sections import all_sections
from tests.report.page_numbers import at_pointer

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


NESTED = Result(
    "nested", "Nested", 2,
    lambda found: {"times": {"whole_ns": 8, "by_kind": found}},
    None,
    (
        Sums("by kind", "kind", {"time": "times/by_kind"}, whole="times/whole_ns"),
        Rows("changes/rows", "changes", lambda _: pl.DataFrame({
            "name": ["a", "b", "c"], "change_ns": [-5, 0, 7],
            "between": [{"low": low, "high": low + 1} for low in range(3)],
        }), (
            Column("name", "name"),
            Column("change_ns", "change", barred(CHANGE_NS)),
            Column("between", "between", range_of("low", "high")),
            Column("name", "on pages", on=PAGE),
        ), pick=lambda data: [
            i for i in (2, 1, 0) if data["changes"]["rows"][i]["change_ns"]
        ]),
        Rows("changes/none", "nothing", lambda _: [], (), empty="no change"),
        Lines(lambda data: ["in text"], on=TEXT),
        Html(lambda figures: figures.ns("times", "whole_ns")),
    ),
    at="", needs="times",
)  # fmt: skip


def printed(data: dict[str, object], result: Result = RESULT) -> str:
    out = io.StringIO()
    result.print(data, Console(file=out, width=120))
    return out.getvalue()


def test_nested_objects_have_tables() -> None:
    data = NESTED.data({"host_op": 6, "device": 0, "copies": 2})
    lines = [" ".join(line.split()) for line in printed(data, NESTED).splitlines()]
    assert lines == [
        "by kind", "kind time share", "host op 6 ns 75.0 %", "copies 2 ns 25.0 %", "total 8 ns",
        "changes", "name change between", "c +7 ns 2 to 3 ns", "a -5 ns 0 to 1 ns",
        "nothing: no change", "in text",
    ]  # fmt: skip
    html = NESTED.html(Figures(data))
    numbers = re.findall(r'<data value="([^"]+)" data-at="([^"]+)"', html)
    for value, pointer in numbers:
        assert str(at_pointer(data, pointer)) == value
    assert len(numbers) == 2 * 2 + 1 + 2 * 2 + 1
    assert "on pages" in html
    assert "in text" not in html
    assert html.index("+7 ns") < html.index("-5 ns")
    assert NESTED.html(Figures({"waits": data})) == ""


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
