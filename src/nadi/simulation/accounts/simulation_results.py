"""The result tables of a simulation, computed or read from a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import polars as pl

from nadi.errors import checked
from nadi.simulation.accounts.collective_accounts import (
    collective_times,
    sum_by_group,
    sum_by_type,
)
from nadi.simulation.accounts.link_accounts import link_use, overload_issues
from nadi.simulation.accounts.memory_accounts import (
    beyond_capacity,
    live_memory,
    tier_traffic,
    tier_use,
    tier_waits,
)
from nadi.simulation.accounts.times import PARTITION, TIME_LABELS, job_times, rank_times
from nadi.simulation.simulation import Simulation, TimeBound
from nadi.systems.prices.priced_traces import PricedWork
from nadi.systems.system import System
from nadi.trace.arrays import Ints
from nadi.trace.issues import summed_issues
from nadi.units import format_ns

if TYPE_CHECKING:
    from nadi.results.charts.chart_files import Figure


@dataclass(frozen=True, eq=False)
class SimulationResults:
    """The results of a simulation.

    Attributes
    ----------
    system
        The simulated system.
    num_nodes
        Nodes of all ranks.
    rank_times
        Time of each rank by activity until it finishes (``schema.RANK_TIMES``).
    collectives
        Times and bandwidths of each collective (``schema.COLLECTIVE_TIMES``).
    live_memory
        Peak memory of live tensors (``schema.LIVE_MEMORY``); None without tensors in the traces.
    issues
        Issues found while the job was read and prepared (``schema.ISSUES``).
    priced
        Computations that had no time and were priced; None for none.
    link_use
        What each physical link carried, for whom, and for how long it was full
        (``schema.LINK_USE``); None where transfers share no links.
    job_times
        When each of several jobs finished, and alone (``schema.JOB_TIMES``); None of one job.
    bound
        Of a folded job, between what times the makespan of the whole job is; None of others.
    tier_traffic, tier_use, tier_waits
        What memory tiers served, in all and in each tenth of the time, and which operations waited
        for them (``schema.TIER_TRAFFIC``, ``TIER_USE``, ``TIER_WAITS``); None if no node uses one.
    """

    system: System
    num_nodes: int
    rank_times: pl.DataFrame
    collectives: pl.DataFrame
    live_memory: pl.DataFrame | None
    issues: pl.DataFrame
    priced: PricedWork | None = field(default=None, kw_only=True)
    link_use: pl.DataFrame | None = field(default=None, kw_only=True)
    job_times: pl.DataFrame | None = field(default=None, kw_only=True)
    bound: TimeBound | None = field(default=None, kw_only=True)
    tier_traffic: pl.DataFrame | None = field(default=None, kw_only=True)
    tier_use: pl.DataFrame | None = field(default=None, kw_only=True)
    tier_waits: pl.DataFrame | None = field(default=None, kw_only=True)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} ranks={self.cycles.size} makespan={self.makespan} ns>"

    def plot(self) -> Figure:
        """Draw what each rank spends its time on until it finishes."""
        from nadi.results.charts.chart_files import Figure  # only where charts are drawn
        from nadi.results.charts.charts import time_bars

        title = f"{format_ns(self.makespan)} on {self.system.name or 'the system'}; each rank"
        names = [f"rank {rank}" for rank in self.rank_times["rank"]]
        times = self.rank_times.select(PARTITION).rows()
        return Figure([time_bars(title, names, list(TIME_LABELS.values()), times)])

    @property
    def cycles(self) -> Ints:
        """When each rank finishes, in ns; int64, shape (ranks,)."""
        return self.rank_times["finish"].to_numpy()

    @property
    def makespan(self) -> int:
        """When the last rank finishes, in ns."""
        return int(self.cycles.max(initial=0))

    @property
    def compute(self) -> Ints:
        """Compute time of each rank's device, in ns; int64, shape (ranks,)."""
        return self.rank_times["computing"].to_numpy()

    @property
    def exposed(self) -> Ints:
        """All time of each rank except computation, in ns; int64, shape (ranks,)."""
        return self.cycles - self.compute

    @cached_property
    def collective_types(self) -> pl.DataFrame:
        """Sums of the collectives of each type, from ``sum_by_type``."""
        return sum_by_type(self.collectives)

    @cached_property
    def process_groups(self) -> pl.DataFrame:
        """Sums of the collectives of each process group, from ``sum_by_group``."""
        return sum_by_group(self.collectives)

    @property
    def beyond_capacity(self) -> pl.DataFrame:
        """Rows of ``live_memory`` whose tensors do not fit into a rank's memory."""
        return beyond_capacity(self.live_memory, self.system.memory_capacity)


_COMPUTED: WeakKeyDictionary[Simulation, SimulationResults] = WeakKeyDictionary()


@checked
def results_of(simulation: Simulation) -> SimulationResults:
    """Compute all accounts of a simulation; cached with the simulation.

    O(nodes log nodes + operands log operands).
    """
    if simulation not in _COMPUTED:
        _COMPUTED[simulation] = SimulationResults(
            simulation.system, simulation.num_nodes, rank_times(simulation),
            collective_times(simulation), live_memory(simulation),
            summed_issues([simulation.issues, overload_issues(simulation)]),
            priced=simulation.priced,
            link_use=link_use(simulation) if simulation.trail.full.size else None,
            job_times=job_times(simulation) if simulation.jobs else None,
            bound=simulation.bound, tier_traffic=tier_traffic(simulation),
            tier_use=tier_use(simulation), tier_waits=tier_waits(simulation),
        )  # fmt: skip
    return _COMPUTED[simulation]
