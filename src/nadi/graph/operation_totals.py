"""Operations by name, and collectives by name, group and size: how often, and how long."""

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from nadi.graph.event_graph import EventGraph
from nadi.graph.stragglers import find_participants, group_ranks
from nadi.graph.windows import Window
from nadi.systems.nccl.measured import nccl_tests_factors
from nadi.trace.arrays import Bools, Ints
from nadi.trace.categories import kernel_class
from nadi.trace.schema import DEVICE_WORK

LeastTime = Callable[[str, int, Sequence[int]], float]
_MESSAGES = ("send", "recv")


def operation_totals(graph: EventGraph, window: Window) -> pl.DataFrame:
    """Sum the time of device work by name; of operators on the CPU if no rank has a device.

    Counted is what begins in the window. The time of an operator is its self time.

    - Returns: name, class (of kernels: what they compute), count, time, shortest, longest (int64
      ns) and ranks (how many have it); the longest time first. O(ops).
    """
    category = graph.gather("category")
    wanted = category.is_in(DEVICE_WORK).to_numpy()
    on_device = bool(wanted.any())
    if not on_device:
        wanted = (category == "operator").to_numpy()
    ops = np.flatnonzero(wanted & _begins(graph, window))
    lasts = graph.time[2 * ops + 1] - graph.time[2 * ops]
    found = (
        pl.DataFrame({
            "name": graph.names(ops),
            "time": lasts if on_device else np.maximum(graph.numbers("exclusive", ops), 0),
            "trace": graph.op_trace[ops],
        })
        .group_by("name")
        .agg(
            count=pl.len().cast(pl.Int64), time=pl.sum("time"), shortest=pl.min("time"),
            longest=pl.max("time"), ranks=pl.col("trace").n_unique().cast(pl.Int64),
        )
        .sort("time", "name", descending=[True, False])
    )  # fmt: skip
    classes = [kernel_class(name) if on_device else "" for name in found["name"]]
    return found.insert_column(1, pl.Series("class", classes, dtype=pl.String))


def collective_totals(
    graph: EventGraph, window: Window, least_time: LeastTime | None = None
) -> pl.DataFrame:  # fmt: skip
    """Sum collectives and transfers that ranks have in common, apart from their wait times.

    - ``least_time``: Gives the least time of a collective on the links of a system in ns, or -1,
      from its type, the bytes that each member gives, and the ranks of its group (none if they are
      unknown).
    - Returns: A row per name, type, group and size: name, type, group (its description, or its
      name), members (of the group, or of the recording where it is not stated), bytes (of the
      tensors of a member; -1 if not stated), count, waiting (from the first entry of a rank that
      waits to the entry that it waits for, summed; int64 ns), transferring (from the last entry to
      the last end, summed), bandwidth and bus_bandwidth (algbw and busbw of nccl-tests over the
      transfer time, GB/s; -1 if not known), bound (the least times, summed, ns), fraction (bound by
      transfer time) and bound_bus_bandwidth (busbw if they took the least time), -1 if not known;
      the longest first. O(edges log edges).
    """
    each = _each_collective(graph, window)
    least = pl.Series([
        least_time(kind, size, ranks) if least_time and kind not in _MESSAGES else -1.0
        for kind, size, ranks in each["shapes"].select("type", "bytes", "ranks").iter_rows()
    ], dtype=pl.Float64)  # fmt: skip
    shapes = each["shapes"].with_columns(least=least)
    found = each["collectives"].join(shapes, on="shape").group_by(
        "name", "type", "group", "members", "bytes"
    ).agg(
        count=pl.len().cast(pl.Int64),
        waiting=(pl.col("straggler") - pl.col("entry")).sum(),
        transferring=(pl.col("end") - pl.col("last")).sum(),
        bound=pl.when((pl.col("least") >= 0).all()).then(pl.sum("least")).otherwise(-1.0),
    )  # fmt: skip
    return _with_bandwidths(found).sort(
        pl.col("waiting") + pl.col("transferring"), "name", "type", "group", "members", "bytes",
        descending=[True, False, False, False, False, False],
    )  # fmt: skip


def _each_collective(graph: EventGraph, window: Window) -> dict[str, pl.DataFrame]:
    """Return a row for each collective, and for each distinct type, size and group of them."""
    hub, op, waits = find_participants(graph)
    inside = (graph.time[hub] >= window.start(graph.time)) & (
        graph.time[hub] <= window.end(graph.time)
    )
    hub, op, waits = hub[inside], op[inside], waits[inside]
    begin = graph.time[2 * op]
    number, ranks = group_ranks(graph)
    entries = pl.DataFrame({
        "hub": hub,
        "name": graph.names(op),
        "type": graph.gather("comm_type").gather(op).cast(pl.String),
        "group": _groups(graph, op),
        "ranks": number[op],
        "bytes": graph.numbers("comm_bytes", op),
        "entry": np.where(waits, np.minimum(begin, graph.time[hub]), graph.time[hub]),
        "end": graph.time[2 * op + 1],
        "last": np.maximum(begin, graph.time[hub]),
        "straggler": graph.time[hub],
    })  # fmt: skip
    each = entries.group_by("hub", maintain_order=True).agg(
        pl.first("name", "type", "group"), pl.max("bytes", "ranks"), present=pl.len(),
        last=pl.max("last"), straggler=pl.first("straggler"), entry=pl.min("entry"),
        end=pl.max("end"),
    )  # fmt: skip
    shape = pl.struct("type", "bytes", "ranks", "present").rank("dense")
    each = each.with_columns(shape=shape)
    shapes = each.select("shape", "type", "bytes", "ranks", "present").unique(
        "shape", maintain_order=True
    )
    known = [ranks[k] if k >= 0 else () for k in shapes["ranks"].to_list()]
    present = zip(known, shapes["present"], shapes["type"], strict=True)
    members = [max(n, len(of) if kind not in _MESSAGES else 0) for of, n, kind in present]
    shapes = shapes.with_columns(
        ranks=pl.Series([list(of) for of in known], dtype=pl.List(pl.Int64)),
        members=pl.Series(members, dtype=pl.Int64),
    )
    return {"collectives": each.drop("type", "bytes", "ranks", "present"),
            "shapes": shapes.drop("present")}  # fmt: skip


def _with_bandwidths(found: pl.DataFrame) -> pl.DataFrame:
    factors = [
        nccl_tests_factors(kind, members)
        for kind, members in found.select("type", "members").iter_rows()
    ]
    whole, bus = (pl.Series([pair[k] for pair in factors], dtype=pl.Float64) for k in range(2))
    moved = pl.col("bytes") * pl.lit(whole) * pl.col("count")

    def where(known: pl.Expr, value: pl.Expr) -> pl.Expr:
        return pl.when(known).then(value).otherwise(-1.0)

    timed, bounded = pl.col("transferring") > 0, pl.col("bound") > 0
    has_bus = (pl.col("bytes") > 0) & (pl.lit(bus) > 0)
    return found.with_columns(
        bandwidth=where(timed & (pl.col("bytes") > 0), moved / pl.col("transferring")),
        bus_bandwidth=where(timed & has_bus, moved * pl.lit(bus) / pl.col("transferring")),
        fraction=where(timed & bounded, pl.col("bound") / pl.col("transferring")),
        bound_bus_bandwidth=where(bounded & has_bus, moved * pl.lit(bus) / pl.col("bound")),
    )


def _begins(graph: EventGraph, window: Window) -> Bools:
    start = graph.time[0 : 2 * graph.num_ops : 2]
    inside: Bools = (start >= window.start(graph.time)) & (start < window.end(graph.time))
    return inside


def _groups(graph: EventGraph, ops: Ints) -> pl.Series:
    """Return the description of the process group of each operation, or its name; text."""
    found = np.full(ops.size, "", dtype=object)
    group = graph.numbers("group", ops)
    of = np.where(group >= 0, graph.op_trace[ops], -1)
    for place in np.unique(of[of >= 0]).tolist():
        trace, mine = graph.job.traces[place], np.flatnonzero(of == place)
        rows = trace.groups.select("name", "description").iter_rows()
        texts = np.array([description or name for name, description in rows], dtype=object)
        found[mine] = texts[group[mine]]
    return pl.Series(found.tolist(), dtype=pl.String)
