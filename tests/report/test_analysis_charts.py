"""Charts of analyses: each has one, and it shows the numbers of its table."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import nadi
from nadi.analyses.registry import ANALYSES, analysis_chart, analysis_named
from nadi.bottlenecks.waiting.result import wait_charts
from nadi.cli import main
from nadi.results.charts.charts import BarChart, FlameChart, LineChart
from nadi.results.charts.drawing import drawn

pytestmark = pytest.mark.usefixtures("demo_read_once")


@pytest.fixture(scope="module")
def tables(demo_folder: Path) -> dict[str, pl.DataFrame]:
    found = nadi.analyses.analyze_all(demo_folder)
    return {name: table for name, table in found.items() if not isinstance(table, str)}


def test_every_analysis_has_a_chart(tables: dict[str, pl.DataFrame]) -> None:
    assert all(one.chart for one in ANALYSES)
    for name, table in tables.items():
        one = analysis_named(name)
        assert set(one.chart[1:]) <= set(table.columns)
        text = drawn(analysis_chart(one, table))
        assert text.count("<svg") == text.count("</svg>") == 1
        assert "nan" not in text


def test_bars_are_sums_and_the_longest_come_first(tables: dict[str, pl.DataFrame]) -> None:
    chart = analysis_chart(analysis_named("annotations"), tables["annotations"])
    assert isinstance(chart, BarChart)
    sums = tables["annotations"].group_by("name").agg(pl.sum("sum_ns")).sort("sum_ns")
    assert chart.rows[0] == sums["name"][-1]
    assert chart.values[0, 0] == pytest.approx(sums["sum_ns"][-1] / 1e6)
    assert chart.label == "sum in ms"
    assert (np.diff(chart.values[:, 0]) <= 0).all()


def test_lines_and_flames(tables: dict[str, pl.DataFrame]) -> None:
    chart = analysis_chart(analysis_named("collective-list"), tables["collective-list"])
    assert isinstance(chart, LineChart)
    rows = sum(series.x.size for series in chart.series)
    assert 0 < rows <= tables["collective-list"].height
    flame = analysis_chart(analysis_named("flame"), tables["flame"])
    assert isinstance(flame, FlameChart)
    assert (flame.parent < np.arange(flame.parent.size)).all()
    roots = flame.values[flame.parent < 0].sum()
    table = tables["flame"]
    assert roots == pytest.approx(table.filter(pl.col("parent") < 0)["total_ns"].sum() / 1e6)


def test_bars_of_parts_are_as_long_as_their_values() -> None:
    values = np.array([[1.0, 2.0], [0.0, 4.0]])
    text = drawn(BarChart("t", "time in ms", ("x & y", "z"), ("a", "b"), values))
    widths = [float(one) for one in re.findall(r'width="([\d.]+)" height="20"', text)]
    one, two, four = widths
    assert two == pytest.approx(2 * one, abs=0.05)
    assert four == pytest.approx(4 * one, abs=0.05)
    assert "x &amp; y" in text


def test_charts_in_files(demo_folder: Path, tmp_path: Path) -> None:
    assert main(["analyze", "flame", str(demo_folder), "-o", str(tmp_path / "flame.svg")]) == 0
    assert (tmp_path / "flame.svg").read_text().startswith("<svg")
    assert main(["waits", str(demo_folder), "-o", str(tmp_path / "waits.html")]) == 0
    assert (tmp_path / "waits.html").read_text().count("<svg") == 2
    assert main(["waits", str(demo_folder), "-o", str(tmp_path / "waits.txt")]) == 2
    assert main(["waits", str(demo_folder), "-o", str(tmp_path / "waits.html")]) == 2


def test_charts_of_waits(demo_folder: Path) -> None:
    found = nadi.bottlenecks.waits(demo_folder)
    gains, actors = wait_charts(found)
    assert isinstance(gains, BarChart)
    assert gains.rows[0] == found.bottlenecks[0].name
    assert isinstance(actors, BarChart)
    assert actors.parts == ("work", "ready to work", "waiting")
