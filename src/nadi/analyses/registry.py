"""Every analysis of recordings: its name, title and function.

A new analysis is one file in ``recorded/`` and one line in :data:`ANALYSES`: a function with the
decorator :func:`~nadi.analyses.recorded.per_rank.per_rank`, which says what it needs, from the
events of one rank to a table. Then ``nadi analyze``, ``nadi.analyses`` and the documentation
include it. Columns of times end in ``_ns``, of sizes in ``_bytes``, of shares in ``_percent``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from typing import Any

import polars as pl

from nadi.errors import Parameter, UsageError

__all__ = ["ANALYSES", "Analysis", "analysis_named"]


@dataclass(frozen=True)
class Analysis:
    """One analysis of recordings.

    Attributes
    ----------
    name
        Name for ``nadi analyze``.
    title
        What its table says.
    function
        Module and function in :mod:`nadi.analyses.recorded`.
    group
        What it is about, for lists.
    chart
        How it is drawn: a kind, then columns. ``bars``: of labels, then of lengths, summed over
        equal labels; ``means``: the mean of these; ``lines``: of times, of values, of the
        name of the line; ``flame``.
    of_job
        Whether it needs all ranks at once; else ranks are analysed one after the other.
    """

    name: str
    title: str
    function: str
    group: str
    chart: tuple[str, ...]
    of_job: bool = False

    def __call__(self, *arguments: Any, **options: Any) -> pl.DataFrame:
        """Run it; its module is imported on first use."""
        table: pl.DataFrame = self._found(*arguments, **options)
        return table

    @property
    def needs(self) -> tuple[str, ...]:
        """What a recording must have, by the names in ``recorded.per_rank.NEEDS``."""
        return getattr(self._found, "needs", ())

    @property
    def uses(self) -> tuple[str, ...]:
        """What it takes into account where a recording has it, by the same names."""
        return getattr(self._found, "uses", ())

    @property
    def _found(self) -> Callable[..., Any]:
        module, _, name = self.function.rpartition(".")
        found: Callable[..., Any] = getattr(import_module(f"nadi.analyses.recorded.{module}"), name)
        return found

    def options(self, settings: Sequence[str]) -> dict[str, Any]:
        """Read its parameters from texts such as ``kernel_gap_ns=30000``.

        Raises
        ------
        UsageError
            If it has no such parameter, or the value is not of its type.
        """
        parameters = list(signature(self._found).parameters.values())[1:]
        defaults = {one.name: one.default for one in parameters if one.default is not None}
        found = {}
        for text in settings:
            name, _, value = text.partition("=")
            if name not in defaults:
                known = ", ".join(f"{key}={default}" for key, default in defaults.items()) or "none"
                raise UsageError(
                    Parameter("set", text), f"{self.name} has no parameter {name!r}",
                    f"its parameters are: {known}",
                )  # fmt: skip
            found[name] = _read(value, defaults[name], text)
        return found


ANALYSES = (
    Analysis("temporal", "what devices do from their first to their last work",
             "breakdown.temporal_breakdown", "devices",
             ("bars", "rank", "computation_ns", "exposed_communication_ns", "exposed_memory_ns",
              "idle_ns")),
    Analysis("idle", "idle times of streams by cause", "idle_times.idle_times", "devices",
             ("bars", "cause", "idle_ns")),
    Analysis("kernel-types", "busy time by the types of work that run at once",
             "kernels.kernel_types", "devices", ("bars", "type", "time_ns")),
    Analysis("kernels", "time of device work by name", "kernels.top_kernels", "devices",
             ("bars", "name", "sum_ns")),
    Analysis("overlap", "communication while the device computes",
             "breakdown.communication_overlap", "communication",
             ("bars", "rank", "overlapped_ns", "exposed_ns")),
    Analysis("annotations", "time of user annotations", "annotation_times.annotation_times",
             "annotations", ("bars", "name", "sum_ns")),
    Analysis("annotation-kernels", "device work by user annotation",
             "annotation_times.annotation_kernels", "annotations",
             ("bars", "annotation", "sum_ns")),
    Analysis("queue", "lengths of the queues of streams", "queue_lengths.queue_summary",
             "launches", ("means", "stream", "mean_over_time")),
    Analysis("queue-series", "lengths of the queues of streams over time",
             "queue_lengths.queue_lengths", "launches", ("lines", "time_ns", "length", "stream")),
    Analysis("full-queues", "time in which queues of streams were full",
             "queue_lengths.full_queues", "launches", ("bars", "stream", "full_ns")),
    Analysis("bandwidth", "copies and memory sets by kind", "memory_bandwidth.memory_bandwidth",
             "memory", ("means", "kind", "gb_per_s")),
    Analysis("bandwidth-series", "bandwidth of copies and memory sets over time",
             "memory_bandwidth.memory_bandwidth_series", "memory",
             ("lines", "time_ns", "gb_per_s", "kind")),
    Analysis("launches", "launch calls: their time, and the delay of what they launch",
             "launch_statistics.launch_summary", "launches", ("bars", "call", "count")),
    Analysis("launch-list", "device work with its launch call", "launch_statistics.launches",
             "launches", ("bars", "name", "call_ns", "delay_ns", "work_ns")),
    Analysis("operator-delays", "from operators to their launches, from there to kernels",
             "launches.operator_delays", "launches",
             ("means", "operator", "call_delay_ns", "kernel_delay_ns")),
    Analysis("sequences", "sequences of kernels that operators launch",
             "launches.kernel_sequences", "launches", ("bars", "operator", "work_ns")),
    Analysis("memory", "memory of devices by operator, and its peak",
             "memory_timeline.memory_peaks", "memory", ("bars", "operator", "size_bytes")),
    Analysis("memory-series", "memory of devices over time", "memory_timeline.memory_timeline",
             "memory", ("lines", "time_ns", "allocated_bytes", "device")),
    Analysis("flame", "time by path of calls", "call_stacks.flame_graph", "operators",
             ("flame", "name", "total_ns")),
    Analysis("stacks", "call stacks, and what each call launches", "call_stacks.call_stacks",
             "operators", ("bars", "name", "self_ns")),
    Analysis("counters", "hardware counters of kernels", "device_counters.device_counters",
             "devices", ("means", "counter", "value")),
    Analysis("modules", "time by module: forward, backward, optimizer",
             "from_graph.module_table", "operators", ("bars", "module", "forward_device_ns"),
             of_job=True),
    Analysis("steps", "steps, as marked or as they repeat", "from_graph.step_table",
             "steps", ("bars", "step", "duration_ns"), of_job=True),
    Analysis("stragglers", "ranks that others wait for", "from_graph.straggler_ranks",
             "communication", ("bars", "rank", "wait_time_caused_ns"), of_job=True),
    Analysis("late", "collectives, and the rank that entered last",
             "from_graph.late_collectives", "communication",
             ("bars", "name", "wait_time_caused_ns"), of_job=True),
    Analysis("collectives", "collectives: transfer time, apart from the skew of ranks",
             "collectives.collective_skew", "communication",
             ("bars", "name", "transfer_ns", "skew_ns"), of_job=True),
    Analysis("collective-list", "each collective: its skew, its transfer time",
             "collectives.collective_list", "communication",
             ("lines", "start_ns", "transfer_ns", "name"), of_job=True),
    Analysis("rates", "FLOP/s and B/s of operators by shape", "rates.operator_rates",
             "operators", ("means", "shape", "tflop_per_s")),
)  # fmt: skip
"""All analyses, in the order of ``nadi analyze``."""

_BY_NAME = {one.name: one for one in ANALYSES}


def _read(value: str, default: Any, text: str) -> Any:
    """Return a value of the type of the default."""
    words = {"true": True, "yes": True, "false": False, "no": False}
    try:
        if isinstance(default, bool):
            return words[value.lower()]
        return type(default)(value)
    except (KeyError, ValueError):
        raise UsageError(
            Parameter("set", text), f"{value!r} is no {type(default).__name__}",
            f"the default is {default}",
        ) from None  # fmt: skip


def analysis_named(name: str) -> Analysis:
    """Return the analysis with a name.

    Raises
    ------
    UsageError
        If the name is unknown; the message lists all analyses.
    """
    if name not in _BY_NAME:
        raise UsageError(name, "unknown analysis", f"there are all, {', '.join(_BY_NAME)}")
    return _BY_NAME[name]
