"""What the device that a recording names could reach at most: its roofs."""

from __future__ import annotations

from typing import NamedTuple

from nadi.load.device_library import load_device
from nadi.load.system_library import read_system_file, shipped_systems
from nadi.model.trace import Job
from nadi.whatif.system_change import recorded_devices

__all__ = ["DeviceRoofs", "recorded_roofs"]


class DeviceRoofs(NamedTuple):
    """The peaks of a device, as its data sheet states them.

    Attributes
    ----------
    recorded
        The name in the recording.
    device
        The device that ships with Nadi.
    bytes_per_second
        Of its memory.
    peak
        Operations per second by type of elements, such as ``bfloat16``; ``""`` for others.
    """

    recorded: str
    device: str
    bytes_per_second: float
    peak: dict[str, float]


def recorded_roofs(job: Job) -> DeviceRoofs | None:
    """Return the roofs of the device that a recording names; None if it ships not with Nadi."""
    recorded = recorded_devices(job)
    if not recorded:
        return None
    for system in map(read_system_file, shipped_systems()):
        named = system.compute.device
        if named and any(name in recorded for name in system.compute.devices):
            device = load_device(named)
            return DeviceRoofs(recorded, named, device.bandwidth, dict(device.peak))
    return None
