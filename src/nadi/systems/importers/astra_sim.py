"""What ASTRA-sim's configuration files say, as a System: network, system, memory, groups.

Load ASTRA-sim's configuration files unchanged: network, system, memory, groups.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

from nadi.errors import FormatError, InputError
from nadi.files.files import read_settings
from nadi.files.settings_text import decode_json
from nadi.systems.memory_tiers import remote_tier
from nadi.systems.system import (
    ASTRA_SIM_COLLECTIVES,
    Bus,
    Collectives,
    Compute,
    Dimension,
    Network,
    System,
)
from nadi.systems.system_file import GroupRank
from nadi.units import lowered

_TOPOLOGIES = {"ring": "ring", "fullyconnected": "fully-connected", "switch": "switch"}
_MEMORY = {
    "NO_MEMORY_EXPANSION": "none",
    "PER_NPU_MEMORY_EXPANSION": "per-rank",
    "PER_NODE_MEMORY_EXPANSION": "per-node",
    "MEMORY_POOL": "pool",
}
# what its binary reads, and what changes no time
_WITHOUT_EFFECT = {"boost-mode", "track-local-mem", "trace-enabled"}
_GIB = float(1 << 30)
_AT = re.compile(r"(.*?) - at `(.*)`", re.DOTALL)
_Value = TypeVar("_Value")

# numbers may be written either way, and ASTRA-sim cuts off the fraction of what it counts
_MOST = 1 << 53  # ns: 104 days; and the largest that is exact as a float
_Count = Annotated[int, Meta(ge=1, le=1 << 31)] | Annotated[float, Meta(ge=1, le=1 << 31)]
_Chunks = Annotated[int, Meta(ge=1, le=1 << 16)] | Annotated[float, Meta(ge=1, le=1 << 16)]
_Whole = Annotated[int, Meta(ge=0, le=_MOST)] | Annotated[float, Meta(ge=0, le=_MOST)]
_Positive = Annotated[int, Meta(gt=0, le=_MOST)] | Annotated[float, Meta(gt=0, le=_MOST)]
_Scale = Annotated[float, Meta(gt=0, le=_MOST)]
_Switch = bool | int | float


class _NetworkFile(msgspec.Struct):
    topology: Annotated[tuple[str, ...], Meta(min_length=1)]
    npus_count: Annotated[tuple[_Count, ...], Meta(min_length=1)]
    bandwidth: Annotated[tuple[_Positive, ...], Meta(min_length=1)]
    latency: Annotated[tuple[_Whole, ...], Meta(min_length=1)]


class _SystemFile(msgspec.Struct, rename="kebab"):
    preferred_dataset_splits: _Chunks
    scheduling_policy: str = "FIFO"
    endpoint_delay: _Whole = 10
    active_chunks_per_dimension: _Count = 1
    collective_optimization: str = ""
    peak_perf: _Whole = 0
    local_mem_bw: _Whole = 0
    roofline_enabled: _Switch = False
    replay_only: _Switch = False
    model_shared_bus: _Switch = False
    L: _Whole = msgspec.field(default=0, name="L")
    o: _Whole = 0
    g: _Whole = 0
    G: _Whole = msgspec.field(default=0, name="G")
    local_reduction_delay: _Whole = 1
    all_reduce_implementation: tuple[str, ...] = ()
    reduce_scatter_implementation: tuple[str, ...] = ()
    all_gather_implementation: tuple[str, ...] = ()
    all_to_all_implementation: tuple[str, ...] = ()
    all_reduce_implementation_custom: tuple[str, ...] = ()
    reduce_scatter_implementation_custom: tuple[str, ...] = ()
    all_gather_implementation_custom: tuple[str, ...] = ()
    all_to_all_implementation_custom: tuple[str, ...] = ()
    per_node_custom_implementation: dict[int, str] = {}


class _MemoryFile(msgspec.Struct, rename="kebab"):
    memory_type: str = "NO_MEMORY_EXPANSION"
    remote_mem_latency: _Whole = 0
    remote_mem_bw: _Whole = 0
    num_npus_per_node: _Count = 1


class AstraSimOptions(NamedTuple):
    """What ASTRA-sim is told beside its files.

    Attributes
    ----------
    congestion
        As its congestion-aware backend has it.
    queues, rendezvous, injection_scale
        Its options num-queues-per-dim, rendezvous-protocol and injection-scale.
    compat
        ``astra-sim`` for its numbers, empty for the right ones.
    """

    congestion: bool = False
    queues: int = 1
    rendezvous: bool = False
    injection_scale: float = 1
    compat: str = "astra-sim"


def astra_sim_system(
    network: dict[str, Any],
    system: dict[str, Any],
    remote_memory: dict[str, Any] | None = None,
    comm_group: dict[str, Any] | None = None,
    options: AstraSimOptions = AstraSimOptions(),  # noqa: B008  it cannot be changed
    *,
    name: str = "",
) -> System:
    """Make a system of the content of ASTRA-sim's four files.

    Parameters
    ----------
    network, system, remote_memory, comm_group
        What stands in the files. What ``per-node-custom-implementation`` of the system names is
        in its place: prefixes of traces by the id of a collective's node.
    options
        What it is told beside its files.
    name
        What errors call the system.

    Raises
    ------
    InputError
        If something is said that cannot be: with the file, and the JSON path in it.
    """
    options = options or AstraSimOptions()
    settings = _read("system", system, _SystemFile)
    memory = _read("memory", remote_memory or {}, _MemoryFile)
    groups = {
        str(key): _read("groups", ranks, tuple[int, ...], f"$.{key}", strict=True)
        for key, ranks in _read("groups", comm_group or {}, dict[Any, Any]).items()
    }
    used = set(_SystemFile.__struct_encode_fields__)
    made = System(
        network=Network(_dimensions(network), options.congestion, options.rendezvous),
        compute=Compute(
            roofline=bool(settings.roofline_enabled),
            peak=settings.peak_perf * 1e12,
            memory_bandwidth=settings.local_mem_bw * 1e9,
            replay_only=bool(settings.replay_only),
        ),
        remote_memory=remote_tier(
            _one_of(_MEMORY, memory.memory_type, "memory: $.memory-type"),  # type: ignore[arg-type]
            latency=int(memory.remote_mem_latency),
            bandwidth=int(memory.remote_mem_bw),
            ranks_per_node=int(memory.num_npus_per_node),
        ),
        collectives=_collectives(settings, options),
        bus=_bus(settings) if settings.model_shared_bus else None,
        groups=groups,
        slots="astra-sim",
        compat=options.compat,  # type: ignore[arg-type]
        name=name,
        ignored=tuple(sorted(set(map(str, system)) - used - _WITHOUT_EFFECT)),
    )
    # whose own rules hold for the options too
    checked: System = _read(name or "system", msgspec.to_builtins(made), System)
    return checked


def _read(
    where: str, value: object, type_: type[_Value] | Any, path: str = "$", *, strict: bool = False
) -> Any:
    """Check what a file says.

    - Raises FormatError: With the JSON path of the first thing that cannot be.
    """
    try:
        return msgspec.convert(value, type_, strict=strict)
    except msgspec.ValidationError as error:
        at = _AT.fullmatch(str(error))
        what, inside = (at[1], at[2].removeprefix("$")) if at else (str(error), "")
        what = lowered(what).replace("`int | float`", "a number").replace("`", "")
        raise FormatError(f"{where}: {path}{inside}", what) from None


def _one_of(known: Mapping[str, str], stated: str, where: str) -> str:
    if stated not in known:
        raise FormatError(where, f"there is no {stated!r}", f"there are {', '.join(known)}")
    return known[stated]


def _dimensions(network: dict[str, Any]) -> tuple[Dimension, ...]:
    given: _NetworkFile = _read("network", network, _NetworkFile)
    columns = (given.topology, given.npus_count, given.bandwidth, given.latency)
    if len({len(column) for column in columns}) > 1:
        raise FormatError("network", "its lists differ in length", "give one entry per dimension")
    dimensions = []
    for d, (topology, size, bandwidth, latency) in enumerate(zip(*columns, strict=True)):
        known = _TOPOLOGIES.get(topology.lower())
        if known is None:
            raise FormatError(
                f"network: $.topology[{d}]", f"there is no {topology!r}",
                "there are Ring, FullyConnected and Switch",
            )  # fmt: skip
        rate = float(bandwidth) * _GIB / 1e9
        dimensions.append(Dimension(known, int(size), rate, float(latency)))  # type: ignore[arg-type]
    return tuple(dimensions)


def _bus(system: _SystemFile) -> Bus:
    return Bus(
        latency=int(system.L),
        overhead=int(system.o),
        pause=int(system.g),
        gap=float(system.G),
        reduction=int(system.local_reduction_delay),
    )


def _policy(stated: str) -> str:
    """Give the order in queues, in which with its slots nobody competes."""
    if stated.lower() not in ("fifo", "lifo", "explicit"):
        raise FormatError(
            "system: $.scheduling-policy", f"there is no {stated!r}",
            "there are FIFO, LIFO and EXPLICIT",
        )  # fmt: skip
    return stated.lower()


def _endpoint_delay(system: _SystemFile, options: AstraSimOptions) -> int:
    """Scale the endpoint delay: ASTRA-sim does so in 32 bits, and cuts off the fraction."""
    scale = _read("options", options.injection_scale, _Scale, "$.injection_scale")
    number = np.float32 if options.compat == "astra-sim" else float
    return int(number(int(system.endpoint_delay)) * number(scale))


def _collectives(system: _SystemFile, options: AstraSimOptions) -> Collectives:
    def stated(name: str, ending: str = "") -> tuple[str, ...]:
        found: tuple[str, ...] = getattr(system, f"{name}_implementation{ending}")
        return found

    return Collectives(
        all_reduce=stated("all_reduce"),
        reduce_scatter=stated("reduce_scatter"),
        all_gather=stated("all_gather"),
        all_to_all=stated("all_to_all"),
        bandwidth_aware=system.collective_optimization == "localBWAware",
        chunks=int(system.preferred_dataset_splits),
        active_chunks=int(system.active_chunks_per_dimension),
        queues=options.queues,
        policy=_policy(system.scheduling_policy),  # type: ignore[arg-type]
        custom={name: stated(name, "_custom")[0] for name in ASTRA_SIM_COLLECTIVES
                if stated(name, "_custom")},
        custom_by_node=system.per_node_custom_implementation,
        endpoint_delay=_endpoint_delay(system, options),
    )  # fmt: skip


_PER_NODE = "per-node-custom-implementation"


def load_astra_sim_system(
    network: Path | str,
    system: Path | str,
    remote_memory: Path | str | None = None,
    comm_group: Path | str | None = None,
    options: AstraSimOptions = AstraSimOptions(),  # noqa: B008  it cannot be changed
) -> System:
    """Read a system from the configuration files that are passed to ASTRA-sim.

    Parameters
    ----------
    network
        YAML: topology, npus_count, bandwidth (in GB/s, where 1 GB is 2^30 bytes) and latency.
    system, remote_memory, comm_group
        JSON.
    options
        Command line options of ASTRA-sim.

    Raises
    ------
    InputError
        If a file cannot be read, or has an invalid value.
    """
    given: dict[str, Any] = {
        "network": _read_yaml(Path(network)),
        "system": _read_json(Path(system)),
        "remote_memory": _read_json(Path(remote_memory)) if remote_memory else {},
        "comm_group": _read_json(Path(comm_group)) if comm_group else {},
    }
    own = given["system"].get(_PER_NODE)
    if isinstance(own, str):  # beside the folder that ASTRA-sim is started in, as all it names
        given["system"] |= {_PER_NODE: _read_yaml(Path(own))}
    names = {"network": network, "system": system, "memory": remote_memory, "groups": comm_group}
    try:
        return astra_sim_system(**given, options=options, name=Path(system).name)
    except FormatError as error:  # which says which of the four it is, and where in it
        kind, colon, inside = error.where.partition(":")
        where = f"{names.get(kind) or kind}{colon}{inside}"
        raise FormatError(where, error.what, error.remedy) from None


def read_comm_groups(path: Path | str) -> dict[str, tuple[int, ...]]:
    """Read ASTRA-sim's file of process groups: the ranks of each by name, as ``System.groups``.

    Raises
    ------
    InputError
        If the file cannot be read, or has another structure.
    """
    return decode_json(
        read_settings(Path(path)), dict[str, tuple[GroupRank, ...]], str(path),
        'write a JSON object such as {"1": [0, 1], "2": [2, 3]}', "not a file of process groups",
    )  # fmt: skip


def _read_text(path: Path) -> str:
    try:
        return read_settings(path).decode()
    except UnicodeDecodeError:
        raise InputError(str(path), "is not UTF-8 text", "check the path") from None


def _read_json(path: Path) -> dict[str, Any]:
    remedy = "use the file that is passed to ASTRA-sim"
    return decode_json(read_settings(path), dict[str, Any], str(path), remedy)


def _read_yaml(path: Path) -> dict[str, Any]:
    """Read the YAML of network files: keys with a value, lists in brackets or with dashes."""
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
