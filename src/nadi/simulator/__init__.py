"""From a job and a system to when everything would run: the simulator."""

from __future__ import annotations

from nadi.simulator.astra_config import astra_sim_system, load_astra_sim_system
from nadi.simulator.config import System
from nadi.simulator.engine import Simulation, simulate
from nadi.simulator.inputs import find_ranks, read_ranks

__all__ = [
    "Simulation",
    "System",
    "astra_sim_system",
    "find_ranks",
    "load_astra_sim_system",
    "read_ranks",
    "simulate",
]
