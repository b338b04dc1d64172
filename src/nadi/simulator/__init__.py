"""From a job and a system to when everything would run: the simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nadi.simulator.machine.astra_config import (
    astra_sim_system,
    load_astra_sim_system,
    read_comm_groups,
)
from nadi.simulator.machine.config import System
from nadi.simulator.machine.library import (
    load_system,
    read_system_file,
    shipped_systems,
    shipped_text,
)
from nadi.simulator.machine.system_file import SystemFile
from nadi.simulator.prices import collective_time, message_time
from nadi.simulator.run.engine import simulate
from nadi.simulator.run.simulation import Simulation
from nadi.simulator.work.inputs import find_ranks, read_job, read_ranks

if TYPE_CHECKING:
    from nadi.simulator.elsewhere import OnSystem, Prices, on_system, prices_on

__all__ = [
    "OnSystem",
    "Prices",
    "Simulation",
    "System",
    "SystemFile",
    "astra_sim_system",
    "collective_time",
    "find_ranks",
    "load_astra_sim_system",
    "load_system",
    "message_time",
    "on_system",
    "prices_on",
    "read_comm_groups",
    "read_job",
    "read_ranks",
    "read_system_file",
    "shipped_systems",
    "shipped_text",
    "simulate",
]


def __getattr__(name: str) -> Any:
    """Load what is of recorded jobs only when it is used: it takes the graph of events."""
    if name not in ("OnSystem", "Prices", "on_system", "prices_on"):
        raise AttributeError(f"module 'nadi.simulator' has no attribute {name!r}")
    from nadi.simulator import elsewhere

    return getattr(elsewhere, name)
