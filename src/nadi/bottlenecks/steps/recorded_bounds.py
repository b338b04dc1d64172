"""What bounds the collectives of a recording: the links of the system that it ran on."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from nadi.bottlenecks.steps.run import Run
from nadi.errors import UsageError
from nadi.graph.operation_totals import LeastTime
from nadi.simulation.alone.collective import least_collective_time
from nadi.systems.library import read_system_file, recorded_devices, shipped_systems
from nadi.systems.system import System
from nadi.trace.trace import Job


class LinkBounds(NamedTuple):
    """The system whose links bound collectives."""

    system: str  # its name
    reason: str  # why this one
    least_time: LeastTime  # for ``collective_totals``


def link_bounds(run: Run) -> LinkBounds | None:
    """Return the bounds on the given system, or on one that has the device of the recording.

    None if no system was given, and none of those that ship with Nadi has the device and room for
    the ranks.
    """
    if not run.job.num_collectives:
        return None
    if run.prediction is not None:
        return _bounds(run.prediction.change.system, "as given")
    found = _recorded_system(run.job)
    return _bounds(*found) if found else None


def _bounds(system: System, reason: str) -> LinkBounds:
    return LinkBounds(system.name, reason, partial(least_collective_time, system))


def _recorded_system(job: Job) -> tuple[System, str] | None:
    recorded = recorded_devices(job)
    for name in shipped_systems() if recorded else ():
        described = read_system_file(name)
        if any(device in recorded for device in described.compute.devices):
            try:
                return described.fit(job.world_size), f"it has the recorded device, {recorded}"
            except UsageError:
                continue
    return None
