"""Charts on a page: drawings whose colors follow the scheme of the page."""

from __future__ import annotations

from nadi.results.charts.charts import Chart
from nadi.results.charts.drawing import drawn

_NAMESPACE = ' xmlns="http://www.w3.org/2000/svg"'  # HTML needs none


def chart_html(chart: Chart) -> str:
    """Draw a chart; what the pointer is at says its values."""
    return f'<div class="chart">{drawn(chart).replace(_NAMESPACE, "", 1)}</div>'
