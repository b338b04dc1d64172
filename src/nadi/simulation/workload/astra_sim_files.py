"""Write a job for ASTRA-sim: a Chakra trace per rank, and the members of process groups.

``docs/simulators.md`` lists what a Chakra trace can express of a recording, and what it cannot.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from nadi.errors import InputError, checked
from nadi.files import files as container
from nadi.files.files import check_target, locate
from nadi.files.trace_files import write
from nadi.files.whole_folders import whole_folder
from nadi.graph.edges.job_graph import build_graph
from nadi.simulation.workload.activities import (  # fmt: skip
    Activities,
    find_activities,
    in_microseconds,
    in_turns,
    with_hand_overs,
)
from nadi.simulation.workload.simulator_communication import (
    communication_ops,
    find_communication,
    find_order,
)
from nadi.simulation.workload.simulator_nodes import (
    PlayedRank,
    idle_rank,
    parts_of_ranks,
    rank_traces,
)
from nadi.trace.arrays import Ints
from nadi.trace.issues import IssueLog
from nadi.trace.trace import Job
from nadi.units import format_ns

COMM_GROUPS = "comm_group.json"
TRACES = "trace"  # ASTRA-sim adds the rank: trace.0.et
_MICRO = 1000  # ns
_FEWEST = 2  # ranks that ASTRA-sim simulates


@dataclass(frozen=True)
class SimulatorFiles:
    """The files written for a simulator.

    Attributes
    ----------
    traces
        The file of each rank, in order of rank.
    comm_groups
        The file with the members of each process group.
    nodes
        Number of nodes of each trace.
    num_groups
        Number of groups.
    issues
        ``schema.ISSUES``: what was changed, folded and dropped.
    """

    traces: tuple[Path, ...]
    comm_groups: Path
    nodes: tuple[int, ...]
    num_groups: int
    issues: pl.DataFrame


@checked
def write_for_astra_sim(job: Job, folder: Path | str, *, overwrite: bool = False) -> SimulatorFiles:
    """Write ``trace.<rank>.et`` for each rank, and ``comm_group.json``, for ASTRA-sim.

    Parameters
    ----------
    job
        Linked, with its ranks' clocks aligned. Ranks are numbered from 0 in their order.
    folder
        A folder or address. A job of one rank gets a second one that does nothing.
    overwrite
        Whether existing files are replaced.

    Raises
    ------
    InputError
        If a file cannot be written, or exists already.
    NadiError
        If the collectives of the ranks wait for each other in a circle.
    """
    place = locate(folder)
    if place.is_file():
        what = "is a file, but the traces of ranks are written into a folder"
        raise InputError(str(place), what, "name a folder")
    num_ranks = max(len(job.traces), _FEWEST)
    paths = [place / f"{TRACES}.{number}.et" for number in range(num_ranks)]
    for path in (*paths, place / COMM_GROUPS):
        check_target(path, (), overwrite=overwrite)
    log = IssueLog()
    played, groups = played_traces(job, log)
    sizes = []
    with whole_folder(place, overwrite=overwrite) as inside:
        for trace in (rank.trace for rank in played):
            sizes.append(trace.nodes.height)
            write(trace, inside / paths[trace.rank].name)
        if len(sizes) < num_ranks:
            sizes.append(1)
            write(idle_rank(trace, len(job.traces)), inside / paths[-1].name)
        container.write_pieces(inside / COMM_GROUPS, [msgspec.json.encode(groups)])
    if len(sizes) > len(job.traces):
        log.add(
            "export.idle-rank", "info", 1,
            f"ASTRA-sim refuses a single rank: {paths[-1].name} is of a second one, which does "
            "nothing",
        )  # fmt: skip
    return SimulatorFiles(tuple(paths), place / COMM_GROUPS, tuple(sizes), len(groups), log.table())


def played_traces(
    job: Job, log: IssueLog, *, at_once: bool = False, played: Collection[str] = ()
) -> tuple[Iterator[PlayedRank], dict[str, tuple[int, ...]]]:
    """Convert a recorded job to traces whose nodes a simulator can run. O(edges log edges).

    - ``job``: Linked, with its ranks' clocks aligned. Ranks are numbered from 0 in their order.
    - ``log``: Records what is changed, folded and dropped.
    - ``at_once``: Whether communication operations of a rank may overlap, with durations in ns.
      Otherwise all ranks start them in one order, and durations are in us, as ASTRA-sim requires.
    - ``played``: As for
      :func:`nadi.simulation.workload.simulator_communication.find_communication`.
    - Returns Iterator: The trace of each rank, with the recorded operations behind its nodes.
    - and dict: The members of each group by name.
    - Raises NadiError if the collectives of the ranks wait for each other in a circle.
    """
    graph = build_graph(job)
    comm_ops = communication_ops(graph)
    communication = find_communication(graph, comm_ops, log, played)
    _report_alone(job, communication.num_alone, log)
    activities = find_activities(graph, comm_ops, log)
    if at_once:
        activities = with_hand_overs(activities)
    activity_of_op = np.full(graph.num_ops, -1, dtype=np.int64)
    is_comm = np.flatnonzero(activities.is_comm)
    activity_of_op[activities.op[is_comm]] = is_comm
    # if communication may overlap, this order only determines the ids
    order = find_order(activities, communication.transfers, activity_of_op)
    position, unit = order.position, 1
    if not at_once:
        activities = in_turns(activities, order.src, order.dst)
    _report_latencies(activities, log)
    if not at_once:
        _report_side_by_side(activities, log)
    parts = parts_of_ranks(activities, communication.transfers, activity_of_op)
    if not at_once:
        activities, kept = in_microseconds(activities, log)
        position, unit = position[kept], _MICRO
    groups = {str(number): ranks for number, (_, ranks) in communication.groups.items()}
    return rank_traces(graph, activities, position, parts, communication.groups, unit), groups


def _report_alone(job: Job, num_alone: int, log: IssueLog) -> None:
    """Report communication that cannot be simulated, and renumbered ranks."""
    absent = job.world_size - len(job.traces)
    reason = (
        f"{absent} of {job.world_size} ranks have no trace" if absent > 0
        else "the other ranks have no counterpart"
    )  # fmt: skip
    log.add(
        "export.comm-alone", "warning", num_alone,
        f"communication operations lack their other members ({reason}): a simulator would wait "
        "for them forever, so each is written as a broadcast to itself, which takes its measured "
        "duration, wait time included, on any network",
        "give the traces of all ranks, recorded over the same steps",
    )  # fmt: skip
    renumbered = [rank for number, rank in enumerate(job.ranks) if number != rank]
    log.add(
        "export.ranks", "warning", len(renumbered),
        f"ranks are renumbered from 0, as simulators require; recorded ranks: {list(job.ranks)}",
    )  # fmt: skip


def _report_latencies(activities: Activities, log: IssueLog) -> None:
    """Report time between activities, which a simulator cannot represent."""
    ready = activities.end - activities.duration
    late = np.maximum(activities.start - ready, 0)
    on_device = ~activities.on_thread & ~activities.is_comm
    log.add(
        "export.latency-folded", "info", int(np.count_nonzero(late[on_device])),
        "device operations start later than their dependencies end, "
        f"{format_ns(int(late[on_device].sum()))} in total (launch latency, gaps between kernels "
        "of a stream, delays): this time is added to their durations",
    )  # fmt: skip
    log.add(
        "export.latency-left-out", "info", int(np.count_nonzero(late[activities.is_comm])),
        "communication operations start later than their dependencies end, "
        f"{format_ns(int(late[activities.is_comm].sum()))} in total: this time is dropped, as a "
        "simulator computes the duration of communication itself",
    )  # fmt: skip


def _report_side_by_side(activities: Activities, log: IssueLog) -> None:
    """Report nodes that overlapped on a rank, and will not in the simulator."""
    slots = {
        "threads": activities.on_thread & ~activities.is_comm,
        "streams": ~activities.on_thread & ~activities.is_comm,
        "communication": activities.is_comm,
    }
    for name, chosen in slots.items():
        side_by_side = _side_by_side(
            activities.trace[chosen], activities.end[chosen] - activities.duration[chosen],
            activities.end[chosen],
        )  # fmt: skip
        log.add(
            f"export.{name}-at-once", "info", int(np.count_nonzero(side_by_side)),
            f"nodes of {name} overlap others of their rank, for "
            f"{format_ns(int(side_by_side.sum()))} in total: ASTRA-sim runs one at a time",
        )  # fmt: skip


def _side_by_side(trace: Ints, start: Ints, end: Ints) -> Ints:
    """Compute how long each node overlaps nodes of its rank that started before it; ns."""
    order = np.lexsort((start, trace))
    # the ranks are placed one after the other on one time axis
    shift = trace[order] * (int(end.max(initial=0)) + 1)
    until = np.maximum.accumulate(np.concatenate([[0], (end[order] + shift)[:-1]]))[: order.size]
    beside: Ints = np.clip(until - shift - start[order], 0, end[order] - start[order])
    return beside
