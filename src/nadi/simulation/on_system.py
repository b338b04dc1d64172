"""A change that predicts a recorded job on another system."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl

from nadi.errors import UsageError, checked
from nadi.graph.edges.collective_edges import returns_early
from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.graph.stragglers import group_ranks
from nadi.simulation.alone.collective import collective_time, message_time, stand_in
from nadi.systems.library import recorded_devices
from nadi.systems.system import System
from nadi.systems.system_file import SystemFile
from nadi.trace.arrays import Ints
from nadi.trace.collectives import COLLECTIVES, FROM_ROOT, TO_ROOT
from nadi.trace.rows import number_rows
from nadi.trace.schema import COMM_TYPES
from nadi.trace.trace import Job

_MESSAGES = ("send", "recv")


@dataclass(frozen=True)
class OnSystem:
    """Replace communication times by those simulated on a system, each alone.

    After its last rank has entered, each collective takes the time that the simulator predicts
    for it alone, with its group, size and algorithm; concurrent work does not slow it down.
    Kernels take their recorded time times ``kernel_factor``, and the host its recorded time.

    Attributes
    ----------
    system
        A system with as many ranks as the job.
    kernel_factor
        1 for recorded times.
    reason
        Explanation of the factor.
    """

    system: System
    kernel_factor: float = 1.0
    reason: str = "computation as recorded"

    def __str__(self) -> str:
        kernels = f" kernels {self.kernel_factor:.4g}" if self.kernel_factor != 1 else ""
        return f"on {self.system.name or 'a system'}{kernels}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; nothing before ``since`` (ns since the origin) changes.

        Raises
        ------
        UsageError
            If the system does not have the ranks of the job.
        """
        later = graph.time[graph.in_src] >= since
        weight = graph.weight.copy()
        # edges of these two kinds always belong to an operation
        time = prices_on(graph, self.system).time[graph.edge_op]
        priced = (graph.edge_kind == EdgeKind.COMMUNICATION) & (time >= 0) & later
        weight[priced] = time[priced]
        if self.kernel_factor != 1:
            is_kernel = (graph.gather("category") == "kernel").to_numpy()
            kernels = (graph.edge_kind == EdgeKind.KERNEL) & is_kernel[graph.edge_op] & later
            weight[kernels] = np.rint(weight[kernels] * self.kernel_factor).astype(np.int64)
        return graph.with_weights(weight)


@dataclass(frozen=True, eq=False)
class Prices:
    """The time of each communication of a job on a system.

    Attributes
    ----------
    time
        int64 ns, shape (ops,): alone on the system; -1 of what does not communicate, or whose
        type, size or partner is not known.
    by_type
        Transfers of each type: how many were priced and how many left as measured, the measured
        time of those that were priced and the predicted one (ns), and what was simulated in
        their place, if that is another type.
    """

    time: Ints
    by_type: pl.DataFrame


def fit_to_system(job: Job, described: SystemFile, known: Iterable[SystemFile]) -> OnSystem:
    """Fit a system to a job, and compare its devices with those that recorded the job.

    If the recording names the device of a system in ``known``, kernel times are scaled by the
    smaller of two ratios: peak, and memory bandwidth. This is an estimate, and the returned
    reason states it. Otherwise kernels take their recorded time.

    - Raises UsageError if the system does not fit the number of ranks.
    """
    system = described.fit(job.world_size)
    recorded = recorded_devices(job)
    if not recorded:
        reason = "computation as recorded: the recording does not name its device"
        return OnSystem(system, reason=reason)
    for own in known:
        if any(device in recorded for device in own.compute.devices):
            return OnSystem(system, *_faster(described, own, recorded))
    return OnSystem(
        system, reason=f"computation as recorded: {recorded} matches no system that ships with Nadi"
    )


def _faster(described: SystemFile, own: SystemFile, recorded: str) -> tuple[float, str]:
    """Return the factor for kernel times, and its explanation."""
    if not (described.peak and described.memory_bandwidth):
        return 1.0, "computation as recorded: the system states no peak and memory bandwidth"
    ratio, which = min(
        (described.memory_bandwidth / own.memory_bandwidth, "memory bandwidth"),
        (described.peak / own.peak, "peak"),
    )
    reason = (
        f"an estimate: kernels as recorded on {recorded}, {ratio:.3g} times as fast, which is "
        f"the ratio of {which}, the smaller one; host as recorded"
    )
    return 1 / ratio, reason


@checked
def prices_on(graph: EventGraph, system: System) -> Prices:
    """Simulate all communication of a job. O(ops + distinct communications * their simulation).

    Raises
    ------
    UsageError
        If the system does not have the ranks of the job.
    """
    if system.network.num_ranks != graph.job.world_size:
        raise UsageError(
            f"system {system.name}",
            f"it has {system.network.num_ranks} ranks, but the job has {graph.job.world_size}",
            "fit it to the job: nadi.load_system(name, ranks)",
        )  # fmt: skip
    comm_type = graph.gather("comm_type").to_physical().to_numpy().astype(np.int64)
    size = graph.gather("comm_bytes").to_numpy()
    numbers, groups = group_ranks(graph)
    rank = np.array(graph.job.ranks, dtype=np.int64)[graph.op_trace]
    sends = comm_type == COMM_TYPES.index("send")
    message = sends | (comm_type == COMM_TYPES.index("recv"))
    outwards, inwards = (
        np.isin(comm_type, [COMM_TYPES.index(name) for name in names])
        for names in (FROM_ROOT, TO_ROOT)
    )
    src = np.where(sends, rank, graph.gather("src").to_numpy())
    dst = np.where(sends | inwards, graph.gather("dst").to_numpy(), rank)
    none = np.full(graph.num_ops, -1)
    alike = (
        comm_type, size, np.where(message, -1, numbers),
        np.where(message | outwards, src, none), np.where(message | inwards, dst, none),
    )  # fmt: skip
    chosen = np.flatnonzero(comm_type != COMM_TYPES.index("none"))
    of_op, first = number_rows([column[chosen] for column in alike])
    kinds = np.stack([column[chosen[first]] for column in alike], axis=1).tolist()
    prices = np.array([_price(system, groups, *kind) for kind in kinds], dtype=np.int64)
    time = np.full(graph.num_ops, -1, dtype=np.int64)
    if chosen.size:
        time[chosen] = prices[of_op]
    return Prices(time, _by_type(graph, system, comm_type, time))


def _price(
    system: System, groups: list[tuple[int, ...]], code: int, size: int, group: int, src: int,
    dst: int,
) -> int:  # fmt: skip
    """Simulate one kind of communication; -1 if that is not possible."""
    comm_type, num_ranks = COMM_TYPES[code], system.network.num_ranks
    if comm_type in _MESSAGES:
        known = size >= 0 and 0 <= src < num_ranks and 0 <= dst < num_ranks
        if not known:
            return -1
        return message_time(system, size, src, dst) if src != dst else 0
    if comm_type not in COLLECTIVES or (size < 0 and comm_type != "barrier"):
        return -1
    members = groups[group] if group >= 0 else ()
    root = max(src, dst)  # one of which is -1
    if root not in (members or range(num_ranks)):
        root = -1
    return collective_time(system, comm_type, size, members, root)


def _by_type(graph: EventGraph, system: System, comm_type: Ints, time: Ints) -> pl.DataFrame:
    edges = np.flatnonzero((graph.edge_kind == EdgeKind.COMMUNICATION) & ~returns_early(graph))
    ops = graph.edge_op[edges]
    names = np.array(COMM_TYPES, dtype=object)
    known = time[ops] >= 0
    table = pl.DataFrame({
        "type": pl.Series(names[comm_type[ops]].tolist(), dtype=pl.String),
        "known": known,
        "measured": np.where(known, graph.weight[edges], 0),
        "predicted": np.where(known, time[ops], 0),
    })  # fmt: skip
    return (
        table.group_by("type")
        .agg(
            priced=pl.col("known").sum().cast(pl.Int64),
            left=(~pl.col("known")).sum().cast(pl.Int64),
            measured=pl.col("measured").sum(),
            predicted=pl.col("predicted").sum(),
        )
        .with_columns(
            simulated_as=pl.col("type").replace_strict(
                {name: stand_in(system, name) for name in COLLECTIVES},
                default="",
                return_dtype=pl.String,
            )
        )
        .sort("measured", "type", descending=[True, False])
    )
