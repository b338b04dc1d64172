"""Declared results: text, JSON and pages hold the same values."""

from __future__ import annotations

import io
import re

import polars as pl
import pytest
from rich.console import Console

from nadi.results.charts.charts import time_bars
from nadi.results.declared import (
    BYTES,
    CHANGE_NS,
    COUNT,
    FLAG,
    LABEL,
    NAME,
    NS,
    PAGE,
    TEXT,
    Charts,
    Column,
    Html,
    Lines,
    Result,
    Rows,
    Sums,
    Tiles,
    Within,
    barred,
    decimals,
    range_of,
    share_of,
)
from nadi.results.page.figures import Figures, table, text
from nadi.results.page.html_page import all_sections
from nadi.units import format_ns
from tests.report.page_numbers import at_pointer, read_page

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
        Html(lambda figures: figures.number(("times", "whole_ns"), format_ns)),
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
    numbers = read_page(html).numbers
    for number in numbers:
        assert str(at_pointer(data, number.at)) == number.value
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
    numbers = read_page(html).numbers
    assert len(numbers) == 3 * 12
    for number in numbers:
        assert str(at_pointer({"times": data}, number.at)) == number.value
    assert "kernel &lt;2&gt;" in html
    assert RESULT.html(Figures({})) == ""


def test_names_that_are_cut_are_told_apart() -> None:
    names = [f"{'begin' * 20}{middle}{'end' * 20}" for middle in ("a", "b", "a", "")]
    html = table("kernels", ["name*"], [[text(name)] for name in (*names, "short")])
    shown = re.findall("<summary>(.*?)</summary>", html)
    assert [one[-3:] for one in shown] == [" #1", " #2", " #1", " #3"]
    html = table("kernels", ["name*"], [[text(names[0])], [text("other" * 30)]])
    assert "#" not in "".join(re.findall("<summary>(.*?)</summary>", html))


def test_a_table_says_why_it_is_not_shown() -> None:
    data = RESULT.data(FOUND | {"whole": 0})
    assert printed(data).splitlines()[1] == "no time"
    assert "<table" not in RESULT.html(Figures({"times": data}))


def test_rows_that_are_only_shown_say_where_their_values_stand() -> None:
    result = Result(
        "shares", "Shares", 1,
        (
            Column("all", get=sum),
            Column("parts", get=lambda found: [{"number": {"value": one}} for one in found]),
        ),
        None,
        (
            Tiles((Column("all", "in all", COUNT, "of both"),)),
            Rows("", lambda data: f"{len(data['parts'])} parts", None, lambda _: [
                Column("number/value", "value", decimals(1)), Column("none", "none", BYTES,
                                                                     is_rare=True),
                Column("", "name", LABEL, shown=lambda row: f"part {row['number']['value']}"),
            ], made=lambda data: [
                (("parts", i), one | {"none": 0}) for i, one in enumerate(data["parts"])
            ], top=1),
            Charts(lambda data: [time_bars("parts", ["all"], ["part"], [[data["all"]]])]),
        ),
    )  # fmt: skip
    data = result.data([3, 4])
    assert data == {"all": 7, "parts": [{"number": {"value": 3}}, {"number": {"value": 4}}]}
    out = io.StringIO()
    result.print(data, Console(file=out, width=80))
    assert [line.split() for line in out.getvalue().splitlines()] == [
        ["2", "parts"], ["value", "name"], ["3.0", "part", "3"],
        ["...", "and", "1", "more", "(--json)"],
    ]  # fmt: skip
    html = result.html(Figures({"shares": data}))
    assert '<data value="7" data-at="/shares/all">7</data>' in html
    assert '<data value="4" data-at="/shares/parts/1/number/value">4.0</data>' in html
    assert "<th>none" not in html
    assert "<svg" in html


def test_a_result_within_another_is_told_where_there_is_one() -> None:
    outer = RESULT._replace(headline=None, parts=(Within("inner", RESULT),))
    for data, lines in (({}, []), ({"inner": RESULT.data(FOUND)}, ["", "12 kernels"])):
        out = io.StringIO()
        outer.print(data, Console(file=out, width=120))
        assert out.getvalue().splitlines()[:2] == lines
    assert outer.html(Figures({"times": {"inner": RESULT.data(FOUND)}})) == ""


@pytest.mark.parametrize("section", all_sections(), ids=lambda section: section.name)
def test_each_section_has_a_place_and_is_empty_without_its_results(section: object) -> None:
    _, name, title, render = section  # type: ignore[misc]
    assert name
    assert title
    assert render(Figures({})) == ""
