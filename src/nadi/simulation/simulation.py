"""The result of a simulation: when each node runs, and the accounts computed from it.

Between what times the answer of a folded job is that of the whole job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import polars as pl

from nadi.simulation.collectives.phases import Recipe
from nadi.simulation.engine.machine_state import NODE, PS, WORLD, Machine
from nadi.simulation.flows.flow_state import COUNT, EDGE
from nadi.simulation.lowering.task_tables import Tables
from nadi.simulation.work.program import Program
from nadi.simulation.work.recorded_work import STORE, PlacedJob, engines_of, tiers_of_nodes
from nadi.systems.prices.priced_traces import PricedWork
from nadi.systems.system import System
from nadi.trace.arrays import Ints
from nadi.trace.issues import IssueLog, summed_issues
from nadi.trace.notebook_html import notebook_html
from nadi.trace.schema import NODE_KINDS, SCHEDULE
from nadi.trace.trace import Schedule, Trace
from nadi.units import format_count, format_ns

if TYPE_CHECKING:
    from nadi.results.charts.chart_files import Figure
    from nadi.simulation.workload.simulator_nodes import PlayedRank


class TimeBound(msgspec.Struct, frozen=True):
    """An interval of times, in ns, both ends included.

    Attributes
    ----------
    low_ns, high_ns
        With the least and the largest times of alike ranks, the latter with ``contended_ns``.
    contended_ns
        An allowance for other orders of messages: seven tenths of the time for which communications
        of a rank overlap each other, as one can wait for others if times change their order.
    """

    low_ns: int
    high_ns: int
    contended_ns: int = 0

    @property
    def is_exact(self) -> bool:
        """Whether both ends are one."""
        return self.low_ns == self.high_ns


_RESOURCES = ("cpu", "compute", "communication", "")  # by slot


@dataclass(frozen=True, eq=False)
class Simulation:
    """The simulated run of a job on a system.

    Attributes
    ----------
    traces
        Of each rank.
    program, system
        The simulated program; if all ranks are alike, that of one representative rank.
    start, end
        int64 ns, shape (nodes,): when each node of the program was issued and completed.
    cause
        int64, shape (nodes,): the node whose completion let it be issued; -1 at the start.
    cycles
        int64 ns, shape (ranks,): when each rank finishes.
    like
        int64, shape (ranks,): the rank of the program that represents each rank.
    num_events
        Number of simulated events.
    trail
        What the engine recorded about each node besides its times.
    recorded
        For each rank of a recording, the operations that its nodes come from; else empty.
    copies
        For each process group of the program by name, the groups of all ranks that do the same at
        the same time, where ranks share traces by role: int64, shape (groups, members).
    priced
        What was priced, as the job stated no time for it; None for nothing.
    jobs
        Of several jobs on one machine, where each ran; empty of one.
    bound
        Of a folded job, between what times the makespan of the whole job is; None of others.
    """

    traces: tuple[Trace, ...]
    program: Program
    system: System
    start: Ints
    end: Ints
    cause: Ints
    cycles: Ints
    like: Ints
    num_events: int
    trail: Trail
    recorded: tuple[PlayedRank, ...] = ()
    copies: Mapping[str, Ints] = field(default_factory=dict)
    priced: PricedWork | None = None
    jobs: tuple[PlacedJob, ...] = ()
    bound: TimeBound | None = None

    def __repr__(self) -> str:
        return f"<Simulation ranks={self.cycles.size} makespan={self.makespan} ns>"

    def _repr_html_(self) -> str:
        facts = {
            "system": self.system.name or "as given",
            "ranks": format_count(self.cycles.size),
            "time": format_ns(self.makespan),
        }
        bars = [
            (f"rank {rank}", time, format_ns(time))
            for rank, time in enumerate(self.cycles.tolist())
        ]
        return notebook_html("simulation: when each rank finishes", facts, bars)

    def plot(self) -> Figure:
        """Draw when each rank finishes, and how long operations of each kind take together.

        What ranks spend their time on is drawn by ``results_of(simulation).plot()``.
        """
        from nadi.results.charts.chart_files import Figure  # only where charts are drawn
        from nadi.results.charts.charts import time_bars

        on = self.system.name or "the system"
        ranks = [f"rank {rank}" for rank in range(self.cycles.size)]
        finish = [[time] for time in self.cycles.tolist()]
        node = self.nodes_of_ranks()[1]
        sums = np.zeros(len(NODE_KINDS))
        np.add.at(sums, self.program.kind[node], self.end[node] - self.start[node])
        used = np.flatnonzero(sums)
        kinds = [NODE_KINDS[kind] for kind in used.tolist()]
        return Figure([
            time_bars(f"{format_ns(self.makespan)} on {on}: when each rank finishes", ranks, [""],
                      finish),
            time_bars("Operations of all ranks by kind, with their wait times", kinds, [""],
                      [[time] for time in sums[used].tolist()]),
        ])  # fmt: skip

    @property
    def makespan(self) -> int:
        """When the last rank finishes, in ns."""
        return int(self.cycles.max(initial=0))

    @property
    def num_nodes(self) -> int:
        """Number of nodes of all ranks, including ranks that another one represents."""
        return int(np.diff(self.program.first)[self.like].sum())

    def group_label(self, group: int) -> str:
        """Return the name of a group of the program; of one that stands for others, their role."""
        name = self.program.group_names[group]
        return name.rpartition("[")[0] if name in self.copies else name

    @cached_property
    def issues(self) -> pl.DataFrame:
        """Issues found while the job was read and prepared (``schema.ISSUES``)."""
        log = IssueLog()
        log.add(
            "simulate.no-time", "warning", self._num_without_time(),
            "computations state a number of operations but no recorded time: they take 0 ns",
            "state the system's compute.peak and memory.bandwidth, or its compute.device "
            "(nadi systems NAME prints an example)",
        )  # fmt: skip
        kinds = [NODE_KINDS.index(name) for name in ("COMM_SEND", "COMM_RECV")]
        sends, receives = (int((self.program.kind == kind).sum()) for kind in kinds)
        log.add(  # a receive without a send raises an error, so there are never fewer sends
            "simulate.not-received", "warning", sends - receives,
            "messages are sent but never received, so nothing waits for them",
            "check that every send has a receive",
        )  # fmt: skip
        log.add(
            "simulate.groups-of-one", "warning", self._num_alone(),
            "no collective takes any time, because their groups have one rank",
            "give the traces of all ranks; of a text workload: --ranks N",
        )  # fmt: skip
        return summed_issues([*(trace.issues for trace in self.program.traces), log.table()])

    def _num_alone(self) -> int:
        """Count the collectives that have bytes, if none of them takes any time."""
        sized = self.program.comm_bytes > 0
        sized &= self.program.kind == NODE_KINDS.index("COMM_COLL")
        return 0 if (self.end > self.start)[sized].any() else int(sized.sum())

    def _num_without_time(self) -> int:
        """Count computations that take no time, as nothing priced their operations."""
        if self.system.compute.roofline or self.priced:
            return 0
        program = self.program
        is_computation = (program.kind == NODE_KINDS.index("COMP")) & ~program.is_cpu
        chosen = is_computation & (program.duration <= 0) & (program.flops > 0)
        return int(np.add.reduceat(chosen, program.first[:-1], dtype=np.int64)[self.like].sum())

    @cached_property
    def schedule(self) -> Schedule:
        """When each node ran; computed on first access."""
        program = self.program
        rank, node = self.nodes_of_ranks()
        cause = np.maximum(self.cause, 0)[node]
        known = self.cause[node] >= 0
        slot = program.slot
        if program.lane is not None:
            slot = np.where(program.lane < 0, slot, len(_RESOURCES) + program.lane)
        tier, engines = tiers_of_nodes(program, self.system), engines_of(self.system)
        engine = len(_RESOURCES) + len(program.lane_names) + 2 * tier + (program.kind == STORE)
        slot = np.where(tier >= 0, engine, slot)
        resources = pl.Series((*_RESOURCES, *program.lane_names, *engines))
        table = SCHEDULE.build(
            rank.size,
            {
                "rank": rank,
                "node": program.row[node],
                "start": self.start[node],
                "end": self.end[node],
                "resource": resources.gather(slot[node]),
                "bound_by": pl.Series(("", "order")).gather(known.astype(np.int64)),
                "bound_rank": np.where(known, rank, -1),
                "bound_node": np.where(known, program.row[cause], -1),
            },
        )
        return Schedule(table)

    def nodes_of_ranks(self) -> tuple[Ints, Ints]:
        """Return the nodes of all ranks, including ranks that another one represents.

        Returns
        -------
        rank, node
            int64, shape (nodes of all ranks,): in order of rank; nodes are those of the program.
        """
        sizes = np.diff(self.program.first)[self.like]
        rank = np.repeat(np.arange(self.like.size), sizes)
        within = np.arange(rank.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return rank, self.program.first[self.like[rank]] + within


_KEPT = {
    "rank": NODE.rank,
    "kind": NODE.kind,
    "slot": NODE.slot,
    "time": NODE.time,
    "size": NODE.size,
    "peer": NODE.peer,
    "key": NODE.key,
    "number": NODE.number,
    "latency": NODE.left,
}


@dataclass(frozen=True, eq=False)
class Trail:
    """What each node did; nodes of custom collectives follow those of the program."""

    # rank, kind, slot, time, size, peer, key, number: int64, shape (nodes,): as the columns of
    # ``machine_state``
    rank: Ints
    kind: Ints
    slot: Ints
    time: Ints
    size: Ints
    peer: Ints
    key: Ints
    number: Ints
    latency: Ints  # of a TRANSFER, ns
    shapes: Ints  # of collectives, as there; ``recipes`` are what they name
    recipes: tuple[Recipe, ...]
    group_members: list[Ints]  # the ranks of each group; the first is all ranks
    links: Ints  # of the network as they were left, as there; one row without congestion
    # int64 ns, shape (links of ``AllLinks``,): for how long each kept transfers from being faster;
    # empty where transfers do not share links
    full: Ints


def trail_of(tables: Tables, machine: Machine) -> Trail:
    """Return what explains the times of a finished machine, whose nodes it keeps."""
    return Trail(
        **{name: machine.nodes[:, column] for name, column in _KEPT.items()},
        shapes=tables.shapes,
        recipes=tables.recipes,
        group_members=tables.group_members,
        links=machine.links.copy(),
        full=_full(machine),
    )


def _full(machine: Machine) -> Ints:
    flows = machine.flows
    num_links = int(flows.counts[COUNT.links]) if machine.world[WORLD.flows] else 0
    return np.asarray(flows.links[:num_links, EDGE.full] // PS)
