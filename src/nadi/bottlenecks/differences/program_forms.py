"""How a program runs: compiled, in graphs, on devices of which vendor."""

from __future__ import annotations

import numpy as np
import polars as pl

from nadi.graph.event_graph import EventGraph
from nadi.graph.operation_groups import group_operations
from nadi.kernels.sequences import union_length
from nadi.trace.arrays import Bools
from nadi.trace.categories import kernel_class
from nadi.trace.schema import DEVICE_WORK

__all__ = ["FORMS_OF_PROGRAMS", "common_names", "program_forms", "vendors_of"]

FORMS_OF_PROGRAMS = {
    "compilation": r"\(dynamo_timed\)$|^_?compile(?:_inner|_fx)\b",
    "compiled regions": r"^Torch-Compiled Region",
    "launches of graphs": r"^(?:cuda|hip|cu)GraphLaunch",
    "captures of graphs": r"^(?:cuda|hip|cu)StreamBeginCapture",
}
"""Of each way in which a program can run, an expression for the operations that show it."""

_VENDORS = {"NVIDIA": r"^(?:cuda|cu)[A-Z]", "AMD": r"^hip[A-Z]"}
_LAUNCHES = r"^(?:cuda|cu|hip)(?:Ext)?(?:Module)?Launch(?:Cooperative)?Kernel\w*$"
_PREFIX = r"^(?:cuda|cu|hip)([A-Z])"


def program_forms(graph: EventGraph, inside: Bools, num_steps: int) -> pl.DataFrame:
    """Count what shows how a program runs, by ``FORMS_OF_PROGRAMS``.

    Parameters
    ----------
    inside
        bool, shape (ops,): what is compared.

    Returns
    -------
    polars.DataFrame
        ``form``, ``count`` and ``ns`` (of threads in it) per step; a row of each. O(operations).
    """
    rows = []
    for form, expression in FORMS_OF_PROGRAMS.items():
        ops = np.flatnonzero(inside & graph.named(expression))
        total = 0
        for trace in range(len(graph.job.traces)):
            own = ops[graph.op_trace[ops] == trace]
            total += union_length(graph.time[2 * own], graph.time[2 * own + 1])
        rows.append((form, ops.size / num_steps, total / num_steps))
    schema = {"form": pl.String, "count": pl.Float64, "ns": pl.Float64}
    return pl.DataFrame(rows, schema, orient="row")


def vendors_of(graph: EventGraph) -> set[str]:
    """Return the vendors of whose runtimes a recording has calls."""
    return {vendor for vendor, calls in _VENDORS.items() if graph.named(calls).any()}


def common_names(graph: EventGraph) -> pl.Series:
    """Return names under which the work of devices of different vendors can be compared.

    A kernel is its class and the outermost operator that launched it; calls that launch are one
    name, and other calls lose the vendor's prefix. Text, shape (ops,). O(ops * depth).
    """
    groups = group_operations(graph)
    on_device = graph.gather("category").is_in(DEVICE_WORK).to_numpy()
    work = np.flatnonzero(on_device)
    names = graph.op_names.to_numpy().copy()
    for op, own in zip(work.tolist(), names[work].tolist(), strict=True):
        operator = groups.names[groups.operator[op]]
        names[op] = f"{operator}: {kernel_class(own)}" if operator != own else kernel_class(own)
    return (
        pl.Series("name", names, dtype=pl.String)
        .str.replace(_LAUNCHES, "launch of a kernel")
        .str.replace(_PREFIX, "$1")
    )
