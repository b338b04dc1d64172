"""What the device that a recording names could reach at most: its roofs."""

from __future__ import annotations

from typing import NamedTuple

from nadi.systems.device import scaled_device
from nadi.systems.device_library import load_device
from nadi.systems.library import read_system_file, recorded_devices, shipped_systems
from nadi.trace.trace import Job

__all__ = ["DeviceRoofs", "recorded_roofs"]


class DeviceRoofs(NamedTuple):
    """The peaks of a device, as data sheets state them.

    Attributes
    ----------
    recorded
        The name in the recording.
    system
        The system that ships with Nadi and has this device.
    bytes_per_second
        Of its memory.
    peak
        Operations per second by type of elements, such as ``bfloat16``; ``""`` for others.
    """

    recorded: str
    system: str
    bytes_per_second: float
    peak: dict[str, float]


def recorded_roofs(job: Job) -> DeviceRoofs | None:
    """Return the roofs of the device that a recording names; None if it ships not with Nadi."""
    recorded = recorded_devices(job)
    if not recorded:
        return None
    for name in shipped_systems():
        system = read_system_file(name)
        named = system.compute.device
        if named and any(one in recorded for one in system.compute.devices):
            own = load_device(named)  # of the same chip, perhaps with another memory
            device = scaled_device(own, system.peak, system.memory_bandwidth)
            return DeviceRoofs(recorded, name, device.bandwidth, dict(device.peak))
    return None
