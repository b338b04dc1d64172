"""A figure: charts that a notebook shows, and that can be written to a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nadi.results.charts.chart_files import write_charts
from nadi.results.charts.charts import BarChart, Chart, HeatMap, LineChart
from nadi.results.charts.drawing import drawn


@dataclass(frozen=True, eq=False)
class Figure:
    """One or several charts, as ``plot()`` of many values returns them.

    Attributes
    ----------
    charts
        What is drawn, as values.
    """

    charts: Sequence[BarChart | LineChart | HeatMap]

    def __repr__(self) -> str:
        return f"<Figure {'; '.join(chart.title for chart in self.charts)}>"

    def _repr_html_(self) -> str:
        return "\n".join(self.svg())

    def svg(self) -> list[str]:
        """Return each chart as the text of an SVG file."""
        return [drawn(chart) for chart in self.charts]

    def save(self, path: Path | str) -> None:
        """Write the charts: all to an ``.html`` page, the first to ``.svg`` or ``.png``.

        Raises
        ------
        UsageError
            If the suffix is none of these; or for a PNG, if the package that draws it, or a font,
            is missing.
        InputError
            If the file cannot be written.
        """
        write_charts(Path(path), self.charts)


_NAMESPACE = ' xmlns="http://www.w3.org/2000/svg"'  # HTML needs none


def chart_html(chart: Chart) -> str:
    """Draw a chart; what the pointer is at says its values."""
    return f'<div class="chart">{drawn(chart).replace(_NAMESPACE, "", 1)}</div>'
