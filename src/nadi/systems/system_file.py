"""Nadi's system files: parsed, checked, and fitted to a number of ranks.

A file states figures with their units and how its network grows with the job; so one file
holds for 4 ranks and for 64. ``docs/systems.md`` describes it.

The sections of a system file: their keys, and what each may be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, NoReturn, TypeVar

import msgspec
from msgspec import inspect

from nadi.errors import FormatError, UsageError
from nadi.files.settings_text import convert_settings, possible_types
from nadi.systems.device import Device, plain_device, scaled_device
from nadi.systems.fabrics import (
    FabricPart,
    GivenRoute,
    LinkPart,
    changes_of,
    fabrics_of,
    given_routes,
)
from nadi.systems.memory_section import (
    MOST_LATENCY,
    MemoryPart,
    memory_paths,
    memory_tiers,
    remote_memory,
)
from nadi.systems.memory_tiers import MemoryPath
from nadi.systems.nccl.nccl_settings import NcclSection, NcclSettings, nccl_settings
from nadi.systems.system import (
    Bus,
    Collectives,
    Compute,
    Dimension,
    Network,
    System,
    parse_algorithm,
)
from nadi.trace.collectives import COLLECTIVES
from nadi.units import format_count, parse_bytes, parse_ns, parse_operations, parse_rate

Algorithms = str | tuple[str, ...]


class SystemPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A section of a file; unknown keys are errors."""


class DimensionPart(SystemPart, frozen=True):
    """A dimension of the network."""

    topology: Literal["ring", "fully-connected", "switch", "mesh", "torus"]
    bandwidth: str
    latency: str = "0 ns"
    size: int | Literal["any"] = "any"


class NetworkPart(SystemPart, frozen=True):
    """The network: dimensions, and what physical links they run on."""

    dimensions: tuple[DimensionPart, ...]
    shapes: tuple[str, ...] = ()
    congestion: bool = False
    rendezvous: bool = False
    fabrics: tuple[FabricPart, ...] = ()
    links: dict[str, LinkPart] = {}
    routes: tuple[GivenRoute, ...] = ()


class ComputePart(SystemPart, frozen=True):
    """The device of a rank."""

    peak: str = ""
    time: Literal["recorded", "roofline"] = "recorded"
    devices: tuple[str, ...] = ()
    device: str = ""
    efficiency: float = 0.0


class BusPart(SystemPart, frozen=True):
    """A memory bus that a rank's packets share."""

    latency: str = "0 ns"
    overhead: str = "0 ns"
    pause: str = "0 ns"
    bandwidth: str = ""
    reduction: str = "1 ns"


class CollectivesPart(SystemPart, frozen=True):
    """How collectives run."""

    all_reduce: Algorithms = "ring"
    reduce_scatter: Algorithms = "ring"
    all_gather: Algorithms = "ring"
    all_to_all: Algorithms = "direct"
    broadcast: Algorithms = "ring"
    reduce: Algorithms = "ring"
    gather: Algorithms = "direct"
    scatter: Algorithms = "direct"
    barrier: Algorithms = ()
    bandwidth_aware: bool = True
    chunks: int = 1
    least_chunk: str = "1 B"
    endpoint_delay: str = "10 ns"
    group_endpoint_delay: str = ""
    injection_scale: int = 1
    start: str = "0 ns"
    custom: dict[str, str] = {}


class SchedulingPart(SystemPart, frozen=True):
    """What runs at once, and in which order."""

    active_chunks: int = 1
    queues: int = 1
    policy: Literal["fifo", "lifo", "explicit"] = "fifo"
    slots: Literal["device", "astra-sim"] | None = None
    replay_only: bool = False


class CostPart(SystemPart, frozen=True):
    """What a rank costs."""

    rank_hour: float = 0.0
    currency: str = "USD"


_Value = TypeVar("_Value")
# a rank of a process group; whether a job has it is checked where the job is known
GroupRank = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]
_NOT_IN_FILES = ("name", "kernels")  # keys that who reads a file sets
_PLACEHOLDERS = ("tbd", "tba", "todo", "?", "n/a")
_MOST = 1 << 31  # of anything that is counted
_MOST_CHUNKS = 1 << 16  # each is simulated
_SHAPE = re.compile(r"\d+\*?(x\d+\*?)*")


class SystemFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a system file, with units as written; ``fit`` creates a System.

    Attributes
    ----------
    about, source
        One line each: description, and source of the figures.
    compute, memory, network, collectives, scheduling, bus, groups, cost, compat, nccl
        Its sections.
    name
        Of the file.
    kernels
        The kernel model of its device, which ``compute.device`` names.
    """

    network: NetworkPart
    about: str = ""
    source: str = ""
    compute: ComputePart = ComputePart()
    memory: MemoryPart = MemoryPart()
    collectives: CollectivesPart = CollectivesPart()
    scheduling: SchedulingPart = SchedulingPart()
    bus: BusPart | None = None
    groups: dict[str, tuple[GroupRank, ...]] = {}
    cost: CostPart = CostPart()
    compat: Literal["", "astra-sim"] = ""
    nccl: NcclSection | None = None
    name: str = ""
    kernels: Device | None = None

    @property
    def peak(self) -> float:
        """Operations per second of a rank's device; 0 if not stated."""
        return self._stated("$.compute.peak", self.compute.peak, parse_operations, 0.0)

    @property
    def memory_bandwidth(self) -> float:
        """Bytes per second of a rank's memory; 0 if not stated."""
        return self._stated("$.memory.bandwidth", self.memory.bandwidth, parse_rate, 0.0)

    @property
    def memory_capacity(self) -> int:
        """Bytes of a rank's memory; 0 if not stated."""
        return self._stated("$.memory.capacity", self.memory.capacity, parse_bytes, 0)

    @property
    def ranks(self) -> str:
        """The supported numbers of ranks, as text."""
        if self.network.shapes:
            sizes = sorted(_product(_sizes(shape)) for shape in self.network.shapes)
            return ", ".join(map(format_count, sizes))
        fixed = [d.size for d in self.network.dimensions if isinstance(d.size, int)]
        most = _product(fixed)
        if len(fixed) == len(self.network.dimensions):
            return f"1 to {most}" if len(fixed) == 1 else f"up to {most}"
        if not fixed:
            return "any number"
        return f"1 to {fixed[0]}, or a multiple of {most}"

    def with_groups(self, groups: dict[str, tuple[int, ...]]) -> SystemFile:
        """Return a copy with the ranks of process groups, which override those in the file."""
        return msgspec.structs.replace(self, groups=self.groups | groups)

    def with_kernels(self, device: Device) -> SystemFile:
        """Return a copy with the kernel model of its device, as rates of this system allow."""
        return msgspec.structs.replace(self, kernels=device)

    def fit(self, num_ranks: int | None = None) -> System:
        """Create the system for a number of ranks.

        Ranks fill the first dimension before the second: a job smaller than a node uses part of
        it, and a larger job uses whole nodes. A network with shapes uses the shape with this
        number of ranks.

        Parameters
        ----------
        num_ranks
            By default the product of all fixed dimensions (a node), or the largest shape.

        Raises
        ------
        UsageError
            If the system does not support this number of ranks.
        FormatError
            If a value is invalid; the message names its path and valid values.
        """
        own = self.network
        if num_ranks is None:
            fixed = [d.size for d in own.dimensions if isinstance(d.size, int)]
            shapes = [_product(_sizes(shape)) for shape in own.shapes]
            num_ranks = max(shapes) if shapes else _product(fixed)
        all_dimensions = self._dimensions()
        sizes = self._shape(num_ranks) if own.shapes else self._filled(num_ranks)
        kept = [d for d, (size, _) in enumerate(sizes) if size > 1] or [0]
        dimensions = tuple(
            msgspec.structs.replace(
                all_dimensions[d],
                size=sizes[d][0],
                **({"topology": "ring" if sizes[d][1] else "mesh"} if own.shapes else {}),
            )
            for d in kept
        )
        paths = self._memory_paths(kept)
        return System(
            network=self._network(dimensions),
            compute=Compute(
                roofline=self.compute.time == "roofline",
                peak=self.peak,
                memory_bandwidth=self.memory_bandwidth,
                replay_only=self.scheduling.replay_only,
                device=self._device(),
            ),
            memory_capacity=self.memory_capacity,
            remote_memory=remote_memory(self.memory.remote, self.name),
            memory_paths=paths,
            tiers=memory_tiers(self.memory.tiers, paths, self.name),
            collectives=self._collectives(kept),
            bus=self._bus(),
            groups=self.groups,
            slots=self.scheduling.slots or ("astra-sim" if self.compat else "device"),
            compat=self.compat,
            nccl=self._nccl(),
            name=self.name,
            price_per_hour=self.cost.rank_hour,
            currency=self.cost.currency,
        )

    def check(self) -> None:
        """Raise FormatError with the path of the first invalid value."""
        own = self.network
        if not own.dimensions:
            _refuse(self.name, "$.network.dimensions", "there are none", "describe at least one")
        for d, dimension in enumerate(own.dimensions):
            where = f"$.network.dimensions[{d}]"
            if own.shapes:
                if dimension.topology != "torus" or dimension.size != "any":
                    _refuse(
                        self.name, where, "a network with shapes has topology torus and no size",
                        "remove the shapes, or the size",
                    )  # fmt: skip
            elif isinstance(dimension.size, int) and not 1 <= dimension.size <= _MOST:
                what = f"{dimension.size} is not 1 to 2^31"
                _refuse(self.name, f"{where}.size", what, "give another one")
            elif dimension.size == "any" and d < len(own.dimensions) - 1:
                _refuse(
                    self.name, f"{where}.size", "only the last dimension may have any size",
                    "give a number",
                )  # fmt: skip
        for k, shape in enumerate(own.shapes):
            fits = _SHAPE.fullmatch(shape) and len(_sizes(shape)) == len(own.dimensions)
            if not fits or 0 in _sizes(shape):
                _refuse(
                    self.name, f"$.network.shapes[{k}]", f"{shape!r} is not a shape",
                    f"write {len(own.dimensions)} sizes such as 4x8*; * joins the ends",
                )  # fmt: skip
        physical = [key for key in ("fabrics", "links", "routes") if getattr(own, key)]
        if physical and (self.compat or own.congestion):
            other = "network.congestion" if own.congestion else f"compat = {self.compat!r}"
            _refuse(
                self.name, f"$.network.{physical[0]}",
                f"with {other} messages take the links of the dimensions", "remove one of the two",
            )  # fmt: skip
        if self.compute.time == "roofline" and not (self.compute.peak and self.memory.bandwidth):
            _refuse(
                self.name, "$.compute.time", "a roofline needs compute.peak and memory.bandwidth",
                "state both, or use recorded times",
            )  # fmt: skip
        self._check_shares()
        self._check_compat()
        slots = self.scheduling.slots or ("astra-sim" if self.compat else "device")
        if self.scheduling.policy != "fifo" and slots != "device":
            _refuse(
                self.name, "$.scheduling.policy", "it has no effect with slots = 'astra-sim'",
                "remove it, or set slots = 'device'",
            )  # fmt: skip
        self.fit()

    def _check_compat(self) -> None:
        """Raise FormatError for sections that other rules do not know."""
        if not self.compat:
            return
        if self.scheduling.slots == "device":
            _refuse(
                self.name, "$.scheduling.slots", f"compat = {self.compat!r} sets the slots itself",
                "remove one of the two",
            )  # fmt: skip
        without_effect = {"nccl": self.nccl, "memory.tiers": self.memory.tiers}
        for key, stated in without_effect.items():
            if stated:
                what = f"it has no effect with compat = {self.compat!r}"
                _refuse(self.name, f"$.{key}", what, "remove one of the two")

    def _check_shares(self) -> None:
        """Raise FormatError for efficiencies that are no shares, and a negative price."""
        shares = {"$.compute.efficiency": self.compute.efficiency,
                  "$.memory.efficiency": self.memory.efficiency}  # fmt: skip
        for where, share in shares.items():
            if not 0 <= share <= 1:
                _refuse(self.name, where, f"{share:g} is not 0 to 1", "state a share of the rate")
            if share and self.compute.device:
                what = "the curves of compute.device say what kernels reach"
                _refuse(self.name, where, what, "leave out one of the two")
        if not 0 <= self.cost.rank_hour < float("inf"):
            what = f"{self.cost.rank_hour:g} is no price"
            _refuse(self.name, "$.cost.rank_hour", what, "state that of an hour of one rank")

    def _stated(
        self, where: str, text: str, parse: Callable[[str], _Value], otherwise: _Value
    ) -> _Value:
        """Return the value of an optional key."""
        return _quantity(self.name, where, text, parse) if text else otherwise

    def _dimensions(self) -> list[Dimension]:
        """Return all dimensions, each with size 1."""
        found = []
        for d, given in enumerate(self.network.dimensions):
            where = f"$.network.dimensions[{d}]"
            rate = _quantity(self.name, f"{where}.bandwidth", given.bandwidth, parse_rate)
            latency = _quantity(self.name, f"{where}.latency", given.latency, parse_ns)
            topology = "ring" if given.topology == "torus" else given.topology
            found.append(Dimension(topology, 1, rate / 1e9, float(latency)))
        return found

    def _network(self, dimensions: tuple[Dimension, ...]) -> Network:
        """Return the network with its physical links."""
        own = self.network
        return Network(
            dimensions,
            own.congestion,
            own.rendezvous,
            fabrics_of(own.fabrics, self.name),
            changes_of(own.links, self.name),
            given_routes(own.routes, self.name),
        )

    def ranks_with_room(self, num_ranks: int) -> int:
        """Return the ranks of the smallest of its shapes with so many, or as many without shapes.

        More than the largest has stay as many, which :meth:`fit` refuses.
        """
        sizes = [_product(_sizes(shape)) for shape in self.network.shapes]
        return min((size for size in sizes if size >= num_ranks), default=num_ranks)

    def _filled(self, num_ranks: int) -> list[tuple[int, bool]]:
        """Return the sizes of all dimensions, filled from the first."""
        left, sizes = num_ranks, []
        for dimension in self.network.dimensions:
            size = left if dimension.size == "any" else min(left, dimension.size)
            if size < 1 or left % size:
                raise self._not_for(num_ranks)
            left //= size
            sizes.append((size, False))
        if left != 1:
            raise self._not_for(num_ranks)
        return sizes

    def _shape(self, num_ranks: int) -> list[tuple[int, bool]]:
        """Return the sizes of the shape for a number of ranks, and whether its ends are joined."""
        for shape in self.network.shapes:
            if _product(_sizes(shape)) == num_ranks:
                joined = ["*" in part for part in shape.split("x")]
                return list(zip(_sizes(shape), joined, strict=True))
        raise self._not_for(num_ranks)

    def _not_for(self, num_ranks: int) -> UsageError:
        what = "size of a dimension" if not self.network.shapes else "shapes"
        return UsageError(
            f"system {self.name}", f"it does not fit {num_ranks} ranks, only {self.ranks}",
            f"change the {what} in a copy of its file (nadi systems NAME)",
        )  # fmt: skip

    def _device(self) -> Device | None:
        """Return what prices computations without a time; None if rates are not stated."""
        if self.compat:
            return None
        if self.kernels:
            return scaled_device(self.kernels, self.peak, self.memory_bandwidth)
        if not (self.peak and self.memory_bandwidth):
            return None
        shares = self.compute.efficiency or 1.0, self.memory.efficiency or 1.0
        return plain_device(self.peak, self.memory_bandwidth, shares=shares)

    def _nccl(self) -> NcclSettings | None:
        """Return how NCCL does collectives; its nodes are the first dimension."""
        if self.nccl is None:
            return None
        size = self.network.dimensions[0].size
        if not isinstance(size, int):
            _refuse(
                self.name, "$.nccl", "the first dimension, its node, has any size",
                "give $.network.dimensions[0].size",
            )  # fmt: skip
        return nccl_settings(self.nccl, size, self.name)

    def _memory_paths(self, kept: list[int]) -> tuple[MemoryPath, ...]:
        """Return the paths to memory; ``kept`` are the dimensions that are used."""
        known = [fabric.name for fabric in self.network.fabrics]
        positions = {fabric: i for i, fabric in enumerate(known)}
        if not known:
            known = [f"dimension{d}" for d in range(len(self.network.dimensions))]
            positions = {f"dimension{d}": i for i, d in enumerate(kept)}
        return memory_paths(self.memory.paths, positions, known, self.name)

    def _bus(self) -> Bus | None:
        given = self.bus
        if given is None:
            return None
        names = ("latency", "overhead", "pause", "reduction")
        times = {
            name: _quantity(self.name, f"$.bus.{name}", getattr(given, name), parse_ns)
            for name in names
        }
        rate = self._stated("$.bus.bandwidth", given.bandwidth, parse_rate, 0.0)
        return Bus(gap=1e9 / rate if rate else 0.0, **times)  # ns a byte

    def _collectives(self, kept: list[int]) -> Collectives:
        """Return algorithms for the dimensions that are used."""
        given = self.collectives
        algorithms: dict[str, Any] = {}
        for comm_type in filter(given.__struct_fields__.__contains__, COLLECTIVES):
            where = f"$.collectives.{comm_type}"
            stated = getattr(given, comm_type)
            names = (stated,) if isinstance(stated, str) else stated
            if comm_type == "barrier" and not names:
                continue  # as an all-reduce
            count = len(self.network.dimensions)
            if not 0 < len(names) <= count:
                _refuse(
                    self.name, where, f"{len(names)} algorithms for {count} dimensions",
                    "give one for all, or one per dimension",
                )  # fmt: skip
            for name in names:
                parse_algorithm(name, f"{self.name}: {where}")
            algorithms[comm_type] = tuple(names[min(d, len(names) - 1)] for d in kept)
        least = _quantity(self.name, "$.collectives.least_chunk", given.least_chunk, parse_bytes)
        where = "$.collectives.endpoint_delay"
        delay = _quantity(self.name, where, given.endpoint_delay, _parse_delay)
        of_groups = self._stated(
            "$.collectives.group_endpoint_delay", given.group_endpoint_delay, _parse_delay, delay
        )
        start = _quantity(self.name, "$.collectives.start", given.start, _parse_delay)
        counts = {
            "collectives.chunks": (given.chunks, _MOST_CHUNKS),
            "collectives.injection_scale": (given.injection_scale, _MOST),
            "scheduling.active_chunks": (self.scheduling.active_chunks, _MOST),
            "scheduling.queues": (self.scheduling.queues, _MOST),
        }
        for path, (count, most) in counts.items():
            if not 1 <= count <= most:
                limit = "2^31" if most == _MOST else str(most)
                _refuse(self.name, f"$.{path}", f"{count} is not 1 to {limit}", "give another one")
        delay *= given.injection_scale
        if delay > MOST_LATENCY:
            _refuse(
                self.name, "$.collectives.injection_scale",
                "with it, endpoint_delay is longer than an hour", "give a smaller one",
            )  # fmt: skip
        return Collectives(
            **algorithms,
            bandwidth_aware=given.bandwidth_aware,
            chunks=given.chunks,
            least_chunk=max(least, 1),
            active_chunks=self.scheduling.active_chunks,
            queues=self.scheduling.queues,
            policy=self.scheduling.policy,
            custom=given.custom,
            custom_by_node={},
            endpoint_delay=delay,
            group_endpoint_delay=of_groups,
            start_time=start,
        )


def system_from(value: Any, name: str) -> SystemFile:
    """Check a description that is given as a dict with the keys of a file.

    - Raises FormatError if a key is unknown or a value is invalid; the message names the JSON path.
    """
    if isinstance(value, dict) and "kernels" in value:
        what = "unknown field `kernels`"
        raise FormatError(f"{name}: $", what, _remedy(what, "$"))
    if missing := list(_to_be_determined(value, "$")):
        raise FormatError(
            f"{name}: {', '.join(missing)}",
            "what is to be determined is no figure", "write a number with its unit for each",
        )  # fmt: skip
    found = convert_settings(value, SystemFile, name, _remedy)
    found = msgspec.structs.replace(found, name=name)
    found.check()
    return found


def _to_be_determined(value: Any, path: str) -> Iterator[str]:
    """Find the paths of values that hold a place only, such as ``tbd``."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _to_be_determined(one, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from _to_be_determined(one, f"{path}[{number}]")
    elif isinstance(value, str) and value.strip().lower() in _PLACEHOLDERS:
        yield path


def _remedy(what: str, path: str) -> str:
    """Return the remedy for an invalid value at a path of a file."""
    possible = possible_types(SystemFile, path)
    if "unknown field" in what:
        keys = [
            key.encode_name
            for one in possible
            if isinstance(one, inspect.StructType)
            for key in one.fields
            if one.cls is not SystemFile or key.name not in _NOT_IN_FILES
        ]
        return f"known keys: {', '.join(keys)} (docs/systems.md)"
    words = [
        str(word or "nothing")
        for one in possible
        if isinstance(one, inspect.LiteralType)
        for word in one.values
    ]
    if words:
        if any(isinstance(one, inspect.IntType) for one in possible):
            words.append("a whole number")
        return f"expected one of: {', '.join(words)} (docs/systems.md)"
    if what in ("expected `str`, got `int`", "expected `str`, got `float`"):
        return 'write a number with its unit as a string: "400 GB/s", "500 ns"'
    return "docs/systems.md lists all keys; nadi systems NAME prints an example"


def _sizes(shape: str) -> list[int]:
    return [int(part.rstrip("*")) for part in shape.split("x")]


def _product(sizes: list[int]) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product


def _parse_delay(text: str) -> int:
    """Read a time that many messages take each, so that it must stay far below the largest one."""
    delay = parse_ns(text)
    if delay > MOST_LATENCY:
        raise ValueError(f"{text!r} is longer than an hour")
    return delay


def _quantity(name: str, where: str, text: str, parse: Callable[[str], _Value]) -> _Value:
    try:
        return parse(text)
    except ValueError as error:
        raise FormatError(
            f"{name}: {where}", str(error), "write the number with its unit"
        ) from None


def _refuse(name: str, where: str, what: str, remedy: str) -> NoReturn:
    raise FormatError(f"{name}: {where}", what, remedy)
