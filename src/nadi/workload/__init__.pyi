"""What ``nadi.workload`` gives; each name is loaded when it is first used."""

from .astra_sim_files import (
    SimulatorFiles as SimulatorFiles,
    write_for_astra_sim as write_for_astra_sim,
)
