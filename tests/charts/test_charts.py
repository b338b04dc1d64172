"""Charts: what is drawn where, in files that need nothing from elsewhere."""

from __future__ import annotations

import importlib.util
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import nadi
from nadi.results import ChartAxis, HeatMap, LineChart, LineSeries, write_charts
from nadi.results.charts.charts import scale_of, short_number
from nadi.results.charts.drawing import drawn

SVG = "{http://www.w3.org/2000/svg}"
X = np.array([32.0, 64.0, 128.0, 256.0])
LINES = LineChart(
    "Rates <of> two", ChartAxis("GB/s", is_log=True), ChartAxis("sequences/s"),
    (
        LineSeries("with a gap", X, np.array([1.0, 2.0, np.nan, 4.0])),
        LineSeries("none", X, np.full(4, np.nan)),
    ),
)  # fmt: skip
CELLS = HeatMap(
    "Cells", "GB/s", "GiB", ("32", "64"), ("0", "512", "1024"),
    np.array([[np.nan, 1.0], [2.0, 3.0], [4.0, 5.0]]), "sequences/s",
)  # fmt: skip


def circles(text: str) -> list[tuple[float, float, str]]:
    return [
        (float(one.attrib["cx"]), float(one.attrib["cy"]), str(one.findtext(f"{SVG}title")))
        for one in ET.fromstring(text).iter(f"{SVG}circle")
    ]


def test_points_stand_where_their_values_say() -> None:
    found = circles(drawn(LINES))
    assert [said for *_, said in found] == [
        f"with a gap\nGB/s: {x}\nsequences/s: {y}" for x, y in ((32, 1), (64, 2), (256, 4))
    ]
    (x0, y0, _), (x1, y1, _), (x3, y3, _) = found
    assert x3 - x0 == pytest.approx(3 * (x1 - x0), abs=0.2)  # equal ratios are equally long
    assert y0 - y3 == pytest.approx(3 * (y0 - y1), abs=0.2)  # equal differences as well


def test_a_line_ends_at_a_gap_and_names_are_escaped() -> None:
    text = drawn(LINES)
    assert len(re.findall(r"<path d", text)) == 1
    assert "Rates &lt;of&gt; two" in text
    assert "nothing is possible here" in drawn(LINES._replace(series=LINES.series[1:]))


def test_a_heat_map_has_a_cell_per_value() -> None:
    said = [
        one.findtext(f"{SVG}title") for one in ET.fromstring(drawn(CELLS)).iter(f"{SVG}rect")
        if one.find(f"{SVG}title") is not None
    ]  # fmt: skip
    assert len(said) == 6
    assert said[0] == "GB/s: 32\nGiB: 0\nsequences/s: not possible"
    assert said[-1] == "GB/s: 64\nGiB: 1,024\nsequences/s: 5".replace(",", "")


def test_a_long_line_keeps_its_extremes_and_stays_small() -> None:
    x = np.arange(100_000.0) + 1
    y = np.where(x == 77_777, 9.0, np.sin(x / 1e4) + 2)
    chart = LINES._replace(series=(LineSeries("", x, y),), x=ChartAxis("x"))
    text = drawn(chart)
    assert len(text) < 400_000
    assert "x: 77,777\nsequences/s: 9" in text


@pytest.mark.parametrize(
    ("values", "is_log", "labels"),
    [([32, 64, 512], True, (32, 64, 512)), (range(1, 200), True, (1, 2, 5, 10, 20, 50, 100)),
     ([0, 12], False, (0, 2, 4, 6, 8, 10, 12)), ([5], False, (4, 4.5, 5, 5.5, 6))],
)  # fmt: skip
def test_labels_are_round(values: list[float], is_log: bool, labels: tuple[float, ...]) -> None:
    scale = scale_of(np.array(values, dtype=float), 0, 100, is_log=is_log)
    assert scale.labels == labels
    assert scale.at(scale.least) == 0
    assert scale.at(scale.most) == 100


def test_numbers_are_short() -> None:
    shown = [short_number(one) for one in (0, 0.5, 12.3456, 1234.5, 2e6, 1e12, 1e-5)]
    assert shown == ["0", "0.5", "12.35", "1,234", "2,000,000", "1e+12", "1e-05"]


def test_a_page_loads_nothing_and_has_all_charts(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_charts(path, [LINES, CELLS], "Both")
    text = path.read_text()
    assert text.count("<svg") == 2
    assert "<h1>Both</h1>" in text
    assert set(re.findall(r"https?://[^\"' ]*", text)) == {"http://www.w3.org/2000/svg"}
    assert len(text) < 20_000


def test_a_png_has_the_chart_or_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "chart.png"
    if importlib.util.find_spec("resvg_py"):
        write_charts(path, [LINES])
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG")
        assert int.from_bytes(content[16:20], "big") == 1520  # pixels across
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(nadi.errors.UsageError, match=r"pip install 'nadi\[charts\]'"):
        write_charts(tmp_path / "other.png", [LINES])
    assert not (tmp_path / "other.png").exists()
