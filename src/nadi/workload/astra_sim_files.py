"""A job for ASTRA-sim: a Chakra trace per rank, and which ranks are in which group.

What of a recording a simulator can be told, and what it cannot, stands in
``docs/simulators.md``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from nadi.errors import InputError
from nadi.formats import files as container
from nadi.formats.addresses import check_target, locate
from nadi.formats.trace_files import write
from nadi.graph.build.job_graph import build_graph
from nadi.model.arrays import Ints
from nadi.model.issues import IssueLog
from nadi.model.trace import Job
from nadi.workload.activities import (
    Activities,
    find_activities,
    in_microseconds,
    in_turns,
    with_hand_overs,
)  # fmt: skip
from nadi.workload.communication_order import find_order
from nadi.workload.simulator_communication import communication_ops, find_communication
from nadi.workload.simulator_nodes import PlayedRank, parts_of_ranks, rank_traces

__all__ = ["COMM_GROUPS", "TRACES", "SimulatorFiles", "played_traces", "write_for_astra_sim"]

COMM_GROUPS = "comm_group.json"
TRACES = "trace"  # ASTRA-sim adds the rank: trace.0.et
_MICRO = 1000  # ns


@dataclass(frozen=True)
class SimulatorFiles:
    """What was written for a simulator.

    Attributes
    ----------
    traces
        The file of each rank, in order of rank.
    comm_groups
        The file that says which ranks are in which group.
    nodes
        Number of nodes of each trace.
    num_groups
        Number of groups.
    issues
        ``schema.ISSUES``: what was changed, folded and left out.
    """

    traces: tuple[Path, ...]
    comm_groups: Path
    nodes: tuple[int, ...]
    num_groups: int
    issues: pl.DataFrame


def write_for_astra_sim(job: Job, folder: Path | str, *, overwrite: bool = False) -> SimulatorFiles:
    """Write ``trace.<rank>.et`` for each rank, and ``comm_group.json``, for ASTRA-sim.

    Parameters
    ----------
    job
        Linked, with its ranks' clocks aligned. Ranks are numbered from 0 in their order.
    folder
        A folder or address.
    overwrite
        Whether files that are there already are replaced.

    Raises
    ------
    InputError
        If a file cannot be written, or exists already.
    NadiError
        If the collectives of the ranks wait for each other in a circle.
    """
    place = locate(folder)
    if place.is_file():
        raise InputError(str(place), "is a file: ranks are written into a folder", "name another")
    paths = [place / f"{TRACES}.{number}.et" for number in range(len(job.traces))]
    for path in (*paths, place / COMM_GROUPS):
        check_target(path, (), overwrite=overwrite)
    log = IssueLog()
    played, groups = played_traces(job, log)
    sizes = []
    for trace in (rank.trace for rank in played):
        sizes.append(trace.nodes.height)
        write(trace, paths[trace.rank])
    container.write_pieces(place / COMM_GROUPS, [msgspec.json.encode(groups)])
    return SimulatorFiles(tuple(paths), place / COMM_GROUPS, tuple(sizes), len(groups), log.table())


def played_traces(
    job: Job, log: IssueLog, *, at_once: bool = False, played: Collection[str] = ()
) -> tuple[Iterator[PlayedRank], dict[str, tuple[int, ...]]]:
    """Turn a recorded job into traces whose nodes a simulator can play; O(edges log edges).

    Parameters
    ----------
    job
        Linked, with its ranks' clocks aligned. Ranks are numbered from 0 in their order.
    log
        Takes note of what is changed, folded and left out.
    at_once
        Whether communication of a rank may go on beside other, and durations stay in ns; else
        all ranks begin it in one order, and durations are in us, as ASTRA-sim wants it.
    played
        As :func:`nadi.workload.simulator_communication.find_communication` takes it.

    Returns
    -------
    Iterator
        The trace of each rank, with what its nodes are of the recording.
    dict
        The members of each group by name.

    Raises
    ------
    NadiError
        If the collectives of the ranks wait for each other in a circle.
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
    # where communication goes on at once, that order is one of ids alone
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
    """Note which communication cannot be played, and which ranks are not here."""
    absent = job.world_size - len(job.traces)
    reason = (
        f"{absent} of {job.world_size} ranks are not here" if absent > 0
        else "the other ranks have no counterpart"
    )  # fmt: skip
    log.add(
        "export.comm-alone", "warning", num_alone,
        f"communication operations whose other members are not here ({reason}): a simulator "
        "would wait for them for ever, so each is written as a broadcast to itself, which "
        "takes its measured time, waiting included, on any network",
        "give the traces of all ranks, over the same steps",
    )  # fmt: skip
    renumbered = [rank for number, rank in enumerate(job.ranks) if number != rank]
    log.add(
        "export.ranks", "warning", len(renumbered),
        f"ranks are numbered anew from 0, as simulators want it: {list(job.ranks)}",
    )  # fmt: skip


def _report_latencies(activities: Activities, log: IssueLog) -> None:
    """Note time between activities, for which a simulator has no place of its own."""
    ready = activities.end - activities.duration
    late = np.maximum(activities.start - ready, 0)
    on_device = ~activities.on_thread & ~activities.is_comm
    log.add(
        "export.latency-folded", "info", int(np.count_nonzero(late[on_device])),
        f"device operations began later than what they waited for had ended, "
        f"{late[on_device].sum() / 1e6:.1f} ms in all (launch latency, turn-around of streams, "
        "delays): it is part of their durations",
    )  # fmt: skip
    log.add(
        "export.latency-left-out", "info", int(np.count_nonzero(late[activities.is_comm])),
        f"communication operations began later than what they waited for had ended, "
        f"{late[activities.is_comm].sum() / 1e6:.1f} ms in all: left out, as a simulator has its "
        "own time for them",
    )  # fmt: skip


def _report_side_by_side(activities: Activities, log: IssueLog) -> None:
    """Note what ran side by side on a rank, and will not in the simulator."""
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
            f"nodes of {name} began while another of their rank ran, "
            f"{side_by_side.sum() / 1e6:.1f} ms of them in all: ASTRA-sim plays one at a time",
        )  # fmt: skip


def _side_by_side(trace: Ints, start: Ints, end: Ints) -> Ints:
    """Give how long each node runs while one of the same rank that began before runs; ns."""
    order = np.lexsort((start, trace))
    # ranks come one after the other on one line
    shift = trace[order] * (int(end.max(initial=0)) + 1)
    until = np.maximum.accumulate(np.concatenate([[0], (end[order] + shift)[:-1]]))[: order.size]
    beside: Ints = np.clip(until - shift - start[order], 0, end[order] - start[order])
    return beside
