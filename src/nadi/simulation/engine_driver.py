"""Simulate a job on a system."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nadi.errors import InputError, PairError, UsageError, checked
from nadi.forks import refuse_in_fork
from nadi.simulation.engine.codes import NodeKind, Problem, QueuePolicy
from nadi.simulation.engine.event_loop import run_machine
from nadi.simulation.engine.event_queue import COUNTER
from nadi.simulation.engine.machine_state import (
    GROUP,
    MEETING,
    NODE,
    PHASE,
    RANK,
    RECIPE,
    WORLD,
    ApartMachine,
    HostMachine,
    Machine,
    MeetingMachine,
    SharingMachine,
)
from nadi.simulation.engine.ring_direct_halving import can_meet
from nadi.simulation.lowering.engine_arrays import machine_of, room_of
from nadi.simulation.lowering.rank_classes import representatives_of
from nadi.simulation.lowering.task_tables import Tables, tables_of, with_other_memory
from nadi.simulation.rules import rules_of
from nadi.simulation.simulation import Simulation, trail_of
from nadi.simulation.work.ordered_lanes import in_lanes, policy_of
from nadi.simulation.work.program import Program, program_of
from nadi.simulation.work.recorded_work import (
    Representatives,
    nodes_of_job,
    paths_slow_messages,
    ranks_are_apart,
)
from nadi.systems.collective_times import nothing_contends
from nadi.systems.system import System
from nadi.trace.schema import COMM_TYPES
from nadi.trace.trace import Job, Trace
from nadi.units import format_bytes, format_count

if TYPE_CHECKING:
    from nadi.simulation.workload.simulator_nodes import PlayedRank


@checked
def simulate_job(
    job: Job | Sequence[Trace],
    system: System,
    custom: Mapping[str, Sequence[Trace]] = MappingProxyType({}),
) -> Simulation:
    """Predict when each node of a job runs on a system.

    Parameters
    ----------
    job
        A trace per rank, in order of rank, or a linked job.
    system
        The system to simulate.
    custom
        The traces of each rank by ``system.collectives.custom_traces``.

    Raises
    ------
    InputError, UsageError
        If the job does not fit the system, or cannot be simulated.
    PairError
        If the simulation deadlocks; the message names the waiting ranks.
    """
    return simulator_of(job, system, custom)(system)


def simulator_of(
    job: Job | Sequence[Trace],
    system: System,
    custom: Mapping[str, Sequence[Trace]] = MappingProxyType({}),
) -> Callable[[System], Simulation]:
    """Return a function that simulates a job on a system, or on others of its structure.

    These differ from it in bandwidths and latencies alone. What does not depend on them is worked
    out once. ``custom`` is as for :func:`simulate_job`.

    - Raises InputError, UsageError as :func:`simulate_job`, which says what the function raises.
    """
    found = _prepared(job, system)
    programs = {name: program_of(custom[name]) for name in system.collectives.custom_traces}

    def run(program: Program, on: System) -> Simulation:
        def make_tables() -> Tables:
            return tables_of(program, on, representatives=found.stand_ins, custom=programs)

        tables = make_tables()
        _refuse_centuries(tables)
        machine = run_tables(tables, anew=make_tables)
        return simulation_of(tables, machine, len(found.traces), found.traces, found.recorded)

    if isinstance(job, Job) and found.recorded and found.stand_ins is None:
        # of recordings alone, so that other jobs do not load what reads them
        from nadi.simulation.work.contended_program import with_contention

        return lambda on: with_contention(
            job, found.program, found.recorded, lambda program: run(program, on)
        )
    return lambda on: run(found.program, on)


def simulate_with_memories(
    job: Job | Sequence[Trace],
    systems: Sequence[System],
    custom: Mapping[str, Sequence[Trace]] = MappingProxyType({}),
) -> Iterator[Simulation]:
    """Simulate a job on systems that differ in the figures of their memory tiers alone.

    What does not depend on these is worked out once. Tiers have the same names, in the same order,
    and as many ranks each; ``custom`` is as for :func:`simulate_job`.

    - Raises InputError, UsageError, PairError as :func:`simulate_job`.
    """
    found = _prepared(job, systems[0])
    programs = {name: program_of(custom[name]) for name in systems[0].collectives.custom_traces}
    first = tables_of(found.program, systems[0], representatives=found.stand_ins, custom=programs)
    for system in systems:
        tables = with_other_memory(first, system)
        _refuse_centuries(tables)
        machine = run_tables(tables)
        yield simulation_of(tables, machine, len(found.traces), found.traces, found.recorded)


class _Prepared(NamedTuple):
    """A job as a program, and who stands for whom in it."""

    traces: Sequence[Trace]
    recorded: tuple[PlayedRank, ...]
    program: Program
    stand_ins: Representatives | None


def _prepared(job: Job | Sequence[Trace], system: System) -> _Prepared:
    """Return what is simulated of a job on a system."""
    refuse_in_fork()
    _check_network(system)
    if isinstance(job, Job) and job.rank_groups is not None:
        return _Prepared(job.traces, (), *_program_of_roles(job, system))
    traces, recorded = nodes_of_job(job, rules_of(system).played, at_once=system.slots == "device")
    if not traces:
        raise InputError("job", "it has no traces", "give one trace per rank")
    return _Prepared(traces, recorded, *_program_of_traces(traces, system))


def _check_network(system: System) -> None:
    """Raise UsageError if the system has physical links that would not be used."""
    shares = rules_of(system).links_are_shared and not system.network.congestion
    if system.network.is_physical and not shares:
        what = "network.congestion" if system.network.congestion else "ASTRA-sim's rules"
        raise UsageError(
            "network", f"{what} knows the links of dimensions only, but the system states others",
            "leave out network.fabrics and network.links, or simulate by the default rules "
            "without congestion",
        )  # fmt: skip


def _program_of_roles(job: Job, system: System) -> tuple[Program, Representatives | None]:
    """Return the program of a job whose ranks share traces, and whom its ranks stand for."""
    found = representatives_of(job, system)
    if found is None:
        _refuse_too_many(job, system)
    ranks = range(len(job.traces)) if found is None else found.rank.tolist()
    return program_of([job.own_trace(rank) for rank in ranks]), found


def _refuse_too_many(job: Job, system: System) -> None:
    """Raise UsageError if all ranks of a job would not fit into the memory for it."""
    height = {id(trace): trace.nodes.height for trace in dict.fromkeys(job.traces)}
    nodes = sum(height[id(trace)] for trace in job.traces)
    needed = _BYTES_OF_NODE * nodes
    if needed <= _MOST_BYTES:
        return
    raise UsageError(
        f"the job of {format_count(len(job.traces))} ranks",
        "all of them have to be simulated, as their groups stand differently on "
        f"{system.name or 'the system'} or share links with others: "
        f"{format_count(nodes)} operations, which would need {format_bytes(needed)} of memory, "
        f"where {format_bytes(_MOST_BYTES)} are the most of a job whose ranks share traces",
        "choose parallel axes that give each group as many ranks in every node (of "
        f"{system.network.dimensions[0].size}) and let pipeline stages begin with a node, or take "
        "fewer ranks, or write the traces of all ranks (-o FOLDER) and simulate those",
    )


def _program_of_traces(
    traces: Sequence[Trace], system: System
) -> tuple[Program, Representatives | None]:
    """Return the program of all ranks, or that of one that stands for all."""
    of_all = Representatives(np.zeros(1, dtype=np.int64), np.zeros(len(traces), dtype=np.int64))
    fits = len(traces) == system.network.num_ranks
    # a Trace equals only itself, so this counts the same object
    if len(traces) > 1 and traces.count(traces[0]) == len(traces):
        program = program_of(traces[:1])
        if fits and stands_for_all(program, system):
            return program, of_all
        return program_of(traces), None
    program = program_of(traces)
    if system.slots == "device":
        program = in_lanes(program, system)
    if program.num_ranks > 1 and fits and program.is_alike and stands_for_all(program, system):
        return program_of(traces[:1]), of_all
    return program, None


def stands_for_all(program: Program, system: System) -> bool:
    """Return whether one rank represents all, if all have the same nodes.

    Nothing may contend, messages may not name a rank, and every rank has to have the same way
    to those it sends to: not so in trees, meshes, and rings across several dimensions.
    """
    if not nothing_contends(system) or system.network.is_physical or paths_slow_messages(system):
        return False
    if system.collectives.custom_traces:
        return False
    if policy_of(system) == QueuePolicy.EXPLICIT:
        of_rank = program.priority.reshape(program.num_ranks, -1)
        if (of_rank != of_rank[0]).any():
            return False
    if program.group.max(initial=-1) >= 0:
        return False
    if not (program.kinds.isdisjoint(("MEM_LOAD", "MEM_STORE")) or ranks_are_apart(system)):
        return False
    messages = not program.kinds.isdisjoint(("COMM_SEND", "COMM_RECV"))
    if messages or system.has_memory_pool:
        return False
    dimensions = system.network.dimensions
    rules = rules_of(system)
    names = rules.looked_at(program.collective_types)
    algorithms = {name.lower() for kind in names for name in system.collectives.algorithms(kind)}
    if any("tree" in algorithm for algorithm in algorithms):
        return False
    if any(dimension.topology == "mesh" for dimension in dimensions):
        return False
    if len(dimensions) > 1 and any(algorithm.startswith("one") for algorithm in algorithms):
        return False
    return rules.members_are_alike(system, names)


def simulation_of(
    tables: Tables,
    machine: Machine,
    num_ranks: int,
    traces: Sequence[Trace] = (),
    recorded: tuple[PlayedRank, ...] = (),
) -> Simulation:
    """Create the result from arrays of a finished run.

    ``traces`` are those of all ranks, if they are others than the program's; ``recorded`` is what
    they were made of.
    """
    _check_finished(tables, machine)
    cycles = machine.ranks[:, RANK.finish].copy()
    like = np.arange(num_ranks)
    size = tables.program.num_nodes
    machine.nodes.flags.writeable = False  # whose columns are results
    if tables.representatives.are_fewer:
        like = tables.representatives.of
        cycles = cycles[like]
    return Simulation(
        traces=tuple(traces or (tables.program.traces[rank] for rank in like.tolist())),
        program=tables.program,
        system=tables.system,
        start=machine.nodes[:size, NODE.start],
        end=machine.nodes[:size, NODE.end],
        cause=machine.nodes[:size, NODE.cause],
        cycles=cycles,
        like=like,
        num_events=int(machine.agenda.counters[COUNTER.events]),
        trail=trail_of(tables, machine),
        recorded=recorded,
        copies=tables.representatives.copies,
    )


def run_tables(
    tables: Tables,
    *,
    meet: bool = True,
    flows: bool = True,
    anew: Callable[[], Tables] | None = None,
) -> Machine:
    """Run the engine, with larger arrays each time they overflow.

    Who can make the tables ``anew`` lets those at hand be used up, which saves a copy.
    """
    room, window, is_whole = room_of(tables, meet=meet), 4, False
    nodes = tables.nodes if anew else None
    while True:
        machine = machine_of(tables, room, window, meet=meet, flows=flows, nodes=nodes)
        problem = run_machine(machine if is_whole else _with_what_is_needed(machine))
        if problem == Problem.UNLIKE:
            _raise_unlike(tables, machine)
        assert problem != Problem.NO_ROUTE, "a message takes a way that was not foreseen"
        if problem == Problem.TOO_SMALL:
            room *= 4
        elif problem == Problem.TOO_MANY:
            window *= 8
        elif problem == Problem.LEFT_OUT:
            is_whole = True
        else:
            return machine
        nodes = anew().nodes if anew else None


def _with_what_is_needed(machine: Machine) -> Machine:
    """Return the machine as one whose engine takes less time to be compiled, if that is enough."""
    kinds = set(np.unique(machine.nodes[:, NODE.kind]).tolist())
    world = machine.world
    alone = {NodeKind.DELAY, NodeKind.INSTANT}
    if not world[WORLD.flows]:
        alone.add(NodeKind.TRANSFER)
    if kinds <= alone:
        return HostMachine(*machine)
    shares = world[[WORLD.aware, WORLD.rendezvous, WORLD.bus]].any()
    flows = bool(world[WORLD.flows])
    if shares or world[WORLD.policy] != QueuePolicy.FIFO or NodeKind.ACCESS in kinds:
        return machine if flows else ApartMachine(*machine)
    if NodeKind.COLLECTIVE in kinds and not (world[WORLD.meet] and _all_meet(machine)):
        return machine if flows else ApartMachine(*machine)
    return SharingMachine(*machine) if flows else MeetingMachine(*machine)


def _all_meet(machine: Machine) -> bool:
    """Return whether the times of all phases can be worked out at once."""
    does_meet: Callable[..., bool] = can_meet.__wrapped__  # type: ignore[attr-defined]
    for recipe, phases in zip(machine.recipes, machine.phases, strict=True):
        for phase in phases[: recipe[RECIPE.phases]]:
            about = (PHASE.algorithm, PHASE.comm, PHASE.window, PHASE.size)
            if not does_meet(*(int(phase[column]) for column in about)):
                return False
    return True


def _raise_unlike(tables: Tables, machine: Machine) -> None:
    nodes = machine.nodes
    node = int(machine.agenda.counters[COUNTER.culprit])
    group = machine.groups[nodes[node, NODE.peer]]
    meeting = group[GROUP.meetings] + nodes[node, NODE.number] % group[GROUP.window]
    other = int(machine.meetings[meeting, MEETING.node])
    program = tables.program
    raise PairError(
        program.describe(node),
        f"its {_collective(program, node)} is matched with {_collective(program, other)} of "
        f"{program.describe(other)} as collective {int(nodes[node, NODE.number])} of their group, "
        "but they differ in type or size",
        "all ranks of a group must run the same collectives in the same order",
    )


def _collective(program: Program, node: int) -> str:
    """Describe a collective: its type, bytes and root."""
    ends = int(program.src[node]), int(program.dst[node])
    root = next((f", root {end}" for end in ends if end >= 0), "")
    size = format_count(max(int(program.comm_bytes[node]), 0))
    return f"{COMM_TYPES[program.comm_type[node]]} of {size} bytes{root}"


def _refuse_centuries(tables: Tables) -> None:
    """Raise UsageError if the total time of a rank might overflow an int64."""
    program, nodes = tables.program, tables.nodes[: tables.program.num_nodes]
    slowest = min(dimension.bandwidth for dimension in tables.system.network.dimensions)
    most = float(nodes[:, NODE.time].max(initial=0)) + program.comm_bytes.max(initial=0) / slowest
    if most * program.num_nodes < _LONGEST:
        return
    is_sent = np.isin(nodes[:, NODE.kind], (NodeKind.COLLECTIVE, NodeKind.SEND))
    time = np.where(is_sent, program.comm_bytes / slowest, nodes[:, NODE.time])
    if np.bincount(program.rank, weights=time).max() > _LONGEST:
        raise UsageError(
            program.describe(int(time.argmax())),
            "the total time of its rank exceeds 36 years",
            "check durations, sizes and bandwidths",
        )


def _check_finished(tables: Tables, machine: Machine) -> None:
    """Raise an error that states what ranks wait for if any rank has not finished."""
    ranks = machine.ranks
    stuck = np.flatnonzero((ranks[:, RANK.finish] < 0) | (ranks[:, RANK.left] > 0))
    if not stuck.size:
        return
    program = tables.program
    nodes = machine.nodes[: program.num_nodes]
    waiting = np.flatnonzero((nodes[:, NODE.start] >= 0) & (nodes[:, NODE.end] < 0))
    lines = [_why(tables, machine, int(node)) for node in waiting[:_TOLD].tolist()]
    if not lines:
        first = int(np.flatnonzero(nodes[:, NODE.end] < 0)[0])
        lines = [f"{program.describe(first)} is never issued"]
    more = waiting.size - len(lines)
    if more > 0:
        lines.append(f"and {more} more")
    raise PairError(
        f"{stuck.size} of {program.num_ranks} ranks never finish", ", ".join(lines),
        "check that every send has a receive and that all ranks of a group enter each collective",
    )  # fmt: skip


_TOLD = 4
_BYTES_OF_NODE = 800  # of memory while it is simulated, which takes up to 6 us
_MOST_BYTES = 1792 << 20  # of ranks that share traces: with the program 2 GB, and about 15 s
_LONGEST = 2.0**60  # ns per rank, with room for contention


def _why(tables: Tables, machine: Machine, node: int) -> str:
    """Describe what a node waits for."""
    nodes, program = machine.nodes, tables.program
    kind, peer = int(nodes[node, NODE.kind]), int(nodes[node, NODE.peer])
    what = program.describe(node)
    if kind in (NodeKind.SEND, NodeKind.RECEIVE):
        verb = "to receive from" if kind == NodeKind.RECEIVE else "to send to"
        size, tag = int(nodes[node, NODE.size]), max(int(program.tag[node]), 0)
        told = f"{what} waits {verb} rank {peer} {size} bytes with tag {tag}"
        return told + _sent_instead(tables, machine, node) if "receive" in verb else told
    if kind != NodeKind.COLLECTIVE:
        return f"{what} waits"
    number = int(nodes[node, NODE.number])
    begun = (nodes[:, NODE.kind] == NodeKind.COLLECTIVE) & (nodes[:, NODE.start] >= 0)
    begun &= (nodes[:, NODE.peer] == peer) & (nodes[:, NODE.number] == number)
    members = tables.group_members[peer]
    missing = members[~np.isin(tables.representatives.of[members], nodes[begun, NODE.rank])]
    name = "all ranks" if program.group[node] < 0 else program.group_names[program.group[node]]
    what = f"{what}, {_collective(program, node)}, waits"
    if not missing.size:
        return f"{what} inside its collective in group {name}"
    whom = ", ".join(map(str, missing[:_TOLD].tolist()))
    more = f" and {missing.size - _TOLD} more" if missing.size > _TOLD else ""
    return f"{what} in group {name} for rank {whom}{more}"


def _sent_instead(tables: Tables, machine: Machine, node: int) -> str:
    """Name a send to the rank of a receive that it waits for, of another size or tag."""
    nodes, program = machine.nodes[: tables.program.num_nodes], tables.program
    home, of = tables.representatives.rank, tables.representatives.of
    own, peer = home[nodes[node, NODE.rank]], int(nodes[node, NODE.peer])
    sends = nodes[:, NODE.kind] == NodeKind.SEND
    received = nodes[nodes[:, NODE.kind] == NodeKind.RECEIVE, NODE.key]
    sends &= (nodes[:, NODE.rank] == of[peer]) & ~np.isin(nodes[:, NODE.key], received)
    for other in np.flatnonzero(sends & (nodes[:, NODE.peer] == own))[:1].tolist():
        size, tag = int(nodes[other, NODE.size]), max(int(program.tag[other]), 0)
        return f", where {program.describe(other)} sends {size} bytes with tag {tag}"
    return ""
