"""The roofs of a recording's device, for the rates of its operators: as data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nadi.systems.roofs import DeviceRoofs

__all__ = ["describe_roofs"]

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
