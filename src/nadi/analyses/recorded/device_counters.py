"""Hardware counters of kernels, which the profiler records with CUPTI."""

from typing import Any

import msgspec
import numpy as np
import polars as pl

from nadi.analyses.hta.recorded_fields import rows_holding, rows_of_file, trace_name
from nadi.analyses.recorded.events import RankEvents, per_rank
from nadi.errors import InputError


class _Range(msgspec.Struct):
    name: str = ""
    cat: str = ""
    ts: float = -1
    args: dict[str, Any] = {}


_decoder = msgspec.json.Decoder(_Range)


@per_rank("arguments", "device work")
def device_counters(events: RankEvents) -> pl.DataFrame:
    """List the counters of each kernel with the operator that launched it.

    The profiler writes the ranges of counters in order of time, one for each kernel.

    Returns
    -------
    polars.DataFrame
        A row per kernel and counter: ``kernel``, ``operator`` (empty if none), ``duration_ns``,
        ``counter``, ``value``. O(kernels * counters).

    Raises
    ------
    InputError
        If no counters are recorded.
    """
    attributes = events.trace.attributes
    rows = rows_holding(attributes, rows_of_file(attributes, "event"), b"cuda_profiler_range")
    ranges = []
    for row in rows.tolist():
        try:
            ranges.append(_decoder.decode(attributes.span(row)))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    ranges = sorted((one for one in ranges if one.cat == "cuda_profiler_range"), key=lambda r: r.ts)
    if not ranges:
        raise InputError(
            trace_name(events.trace), "no hardware counters are recorded",
            "record with experimental_config=_ExperimentalConfig(profiler_metrics=[...])",
        )  # fmt: skip
    kernels = np.flatnonzero(events.is_of("kernel"))
    kernels = kernels[np.argsort(events.column("start")[kernels], kind="stable")][: len(ranges)]
    operator = events.around(events.launcher[kernels], events.is_of("operator"))
    names = events.table["name"].cast(pl.String)
    found = [
        (names[int(kernel)], names[int(around)] if around >= 0 else "",
         int(events.column("duration")[kernel]), counter, float(value))
        for kernel, around, one in zip(kernels, operator, ranges, strict=False)
        for counter, value in one.args.items()
        if isinstance(value, int | float)
    ]  # fmt: skip
    return pl.DataFrame(
        found, orient="row",
        schema={"kernel": pl.String, "operator": pl.String, "duration_ns": pl.Int64,
                "counter": pl.String, "value": pl.Float64},
    )  # fmt: skip
