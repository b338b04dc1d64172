"""Prepare the prediction of a recorded job on another system."""

from __future__ import annotations

from nadi.load.system_library import read_system_file, shipped_systems
from nadi.model.trace import Job
from nadi.simulator.machine.system_file import SystemFile
from nadi.whatif.system_change import OnSystem, fit_to_system

__all__ = ["on_system"]


def on_system(job: Job, described: SystemFile) -> OnSystem:
    """Fit a system to a job, and compare its devices with those that recorded the job.

    If the recording names the device of a system that ships with Nadi, kernel times are scaled
    by the smaller of two ratios: peak, and memory bandwidth. This is an estimate, and the
    returned reason states it. Otherwise kernels take their recorded time.

    Raises
    ------
    UsageError
        If the system does not fit the number of ranks.
    """
    return fit_to_system(job, described, map(read_system_file, shipped_systems()))
