"""What ASTRA-sim's configuration files say, as a System: network, system, memory, groups."""

from __future__ import annotations

from typing import Any

import msgspec

from nadi.errors import FormatError
from nadi.simulator.machine.system import ASTRA_SIM_COLLECTIVES, Dimension, System

__all__ = ["astra_sim_system"]

_TOPOLOGIES = {"ring": "ring", "fullyconnected": "fully-connected", "switch": "switch"}
_MEMORY = {
    "NO_MEMORY_EXPANSION": "none",
    "PER_NPU_MEMORY_EXPANSION": "per-rank",
    "PER_NODE_MEMORY_EXPANSION": "per-node",
    "MEMORY_POOL": "pool",
}
_USED = {
    "endpoint-delay", "active-chunks-per-dimension", "preferred-dataset-splits",
    "collective-optimization", "model-shared-bus", "L", "o", "g", "G", "local-reduction-delay",
    "local-mem-bw", "peak-perf", "roofline-enabled", "replay-only",
    *(f"{name.replace('_', '-')}-implementation" for name in ASTRA_SIM_COLLECTIVES),
    *(f"{name.replace('_', '-')}-implementation-custom" for name in ASTRA_SIM_COLLECTIVES),
}  # fmt: skip
# what its binary reads, and what changes no time
_WITHOUT_EFFECT = {"scheduling-policy", "boost-mode", "track-local-mem", "trace-enabled"}
_GIB = float(1 << 30)


def astra_sim_system(
    network: dict[str, Any],
    system: dict[str, Any],
    remote_memory: dict[str, Any] | None = None,
    comm_group: dict[str, Any] | None = None,
    *,
    congestion: bool = False,
    queues: int = 1,
    rendezvous: bool = False,
    injection_scale: int = 1,
    compat: str = "astra-sim",
    name: str = "",
) -> System:
    """Make a system of the content of ASTRA-sim's four files.

    Parameters
    ----------
    network, system, remote_memory, comm_group
        What stands in the files.
    congestion
        As its congestion-aware backend has it.
    queues, rendezvous, injection_scale
        Its options num-queues-per-dim, rendezvous-protocol and injection-scale.
    compat
        ``astra-sim`` for its numbers, empty for the right ones.

    Raises
    ------
    InputError
        If something is said that cannot be, with the setting.
    """
    try:
        value = {
            "network": {
                "dimensions": _dimensions(network),
                "congestion": congestion,
                "rendezvous": rendezvous,
            },
            "compute": _compute(system),
            "remote_memory": _memory(remote_memory or {}),
            "collectives": _collectives(system, queues, injection_scale),
            "groups": {str(key): list(ranks) for key, ranks in (comm_group or {}).items()},
            "slots": "astra-sim",
            "compat": compat,
            "name": name,
            "ignored": sorted(set(system) - _USED - _WITHOUT_EFFECT),
        }
        if system.get("model-shared-bus"):
            value["bus"] = _bus(system)
        return msgspec.convert(value, System)
    except msgspec.ValidationError as error:
        raise FormatError(name or "system", str(error)) from None


def _number(value: Any, where: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise FormatError(where, f"expected a number, got {value!r}") from None


def _dimensions(network: dict[str, Any]) -> list[Dimension]:
    columns = {}
    for key in ("topology", "npus_count", "bandwidth", "latency"):
        column = network.get(key)
        if not isinstance(column, list) or not column:
            raise FormatError(f"network: {key}", f"expected a list, got {column!r}")
        columns[key] = column
    if len({len(column) for column in columns.values()}) > 1:
        raise FormatError("network", "its lists differ in length", "give one entry per dimension")
    dimensions = []
    for topology, size, bandwidth, latency in zip(*columns.values(), strict=True):
        known = _TOPOLOGIES.get(str(topology).lower())
        if known is None:
            raise FormatError(
                "network: topology", f"there is no {topology!r}",
                "there are Ring, FullyConnected and Switch",
            )  # fmt: skip
        rate = _number(bandwidth, "network: bandwidth") * _GIB / 1e9
        value = {
            "topology": known, "size": int(_number(size, "network: npus_count")),
            "bandwidth": rate, "latency": _number(latency, "network: latency"),
        }  # fmt: skip
        dimensions.append(msgspec.convert(value, Dimension))
    return dimensions


def _compute(system: dict[str, Any]) -> dict[str, Any]:
    return {
        "roofline": bool(system.get("roofline-enabled", 0)),
        "peak": _number(system.get("peak-perf", 0), "peak-perf") * 1e12,
        "memory_bandwidth": _number(system.get("local-mem-bw", 0), "local-mem-bw") * 1e9,
        "replay_only": bool(system.get("replay-only", 0)),
    }


def _memory(memory: dict[str, Any]) -> dict[str, Any]:
    kind = memory.get("memory-type", "NO_MEMORY_EXPANSION")
    if kind not in _MEMORY:
        raise FormatError("memory-type", f"there is no {kind!r}", f"there are {', '.join(_MEMORY)}")
    return {
        "kind": _MEMORY[kind],
        "latency": int(memory.get("remote-mem-latency", 0)),
        "bandwidth": int(memory.get("remote-mem-bw", 0)),
        "ranks_per_node": int(memory.get("num-npus-per-node", 1)),
    }


def _bus(system: dict[str, Any]) -> dict[str, Any]:
    return {
        "latency": int(system.get("L", 0)),
        "overhead": int(system.get("o", 0)),
        "pause": int(system.get("g", 0)),
        "gap": _number(system.get("G", 0), "G"),
        "reduction": int(system.get("local-reduction-delay", 1)),
    }


def _policy(system: dict[str, Any]) -> str:
    """Give the order in queues, in which with its slots nobody competes."""
    stated = str(system.get("scheduling-policy", "FIFO"))
    if stated.lower() not in ("fifo", "lifo", "explicit"):
        raise FormatError(
            "scheduling-policy", f"there is no {stated!r}", "there are FIFO, LIFO and EXPLICIT"
        )
    return stated.lower()


def _collectives(system: dict[str, Any], queues: int, injection_scale: int) -> dict[str, Any]:
    value: dict[str, Any] = {
        "bandwidth_aware": system.get("collective-optimization") == "localBWAware",
        "active_chunks": int(system.get("active-chunks-per-dimension", 1)),
        "endpoint_delay": int(system.get("endpoint-delay", 10)) * injection_scale,
        "queues": queues,
        "policy": _policy(system),
        "custom": {},
    }
    for name in ASTRA_SIM_COLLECTIVES:
        setting = f"{name.replace('_', '-')}-implementation"
        value[name] = list(system.get(setting, ()))
        if system.get(f"{setting}-custom"):
            value["custom"][name] = str(system[f"{setting}-custom"][0])
    if "preferred-dataset-splits" not in system:
        raise FormatError(
            "preferred-dataset-splits", "it is missing",
            "say into how many parts a collective is cut, such as 4",
        )  # fmt: skip
    value["chunks"] = int(system["preferred-dataset-splits"])
    return value
