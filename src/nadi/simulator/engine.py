"""Simulate a job on a system, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nadi.errors import InputError, PairError
from nadi.kernels import machine as M
from nadi.kernels.agenda import EVENTS
from nadi.kernels.machine import Machine
from nadi.kernels.simulation import run_machine
from nadi.schedule import Schedule
from nadi.schema import NODE_KINDS, SCHEDULE
from nadi.simulator.config import COLLECTIVES, System
from nadi.simulator.inputs import read_job, read_ranks
from nadi.simulator.lanes import in_lanes
from nadi.simulator.lower import Tables, machine_of, tables_of
from nadi.simulator.program import Program, program_of
from nadi.simulator.recordings import nodes_of_job
from nadi.trace import Job, Trace

__all__ = ["Simulation", "simulate"]

Ints = npt.NDArray[np.int64]
_RESOURCES = ("cpu", "compute", "communication", "")


@dataclass(frozen=True, eq=False)
class Simulation:
    """What a job does on a system.

    Attributes
    ----------
    program, system
        What was simulated.
    start, end
        int64 ns, shape (nodes,): when each node of the program was issued and completed.
    cause
        int64, shape (nodes,): the node whose completion let it be issued; -1 at the start.
    cycles
        int64 ns, shape (ranks,): when each rank had finished.
    like
        int64, shape (ranks,): which rank of the program each rank did the same as.
    num_events
        How many events were simulated.
    """

    program: Program
    system: System
    start: Ints
    end: Ints
    cause: Ints
    cycles: Ints
    like: Ints
    num_events: int

    def __repr__(self) -> str:
        return f"<Simulation ranks={self.cycles.size} makespan={self.makespan} ns>"

    @property
    def makespan(self) -> int:
        """When the last rank had finished, in ns."""
        return int(self.cycles.max(initial=0))

    @cached_property
    def compute(self) -> Ints:
        """Time that each rank's compute slot was busy, in ns; int64, shape (ranks,)."""
        chosen = (self.program.kind == NODE_KINDS.index("COMP")) & ~self.program.is_cpu
        busy = np.where(chosen, self.end - self.start, 0)
        return np.add.reduceat(busy, self.program.first[:-1])[self.like]

    @property
    def exposed(self) -> Ints:
        """What ASTRA-sim calls exposed communication: all time but that of computation, in ns."""
        return self.cycles - self.compute

    @cached_property
    def schedule(self) -> Schedule:
        """When each node ran; made when it is first asked for."""
        program = self.program
        cause = np.maximum(self.cause, 0)
        known = self.cause >= 0
        slot = np.full(program.num_nodes, 2)
        slot[program.kind == NODE_KINDS.index("COMP")] = 1
        slot[program.kind == NODE_KINDS.index("COMM_RECV")] = 3
        slot[program.is_cpu] = 0
        resource = np.array([*_RESOURCES, *program.lane_names], dtype=object)
        if program.lane is not None:
            slot = np.where(program.lane < 0, slot, len(_RESOURCES) + program.lane)
        sizes = np.diff(program.first)[self.like]
        rank = np.repeat(np.arange(self.like.size), sizes)
        within = np.arange(rank.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        node = program.first[self.like[rank]] + within
        table = SCHEDULE.build(
            rank.size,
            {
                "rank": rank,
                "node": program.row[node],
                "start": self.start[node],
                "end": self.end[node],
                "resource": resource[slot[node]].tolist(),
                "bound_by": np.where(known[node], "order", "").tolist(),
                "bound_rank": np.where(known[node], rank, -1),
                "bound_node": np.where(known[node], program.row[cause[node]], -1),
            },
        )
        return Schedule(table)


def simulate(job: Job | Sequence[Trace] | Path | str, system: System) -> Simulation:
    """Predict when each node of a job would run on a system.

    Parameters
    ----------
    job
        A trace per rank, in order of rank; a linked job; or where they are, as
        :func:`nadi.simulator.read_job` takes it.
    system
        The machine.

    Raises
    ------
    InputError, UsageError
        If the job does not fit the system, or cannot be simulated.
    PairError
        If it never comes to an end: with who waits for whom.
    """
    if isinstance(job, (str, Path)):
        job = read_job(job)
    traces = nodes_of_job(job, system)
    if not traces:
        raise InputError("job", "it has no traces", "give one for each rank")
    if len(traces) > 1 and all(trace is traces[0] for trace in traces):
        program = program_of(traces[:1])
        alike = stands_for_all(program, system) and len(traces) == system.network.num_ranks
        if not alike:
            program = program_of(traces)
    else:
        program = program_of(traces)
        if system.slots == "device":
            program = in_lanes(program)
        alike = program.num_ranks == system.network.num_ranks and program.is_alike
        alike = alike and stands_for_all(program, system)
        if alike:
            program = program_of(traces[:1])
    custom = {
        comm_type: program_of(read_ranks(prefix))
        for comm_type, prefix in system.collectives.custom.items()
    }
    tables = tables_of(program, system, stands_for_all=alike, custom=custom)
    return simulation_of(tables, run_tables(tables), len(traces))


def stands_for_all(program: Program, system: System) -> bool:
    """Tell whether one rank's times are those of all, if all have the same nodes.

    Nothing may contend, messages may not name a rank, and every rank has to have the same way
    to those it sends to: not so in trees, meshes, and rings across several dimensions.
    """
    if system.network.congestion or system.network.rendezvous or system.bus:
        return False
    if system.collectives.custom:
        return False
    if program.group.max(initial=-1) >= 0:
        return False
    kinds = [NODE_KINDS.index(name) for name in ("COMM_SEND", "COMM_RECV")]
    if np.isin(program.kind, kinds).any() or system.remote_memory.kind in ("pool", "per-node"):
        return False
    algorithms = {
        algorithm.lower() for name in COLLECTIVES for algorithm in getattr(system.collectives, name)
    }
    dimensions = system.network.dimensions
    return (
        not any("tree" in algorithm for algorithm in algorithms)
        and not any(dimension.topology == "mesh" for dimension in dimensions)
        and (len(dimensions) == 1 or not any(a.startswith("one") for a in algorithms))
    )


def simulation_of(tables: Tables, machine: Machine, num_ranks: int) -> Simulation:
    """Make the answer of arrays that have run to the end."""
    _check_finished(tables, machine)
    cycles = machine.ranks[:, M.R_FINISH].copy()
    like = np.arange(num_ranks)
    size = tables.program.num_nodes
    if tables.stands_for_all:
        cycles, like = np.repeat(cycles, num_ranks), np.zeros(num_ranks, dtype=np.int64)
    return Simulation(
        program=tables.program,
        system=tables.system,
        start=machine.nodes[:size, M.N_START].copy(),
        end=machine.nodes[:size, M.N_END].copy(),
        cause=machine.nodes[:size, M.N_CAUSE].copy(),
        cycles=cycles,
        like=like,
        num_events=int(machine.agenda.counters[EVENTS]),
    )


def run_tables(tables: Tables, *, meet: bool = True) -> Machine:
    """Run the engine with arrays large enough: how large, only trying tells."""
    num_ranks = tables.program.num_ranks
    chunks = int(tables.shapes[:, M.H_CHUNKS].max(initial=0))
    # chunks that a rank works on at once, in all dimensions together
    system = tables.system
    active = system.collectives.active_chunks * len(system.network.dimensions)
    room, window = num_ranks * max(min(chunks, active), 1) + 64, 4
    while True:
        machine = machine_of(tables, room, window, meet=meet)
        problem = run_machine(machine)
        if problem == M.TOO_SMALL:
            room *= 4
        elif problem == M.TOO_MANY:
            window *= 8
        elif problem == M.UNLIKE:
            _raise_unlike(tables, machine)
        else:
            return machine


def _raise_unlike(tables: Tables, machine: Machine) -> None:
    nodes = machine.nodes
    node = int(machine.agenda.counters[M.CULPRIT])
    group = machine.groups[nodes[node, M.N_PEER]]
    meeting = group[M.U_MEETINGS] + nodes[node, M.N_NUMBER] % group[M.U_WINDOW]
    other = int(machine.meetings[meeting, M.T_NODE])
    program = tables.program
    raise PairError(
        program.describe(node),
        f"it meets {program.describe(other)} as collective {int(nodes[node, M.N_NUMBER])} of "
        "their group, and they differ in type or size",
        "every member of a group does the same collectives in the same order",
    )


def _check_finished(tables: Tables, machine: Machine) -> None:
    """Raise an error that says who waits for whom, if any rank has not finished."""
    ranks = machine.ranks
    stuck = np.flatnonzero((ranks[:, M.R_FINISH] < 0) | (ranks[:, M.R_LEFT] > 0))
    if not stuck.size:
        return
    program = tables.program
    nodes = machine.nodes[: program.num_nodes]
    waiting = np.flatnonzero((nodes[:, M.N_START] >= 0) & (nodes[:, M.N_END] < 0))
    lines = [_why(tables, machine, int(node)) for node in waiting[:_TOLD].tolist()]
    if not lines:
        first = int(np.flatnonzero(nodes[:, M.N_END] < 0)[0])
        lines = [f"{program.describe(first)} is never issued"]
    more = waiting.size - len(lines)
    if more > 0:
        lines.append(f"and {more} more")
    raise PairError(
        f"{stuck.size} of {program.num_ranks} ranks never finish", ", ".join(lines),
        "see that every send has its receive, and every collective all of its group",
    )  # fmt: skip


_TOLD = 4


def _why(tables: Tables, machine: Machine, node: int) -> str:
    """Say what a node waits for."""
    nodes, program = machine.nodes, tables.program
    kind, peer = int(nodes[node, M.N_KIND]), int(nodes[node, M.N_PEER])
    what = program.describe(node)
    if kind in (M.SEND, M.RECEIVE):
        verb = "to receive from" if kind == M.RECEIVE else "to send to"
        size, tag = int(nodes[node, M.N_SIZE]), max(int(program.tag[node]), 0)
        return f"{what} waits {verb} rank {peer} {size} bytes with tag {tag}"
    if kind != M.COLLECTIVE:
        return f"{what} waits"
    number = int(nodes[node, M.N_NUMBER])
    begun = (nodes[:, M.N_KIND] == M.COLLECTIVE) & (nodes[:, M.N_START] >= 0)
    begun &= (nodes[:, M.N_PEER] == peer) & (nodes[:, M.N_NUMBER] == number)
    missing = np.setdiff1d(tables.group_members[peer], nodes[begun, M.N_RANK])
    name = "all ranks" if program.group[node] < 0 else program.group_names[program.group[node]]
    if not missing.size:
        return f"{what} waits within its collective of group {name}"
    whom = ", ".join(map(str, missing[:_TOLD].tolist()))
    more = f" and {missing.size - _TOLD} more" if missing.size > _TOLD else ""
    return f"{what} waits in group {name} for rank {whom}{more}"
