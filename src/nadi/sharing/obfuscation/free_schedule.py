"""When a job's operations run if communication takes no time: the order that structure keeps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.simulation.accounts.collective_accounts import meetings_of, messages_of_nodes
from nadi.simulation.engine_driver import simulate_job
from nadi.simulation.simulation import Simulation
from nadi.systems.system import Collectives, Dimension, Network, System
from nadi.trace.arrays import Bools, Ints
from nadi.trace.schema import NODE_KINDS
from nadi.trace.trace import Job, Trace

_FASTEST = 1e9  # bytes per ns
_HOST, _DEVICE = 0, 1  # lanes of work that states neither thread nor stream
_COMPUTES = NODE_KINDS.index("COMP")
_COLLECTIVE = NODE_KINDS.index("COMM_COLL")


class RankWork(NamedTuple):
    """The nodes of a rank in order of id, when communication takes no time."""

    trace: Trace  # of the rank, or that it shares
    row: Ints  # int64, shape (nodes,): their rows in it
    # computes, collective: bool, shape (nodes,): which compute, and which are collectives; others
    # are messages
    computes: Bools
    collective: Bools
    lane: Ints  # int64, shape (nodes,): what they run on, one after the other, counted from 0
    # start, end: int64 ns, shape (nodes,): of communication, ``end`` is when all of its members are
    # there
    start: Ints
    end: Ints
    # int64, shape (nodes,): the same number for all members of a communication; -1 for others
    meeting: Ints
    # src, dst: int64, shape (dependencies,): positions of nodes, with the order of lanes
    src: Ints
    dst: Ints


def free_schedule(job: Job) -> Simulation:
    """Simulate a job on a system whose communication takes no time.

    - Raises NadiError if it cannot be simulated.
    """
    collectives = Collectives(endpoint_delay=0, group_endpoint_delay=0)
    dimension = Dimension("switch", len(job.traces), _FASTEST)
    return simulate_job(job, System(Network((dimension,)), collectives=collectives))


def works_of(job: Job, done: Simulation) -> list[RankWork]:
    """Return the work of each rank; ranks that share a trace and are alike share one, too.

    O(nodes log nodes).
    """
    program = done.program
    meeting = np.full(program.num_nodes, -1, dtype=np.int64)
    node, number = meetings_of(done)
    messages = messages_of_nodes(done)
    meeting[node] = number
    first = int(number.max(initial=-1)) + 1
    meeting[messages.send] = first + np.arange(messages.send.size)
    meeting[messages.receive] = first + np.arange(messages.send.size)
    there = np.zeros(first, dtype=np.int64)
    np.maximum.at(there, number, done.end[node])
    end = done.end.copy()
    end[node] = there[number]
    found: dict[tuple[int, int], RankWork] = {}
    for rank, like in enumerate(done.like.tolist()):
        trace = job.traces[rank]
        if (id(trace), like) not in found:
            found[id(trace), like] = _work(trace, done, like, meeting, end)
    return [found[id(job.traces[rank]), like] for rank, like in enumerate(done.like.tolist())]


def _work(trace: Trace, done: Simulation, like: int, meeting: Ints, end: Ints) -> RankWork:
    program = done.program
    first, last = int(program.first[like]), int(program.first[like + 1])
    own = slice(first, last)
    ends = program.first_child[first : last + 1]
    kind = program.kind[own]
    lane = np.full(last - first, -1, dtype=np.int64)
    if program.lane is not None:
        lane = program.lane[own].copy()
    without = lane < 0
    lane[~without] += _DEVICE + 1
    lane[without] = np.where(program.is_cpu[own][without], _HOST, _DEVICE)
    return RankWork(
        trace=trace,
        row=program.row[own],
        computes=kind == _COMPUTES,
        collective=kind == _COLLECTIVE,
        lane=np.unique(lane, return_inverse=True)[1],
        start=done.start[own],
        end=end[own],
        meeting=meeting[own],
        src=np.repeat(np.arange(last - first), np.diff(ends)),
        dst=program.children[ends[0] : ends[-1]] - first,
    )
