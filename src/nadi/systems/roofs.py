"""What the device that a recording names could reach at most: its roofs.

The roofs of a recording's device, for the rates of its operators: as data.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from nadi.systems.device import scaled_device
from nadi.systems.library import load_device, read_system_file, recorded_devices, shipped_systems
from nadi.trace.trace import Job


class DeviceRoofs(NamedTuple):
    """The peaks of a device, as data sheets state them."""

    recorded: str  # the name in the recording
    system: str  # the system that ships with Nadi and has this device
    bytes_per_second: float  # of its memory
    # operations per second by type of elements, such as ``bfloat16``; ``""`` for others
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


# PyTorch's names of types, and those of devices
_TYPES = {
    "BFloat16": "bfloat16", "Half": "float16", "float": "float32", "double": "float64",
    "Float8_e4m3fn": "float8_e4m3fn", "Float8_e5m2": "float8_e5m2", "signed char": "int8",
}  # fmt: skip


def describe_roofs(roofs: DeviceRoofs, types: Iterable[str]) -> dict[str, Any]:
    """Give the roofs for types of elements, as recorded, and where the two meet (ridge point)."""
    rows = []
    for one in sorted(set(types)):
        peak = roofs.peak.get(_TYPES.get(one, ""), 0.0)
        if peak:
            rows.append({
                "type": one, "peak_tflops": peak / 1e12, "tb_per_s": roofs.bytes_per_second / 1e12,
                "ridge_flops_per_byte": peak / roofs.bytes_per_second,
            })  # fmt: skip
    return {"recorded": roofs.recorded, "system": roofs.system, "types": rows}
