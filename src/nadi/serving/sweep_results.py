"""What ``nadi serve --sweep`` and ``--search`` say: a row for each server, and curves."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from nadi.results.charts.charts import ChartAxis, LineChart, LineSeries
from nadi.results.declared import NAME, Charts, Column, Lines, Result, Rows, number
from nadi.serving.sweeps import ServedPoint, ServerSearch, ServerSweep, point_row, tier_worth
from nadi.units import format_bytes, format_count, format_counted, format_ns, format_number

_NUMBER, _COUNT, _NS = number(format_number, ""), number(format_count, ""), number(format_ns, "")
_SHARE = number(lambda share: f"{100 * share:.1f} %", "")
_WIDE = 16  # how many times its first value an axis ends at to be logarithmic


_IN = {"capacity": " in GiB", "bandwidth": " in GB/s"}  # what a sweep counts them in


def _told(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {_value(name, value)}" for name, value in values.items())


def _value(name: str, value: Any) -> str:
    shown = format_number(value) if isinstance(value, float) else str(value)
    return shown + _IN.get(name, "").replace(" in", "")


_COLUMNS = (
    Column("values"),
    Column("values", "server", NAME, shown=lambda row: _told(row["values"])),
    Column("devices", "devices", _COUNT),
    Column("output_tokens_per_second", "tokens/s", _NUMBER, "generated, of all instances"),
    Column("ttft_p50_ns", "first token P50", _NS),
    Column("ttft_p99_ns", "P99", _NS),
    Column("tpot_p50_ns", "per token P50", _NS),
    Column("tpot_p99_ns", "P99 ", _NS),
    Column("e2e_p50_ns"),
    Column("e2e_p99_ns"),
    Column("goodput_per_second"),
    Column("within", "within limits", _SHARE, "of requests"),
    Column("price_per_million_tokens", "a million tokens", _NUMBER, is_rare=True),
    Column("bound_by"),
    Column("why", "why not", NAME, "what it lacks"),
)  # fmt: skip


def _best_of(found: ServerSweep) -> ServedPoint | None:
    rates = [
        (sum(int(run.output.sum()) for run in one.found.runs), one)
        for one in found.points if one.found
    ]  # fmt: skip
    return max(rates, key=lambda pair: pair[0])[1] if rates else None


def sweep_charts(data: dict[str, Any]) -> list[LineChart]:
    """Return the curves of a sweep: rate and latencies by its first field, where it has numbers."""
    first, *others = data["fields"]
    rows = [row for row in data["points"] if not row["why"]]
    if not rows or not all(isinstance(row["values"][first], (int, float)) for row in rows):
        return []
    values = [row["values"][first] for row in rows]
    across = ChartAxis(
        first + _IN.get(first, ""), is_log=min(values) > 0 and max(values) >= _WIDE * min(values)
    )
    charts = []
    for key, label, unit in (
        ("output_tokens_per_second", "generated tokens/s", 1.0),
        ("ttft_p99_ns", "time to first token, P99, in ms", 1e6),
        ("tpot_p99_ns", "time per token, P99, in ms", 1e6),
    ):
        series = []
        for value in dict.fromkeys(row["values"].get(others[0]) if others else "" for row in rows):
            own = [row for row in rows if not others or row["values"][others[0]] == value]
            x = np.array([row["values"][first] for row in own], dtype=float)
            y = np.array([np.nan if row[key] is None else row[key] / unit for row in own])
            series.append(LineSeries(_told({others[0]: value}) if others else label, x, y))
        charts.append(LineChart(label, across, ChartAxis(label), tuple(series)))
    return charts


SERVER_SWEEP = Result(
    kind="server_sweep", title="Servers beside each other", order=88,
    facts=(Column("fields", get=lambda found: list(found.fields)),),
    headline=lambda data: f"{format_counted(len(data['points']), 'server')} by "
    f"{' and '.join(data['fields'])}",
    parts=(
        Rows("points", "servers", lambda found: map(point_row, found.points), _COLUMNS, top=60),
        Charts(sweep_charts),
    ),
)  # fmt: skip


def _answer(found: ServerSearch) -> dict[str, Any] | None:
    return point_row(found.best) if found.best else None


def _says(data: dict[str, Any]) -> str:
    best = data["best"]
    if best is None:
        return f"none of {format_counted(len(data['points']), 'server')} keeps the limits"
    price = best["price_per_million_tokens"]
    told = f", {format_number(price)} for a million generated tokens" if price else ""
    return (
        f"the cheapest that keeps the limits: {_told(best['values'])}, "
        f"{format_counted(best['devices'], 'device')}{told}"
    )


def _break_even(found: ServerSearch) -> dict[str, Any] | None:
    even = tier_worth(found)
    if even is None:
        return None
    per_tb = 1e12 / even.capacity
    return {
        "devices": even.devices, "devices_per_tb": even.devices * per_tb,
        "capacity_bytes": even.capacity, "price_per_hour": even.price or None,
        "price_per_tb_hour": even.price * per_tb or None,
        "stated_price_per_hour": even.stated or None, "pays": even.pays,
    }  # fmt: skip


def _worth(data: dict[str, Any]) -> Iterator[str]:
    even = data["break_even"]
    if even is None:
        if data["has_tiers"] and data["best"]:
            yield "without the tiers no server of so many devices keeps the limits"
        return
    if even["devices"] <= 0:
        yield "without the tiers it takes no more devices: the tiers save none"
        return
    size, many = format_bytes(even["capacity_bytes"]), format_counted(even["devices"], "device")
    yield (
        f"without the tiers it takes {many} more: {size} of tiers pay below the price of these, "
        f"for a TB that of {format_number(even['devices_per_tb'])} devices"
    )
    if even["price_per_hour"]:
        limit, per_tb = (
            format_number(even[name]) for name in ("price_per_hour", "price_per_tb_hour")
        )
        told = f"that is {limit} {data['currency']} an hour, {per_tb} for a TB"
        if even["pays"] is not None:
            stated = format_number(even["stated_price_per_hour"])
            told += f"; they cost {stated}: they {'pay' if even['pays'] else 'do not pay'}"
        yield told


SERVER_SEARCH = Result(
    kind="server_search", title="The cheapest server", order=89,
    facts=(
        Column("best", get=_answer),
        Column("without_tiers", get=lambda found: (
            point_row(found.without_tiers) if found.without_tiers else None
        )),
        Column("has_tiers", get=lambda found: found.has_tiers),
        Column("break_even", get=_break_even),
        Column("currency", get=lambda found: next(
            (one.found.system.currency for one in found.points if one.found), ""
        )),
    ),
    headline=_says,
    parts=(
        Lines(_worth),
        Rows("points", "servers that were tried", lambda found: map(point_row, found.points),
             _COLUMNS, top=60),
    ),
)  # fmt: skip
