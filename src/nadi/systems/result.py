"""Descriptions of systems, as data and as text."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from nadi.systems.memory_section import TierPart
from nadi.systems.system_file import SystemFile
from nadi.units import printable

__all__ = ["describe_system", "print_systems"]


def describe_system(system: SystemFile) -> dict[str, Any]:
    """Describe a system; figures have the units of its file."""
    return {
        "name": system.name,
        "about": system.about,
        "ranks": system.ranks,
        "peak": system.compute.peak,
        "memory_bandwidth": system.memory.bandwidth,
        "memory_capacity": system.memory.capacity,
        "network": [
            {
                "topology": dimension.topology,
                "size": dimension.size,
                "bandwidth": dimension.bandwidth,
                "latency": dimension.latency,
            }
            for dimension in system.network.dimensions
        ],
        "shapes": list(system.network.shapes),
        "tiers": [
            {
                "name": tier.name,
                "kind": tier.kind,
                "capacity": tier.capacity,
                "bandwidth": _bandwidth(tier),
                "latency": tier.latency,
                "devices": tier.devices,
            }
            for tier in system.memory.tiers
        ],
        "source": system.source,
    }


def print_systems(described: list[dict[str, Any]], console: Console) -> None:
    """Print a few lines for each system."""
    for one in described:
        console.print(Text.assemble((one["name"], "bold"), "  ", printable(one["about"])))
        compute = f"{one['peak']}, {one['memory_bandwidth']}, {one['memory_capacity']}"
        lines = [
            ("ranks", one["ranks"]),
            ("per rank", f"{compute} of memory"),
            ("network", "; ".join(map(_link, one["network"]))),
            *([("memory", "; ".join(map(_tier, one["tiers"])))] if one["tiers"] else []),
            ("source", one["source"]),
        ]
        for title, text in lines:
            console.print(Text(f"  {title:<9} {printable(text)}"))


def _link(dimension: dict[str, Any]) -> str:
    size = "" if dimension["size"] == "any" else f" of {dimension['size']}"
    return f"{dimension['topology']}{size}, {dimension['bandwidth']}, {dimension['latency']}"


def _bandwidth(tier: TierPart) -> str:
    """Format the bandwidth of a device of a tier, as its file states it."""
    if tier.read:
        return f"{tier.read} read, {tier.write} written"
    return tier.bandwidth or f"{tier.lanes} lanes of {tier.generation}"


def _tier(tier: dict[str, Any]) -> str:
    devices = "" if tier["devices"] == 1 else f"{tier['devices']} x "
    size = f"{tier['capacity']}, " if tier["capacity"] else ""
    return f"{tier['name']} {devices}{size}{tier['bandwidth']}, {tier['latency']}"
