"""What ``nadi.charts`` gives; each name is loaded when it is first used."""

from .chart_figure import Figure as Figure
from .chart_files import write_charts as write_charts
from .chart_values import (
    BarChart as BarChart,
    ChartAxis as ChartAxis,
    HeatMap as HeatMap,
    LineChart as LineChart,
    LineSeries as LineSeries,
)
