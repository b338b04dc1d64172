"""What bounds the collectives of a recording: the links of the system that it ran on."""

from functools import partial

from nadi.bottlenecks.steps.run import Run
from nadi.errors import UsageError
from nadi.graph.operation_totals import LeastTime
from nadi.simulation.alone.collective import least_collective_time
from nadi.systems.library import read_system_file, recorded_devices, shipped_systems
from nadi.systems.system import System
from nadi.trace.trace import Job


def link_bounds(run: Run) -> tuple[str, str, LeastTime] | None:
    """Return whose links bound collectives: the given system, or one of the recorded device.

    Its name, why this one, and the bound.

    None if no system was given, and none of those that ship with Nadi has the device and room for
    the ranks.
    """
    if not run.job.num_collectives:
        return None
    if run.prediction is not None:
        return _bounds(run.prediction.change.system, "as given")
    found = _recorded_system(run.job)
    return _bounds(*found) if found else None


def _bounds(system: System, reason: str) -> tuple[str, str, LeastTime]:
    return system.name, reason, partial(least_collective_time, system)


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
