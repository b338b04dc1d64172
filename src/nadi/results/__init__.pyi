"""What ``nadi.results`` gives; each name is loaded when it is first used."""

from .charts.chart_files import Figure as Figure, write_charts as write_charts
from .charts.charts import (
    BarChart as BarChart,
    ChartAxis as ChartAxis,
    HeatMap as HeatMap,
    LineChart as LineChart,
    LineSeries as LineSeries,
)
