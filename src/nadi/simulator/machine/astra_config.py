"""ASTRA-sim's own configuration files, as they are: network, system, memory, groups."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from nadi.errors import FormatError, InputError, lowered
from nadi.simulator.machine.config import (
    ASTRA_SIM_COLLECTIVES,
    Dimension,
    System,
)

__all__ = ["astra_sim_system", "load_astra_sim_system", "read_comm_groups"]

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


def load_astra_sim_system(
    network: Path | str,
    system: Path | str,
    remote_memory: Path | str | None = None,
    comm_group: Path | str | None = None,
    **options: Any,
) -> System:
    """Read a system from the four files that ASTRA-sim is started with.

    Parameters
    ----------
    network
        YAML: topology, npus_count, bandwidth (GB/s, of which one is 2^30 bytes/s) and latency.
    system, remote_memory, comm_group
        JSON.
    options
        As :func:`astra_sim_system` takes them.

    Raises
    ------
    InputError
        If a file cannot be read, or says what cannot be.
    """
    given: dict[str, Any] = {
        "network": _read_yaml(Path(network)),
        "system": _read_json(Path(system)),
        "remote_memory": _read_json(Path(remote_memory)) if remote_memory else {},
        "comm_group": _read_json(Path(comm_group)) if comm_group else {},
    }
    return astra_sim_system(**given, **options, name=Path(system).name)


def read_comm_groups(path: Path | str) -> dict[str, tuple[int, ...]]:
    """Read ASTRA-sim's file of process groups: the ranks of each by name, as ``System.groups``.

    Raises
    ------
    InputError
        If it cannot be read, or is something else.
    """
    try:
        return msgspec.json.decode(_read_text(Path(path)), type=dict[str, tuple[int, ...]])
    except msgspec.MsgspecError as error:
        raise FormatError(
            str(path), f"it is no file of process groups: {lowered(str(error))}",
            'write a JSON object such as {"1": [0, 1], "2": [2, 3]}',
        ) from None  # fmt: skip


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


def _read_text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise InputError(str(path), f"cannot be read: {reason}", "check the path") from None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(_read_text(path), type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise FormatError(
            str(path), lowered(str(error)), "give the file that ASTRA-sim is started with"
        ) from None


def _read_yaml(path: Path) -> dict[str, Any]:
    """Read the YAML of network files: keys with a value, a list in brackets or one of dashes."""
    found: dict[str, Any] = {}
    key = ""
    for number, line in enumerate(_read_text(path).splitlines(), 1):
        text = re.sub(r"(^|\s)#.*", "", line).strip()
        if not text or text in ("---", "..."):
            continue
        if text.startswith("- ") and isinstance(found.get(key), list):
            found[key].append(_scalar(text[2:]))
            continue
        key, colon, value = (part.strip() for part in text.partition(":"))
        if not colon:
            raise FormatError(f"{path}:{number}", f"expected 'key: value', got {text!r}")
        if value.startswith("[") and value.endswith("]"):
            found[key] = [_scalar(item) for item in value[1:-1].split(",") if item.strip()]
        else:
            found[key] = _scalar(value) if value else []
    return found


def _scalar(text: str) -> str | int | float:
    text = text.strip().strip("'\"")
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            pass
    return text
