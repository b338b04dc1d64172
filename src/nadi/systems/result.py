"""Descriptions of systems."""

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from nadi.results.declared import Lines, Result
from nadi.systems.memory_section import TierPart
from nadi.systems.system_file import SystemFile
from nadi.units import printable


def _described(system: SystemFile) -> dict[str, Any]:
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


def _lines(one: dict[str, Any]) -> Iterator[str | Text]:
    yield Text.assemble((one["name"], "bold"), "  ", printable(one["about"]))
    yield f"  ranks     {one['ranks']}"
    compute = f"{one['peak']}, {one['memory_bandwidth']}, {one['memory_capacity']}"
    yield f"  per rank  {compute} of memory"
    yield f"  network   {'; '.join(map(_link, one['network']))}"
    if one["tiers"]:
        yield f"  memory    {'; '.join(map(_tier, one['tiers']))}"
    yield f"  source    {one['source']}"


SYSTEM = Result(
    kind="system", title="System", order=99, facts=_described, headline=None, parts=(Lines(_lines),)
)
