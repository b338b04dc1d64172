"""From a job and a system to when everything would run: the simulator."""

from __future__ import annotations

from nadi.simulate.astra_config import astra_sim_system, load_astra_sim_system
from nadi.simulate.config import System
from nadi.simulate.engine import Simulation, simulate

__all__ = ["Simulation", "System", "astra_sim_system", "load_astra_sim_system", "simulate"]
