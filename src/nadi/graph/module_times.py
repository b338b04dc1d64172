"""Time by module: forward, backward and optimizer, on host and device."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from nadi.errors import checked
from nadi.graph.critical_paths import CriticalPath, walk_critical_path
from nadi.graph.event_graph import EventGraph
from nadi.graph.module_tree import PHASES, ModuleTree, find_modules
from nadi.graph.replay import replay_graph
from nadi.graph.windows import Window
from nadi.recordings.dependencies.operator_nesting import nest
from nadi.recordings.dependencies.thread_handovers import waiting_threads
from nadi.trace.arrays import Bools, Ints
from nadi.trace.schema import DEVICE_WORK

OUTSIDE = "(outside of modules)"
"""The name of the row of what belongs to no module."""


@dataclass(frozen=True, eq=False)
class ModuleTimes:
    """The time of each module in a window.

    Attributes
    ----------
    table
        A row per module, after those around it, and last what belongs to no module: module
        (its path), parent (row of the module around it, or -1), calls (in the window);
        forward_host, backward_host, optimizer_host, other_host (ns: time of threads in operations
        and Python functions); forward_device, backward_device, optimizer_device, other_device
        (ns: summed durations of kernels, copies and memory sets); device_operations (how many of
        these begin in the window); critical (ns on the critical path). Modules include the
        modules in them: the rows without a parent add up to the whole.
    is_recorded
        Whether modules were recorded as such; otherwise they are annotations.
    optimizer
        How work of the optimizer was attributed to modules, or why not; empty if there is none.
    """

    table: pl.DataFrame
    is_recorded: bool
    optimizer: str

    def __repr__(self) -> str:
        return f"<ModuleTimes modules={self.table.height - 1}>"


@checked
def time_by_module(
    graph: EventGraph, window: Window, path: CriticalPath | None = None
) -> ModuleTimes:
    """Sum the time of a window by module and phase, over all ranks. O(ops * depth).

    Parameters
    ----------
    graph
        The job as measured.
    window
        What is analysed; only time within it counts.
    path
        Its critical path, if that is known already.
    """
    if path is None:
        path = walk_critical_path(replay_graph(graph), window)
    tree = find_modules(graph)
    begin, end = window.start(graph.time), window.end(graph.time)
    on_device = graph.gather("category").is_in(DEVICE_WORK).to_numpy()
    own = _own_times(graph, begin, end)
    columns: dict[str, Ints] = {}
    for place, ops in (("host", ~on_device), ("device", on_device)):
        for code, phase in enumerate(PHASES):
            columns[f"{phase}_{place}"] = _sum(tree, own, ops & (tree.phase == code))
    columns["device_operations"] = _count(tree, on_device & _begins(graph, begin, end))
    columns["critical"] = _critical(graph, tree, path)
    for column in columns.values():  # a module precedes those in it
        for module in range(len(tree.paths) - 1, -1, -1):
            if tree.parent[module] >= 0:
                column[tree.parent[module]] += column[module]
    names = [*tree.paths, OUTSIDE]
    calls = _count(tree, tree.is_called & _begins(graph, begin, end))
    table = pl.DataFrame({
        "module": names, "parent": np.append(tree.parent, -1), "calls": calls, **columns,
    })  # fmt: skip
    return ModuleTimes(table, tree.is_recorded, tree.optimizer)


def _begins(graph: EventGraph, begin: int, end: int) -> Bools:
    start = graph.time[0 : 2 * graph.num_ops : 2]
    inside: Bools = (start >= begin) & (start < end)
    return inside


def _own_times(graph: EventGraph, begin: int, end: int) -> Ints:
    """Return the time of each operation in a time range that no nested one has; ns, shape (ops,).

    Times of threads are distributed without a rest, also where operations overlap.
    """
    time = np.clip(graph.time[: 2 * graph.num_ops], begin, end)
    own: Ints = time[1::2] - time[0::2]
    for number, trace in enumerate(graph.job.traces):
        nesting = nest(trace, waiting_threads(trace))
        ops = graph.ops_of_rows(number)[nesting.rows]
        vertex = 2 * ops[nesting.boundary // 2] + nesting.boundary % 2
        lasts = np.diff(time[vertex], prepend=0)
        inside = nesting.owner >= 0
        own[ops] = 0
        np.add.at(own, ops[nesting.owner[inside]], lasts[inside])
    return own


def _sum(tree: ModuleTree, amount: Ints, ops: Bools) -> Ints:
    """Sum amounts by module, and last those outside of modules; shape (modules + 1,)."""
    sums = np.zeros(len(tree.paths) + 1, dtype=np.int64)
    np.add.at(sums, tree.module[ops], amount[ops])
    return sums


def _count(tree: ModuleTree, ops: Bools) -> Ints:
    return _sum(tree, np.ones(ops.size, dtype=np.int64), ops)


def _critical(graph: EventGraph, tree: ModuleTree, path: CriticalPath) -> Ints:
    sums = np.zeros(len(tree.paths) + 1, dtype=np.int64)
    lasts = (path.segments["end"] - path.segments["start"]).to_numpy()
    rank, node = path.segments["rank"].to_numpy(), path.segments["node"].to_numpy()
    for number, trace in enumerate(graph.job.traces):
        mine = graph.ops_of_trace(number)
        module = np.full(trace.nodes.height + 1, -1, dtype=np.int64)
        module[graph.op_row[mine]] = tree.module[mine]
        of_rank = rank == trace.rank
        np.add.at(sums, module[node[of_rank]], lasts[of_rank])
    return sums
