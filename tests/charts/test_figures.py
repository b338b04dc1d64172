"""Bars, and the figures of values: each bar is as long as its value."""

from __future__ import annotations

import builtins
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import nadi
from nadi.results import BarChart, ChartAxis, Figure, LineChart, LineSeries
from nadi.results.charts.charts import time_bars
from nadi.results.charts.drawing import drawn

SVG = "{http://www.w3.org/2000/svg}"


def bars(text: str) -> dict[str, float]:
    """Give the width of each bar by what it says."""
    found = {}
    for one in ET.fromstring(text).iter(f"{SVG}rect"):
        if said := one.findtext(f"{SVG}title"):
            found[said] = float(one.attrib["width"])
    return found


def test_bars_are_as_long_as_their_values() -> None:
    chart = BarChart("Bars <of> two", "ms", ("a", "b & c"), ("x", "y"),
                     np.array([[1.0, 3.0], [0.0, 2.0]]))  # fmt: skip
    found = bars(drawn(chart))
    assert list(found) == ["a\nx\nms: 1", "a\ny\nms: 3", "b & c\ny\nms: 2"]
    one, three, two = found.values()
    assert three == pytest.approx(3 * one, abs=0.05)
    assert two == pytest.approx(2 * one, abs=0.05)
    assert "Bars &lt;of&gt; two" in drawn(chart)


@pytest.mark.parametrize("count", [0, 1, 40, 41, 5000])
def test_many_rows_are_counted_and_none_is_drawn(count: int) -> None:
    values = np.arange(count, dtype=float).reshape(count, 1) + 1
    text = drawn(BarChart("t", "x", tuple(map(str, range(count))), ("",), values))
    assert len(bars(text)) == min(count, 40)
    assert (f"and {count - 40} more" in text) == (count > 40)


def test_times_have_the_unit_in_which_they_read_best() -> None:
    for times, label, values in (
        ([[5, 0, 7]], "time (ns)", [[5, 7]]), ([[5_000_000, 0, 7_000_000]], "time (ms)", [[5, 7]]),
        ([[0, 0, 0]], "time (ns)", [[]]),
    ):  # fmt: skip
        chart = time_bars("t", ["row"], ["a", "b", "c"], times)
        assert chart.label == label
        assert chart.values.tolist() == values
        assert chart.parts == tuple("ac"[: len(values[0])])
        drawn(chart)


def test_points_have_names_and_no_line() -> None:
    line = LineSeries("s", np.array([1.0, 2.0]), np.array([3.0, 4.0]), True, ("first", "second"))
    text = drawn(LineChart("t", ChartAxis("x"), ChartAxis("y"), (line,)))
    assert "<path" not in text
    assert re.findall(r"<title>(s\n\w+)\n", text) == ["s\nfirst", "s\nsecond"]


def test_values_draw_themselves(
    demo_folder: Path, demo_run: nadi.bottlenecks.Run, tmp_path: Path
) -> None:
    run = demo_run
    answer = nadi.what_if(run.graph, "scale gloo 0.5")
    done = nadi.simulate(demo_folder, nadi.load_system("dgx-h100", 4))
    results = nadi.simulation.results_of(done)
    figures: list[tuple[Any, str]] = [
        (run, "rank 3"), (run.path, "gloo:all_reduce"), (answer, "predicted"), (done, "rank 1"),
        (results, "host"),
    ]  # fmt: skip
    for number, (value, said) in enumerate(figures):
        figure: Figure = value.plot()
        assert said in figure._repr_html_()
        figure.save(tmp_path / f"{number}.svg")
        figure.save(tmp_path / f"{number}.html")
        assert ET.fromstring((tmp_path / f"{number}.svg").read_text()).tag == f"{SVG}svg"
    path = bars(run.path.plot().svg()[0])
    kinds = {kind: time for kind, time in run.path.by_kind().items() if time}
    assert [said.split("\n")[0] for said in path] == list(kinds)
    scale = sum(path.values()) / sum(kinds.values())
    for width, time in zip(path.values(), kinds.values(), strict=True):
        assert width == pytest.approx(time * scale, abs=0.1)
    with pytest.raises(nadi.NadiError, match="is not known"):
        run.path.plot().save(tmp_path / "figure.gif")


def test_tables_of_pandas_and_arrow_have_the_same_values(demo_run: nadi.bottlenecks.Run) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    path, schedule = demo_run.path, demo_run.replay.schedule()
    for given, table in ((path, path.segments), (schedule, schedule.table)):
        frame, arrow = given.to_pandas(), given.to_arrow()
        assert list(frame.columns) == arrow.column_names == table.columns
        assert frame.to_dict("records") == arrow.to_pylist() == table.to_dicts()
    found = path.to_pandas()
    named = found[found["name"].str.contains("gloo") & (found["kind"] == "communication")]
    texts = path.segments.filter(pl.col("name").str.contains("gloo"), kind="communication")
    assert len(named) == texts.height > 0
    assert found.groupby("kind")["node"].count().sum() == path.segments.height


@pytest.mark.parametrize("missing", ["pyarrow", "pandas"])
def test_tables_convert_or_say_what_they_need(
    missing: str, demo_run: nadi.bottlenecks.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *given: Any, **more: Any) -> Any:
        if name.split(".")[0] == missing:
            raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)
        return real(name, *given, **more)

    for name in [name for name in sys.modules if name.split(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(nadi.NadiError, match="pip install pandas pyarrow"):
        demo_run.path.to_pandas()
