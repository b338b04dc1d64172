"""Prepare the prediction of a recorded job on another system."""

from __future__ import annotations

from nadi.load.system_library import read_system_file, shipped_systems
from nadi.model.trace import Job
from nadi.simulator.machine.system_file import SystemFile
from nadi.whatif.system_change import OnSystem, fit_to_system

__all__ = ["on_system"]


def on_system(job: Job, described: SystemFile) -> OnSystem:
    """Fit a system to a job, and compare its devices with those that recorded the job.

    If the recording names a device that is one of a system that comes with Nadi, kernels are
    taken to be faster by the smaller of two ratios: peak, and bandwidth of the memory. That
    is an estimate, and the reason given says so. Else they take their recorded time.

    Raises
    ------
    UsageError
        If the system is not for so many ranks.
    """
    return fit_to_system(job, described, map(read_system_file, shipped_systems()))
