"""What ``nadi.simulator`` gives; each name is loaded when it is first used."""

from .engine_driver import simulate_job
from .machine.astra_config import astra_sim_system
from .machine.system import System
from .machine.system_file import SystemFile
from .prices import collective_time, message_time
from .results.as_recorded import simulated_graph, simulated_job, simulated_path
from .results.collective_accounts import (
    collective_times,
    sum_by_group,
    sum_by_type,
)
from .results.link_accounts import link_table
from .results.memory_accounts import live_memory
from .results.rank_accounts import compute_times, exposed_times, rank_times
from .results.simulation_results import SimulationResults, results_of
from .simulation import Simulation

__all__ = [
    "Simulation",
    "SimulationResults",
    "System",
    "SystemFile",
    "astra_sim_system",
    "collective_time",
    "collective_times",
    "compute_times",
    "exposed_times",
    "link_table",
    "live_memory",
    "message_time",
    "rank_times",
    "results_of",
    "simulate_job",
    "simulated_graph",
    "simulated_job",
    "simulated_path",
    "sum_by_group",
    "sum_by_type",
]
