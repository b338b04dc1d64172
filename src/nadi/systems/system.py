"""A system as values: compute, memory, network and collectives.

Bandwidths are bytes per ns and latencies ns, as floats; files give them with their units.
"""

import re
from typing import Annotated, Literal

import msgspec

from nadi.errors import UsageError
from nadi.systems.device import Device
from nadi.systems.fabrics import Fabric, GivenRoute, LinkChange
from nadi.systems.memory_tiers import OWN_TIERS, MemoryPath, MemoryTier
from nadi.systems.nccl.measured import MeasuredCollective
from nadi.systems.nccl.nccl_settings import NcclSettings
from nadi.trace.collectives import COLLECTIVES

# those that it simulates
ASTRA_SIM_COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")
_Positive = Annotated[float, msgspec.Meta(gt=0)]
_NotNegative = Annotated[float, msgspec.Meta(ge=0)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]
_Chunks = Annotated[int, msgspec.Meta(ge=1, le=1 << 16)]  # each is simulated
_Ns = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
_Bytes = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
_ALGORITHM = re.compile(r"(one)?(ring|biring|direct|halvingdoubling|doublebinarytree)(\d*)")


class Dimension(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One dimension of a network: topology, bandwidth and latency.

    ``bandwidth`` is that of one link, in bytes per ns; ``latency`` is that of one link, in ns.
    """

    topology: Literal["ring", "fully-connected", "switch", "mesh"]
    size: _Count
    bandwidth: _Positive
    latency: _NotNegative = 0.0


class Network(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dimensions, starting with the one of neighboring ranks, and whether links contend.

    Collectives go by dimensions. ``fabrics`` are what bytes take, from the inmost one, if that is
    not the links of the dimensions; ``changes`` are links that are not as others, and ``routes``
    take the place of those that would be found.
    """

    dimensions: tuple[Dimension, ...]
    congestion: bool = False
    rendezvous: bool = False
    fabrics: tuple[Fabric, ...] = ()
    changes: tuple[LinkChange, ...] = ()
    routes: tuple[GivenRoute, ...] = ()

    @property
    def is_physical(self) -> bool:
        """Whether bytes take other links than those of the dimensions, or links are changed."""
        return bool(self.fabrics or self.changes)

    @property
    def num_ranks(self) -> int:
        """Product of the sizes of all dimensions."""
        product = 1
        for dimension in self.dimensions:
            product *= dimension.size
        return product


class Compute(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The time of computation: as recorded, or from operations and bytes (roofline).

    ``peak`` is in operations per s and ``memory_bandwidth`` in bytes per s. ``replay_only``
    takes the recorded time of every node, communication too. ``device`` prices computations
    that have no time (:func:`nadi.systems.price_job`); without it they take none.
    """

    roofline: bool = False
    peak: float = 0.0
    memory_bandwidth: _NotNegative = 0.0
    replay_only: bool = False
    device: Device | None = None

    def peak_of(self, dtype: str) -> float:
        """Give the peak of a datatype in operations per s; 0 if it is unknown."""
        return self.device.peak_of(dtype) if self.device else self.peak


class Bus(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A bus that the packets of a rank share: LogGP's parameters in ns, ``gap`` per byte.

    ``reduction`` is the time in ns that 100 bytes take to reduce.
    """

    latency: _Ns = 0
    overhead: _Ns = 0
    pause: _Ns = 0
    gap: _NotNegative = 0.0
    reduction: _Ns = 1


class Collectives(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How collectives run.

    Attributes
    ----------
    all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, reduce, gather, scatter
        An algorithm for each dimension, or one that begins with ``one`` for all ranks as one
        dimension: ``ring``, ``biring``, ``direct``, ``direct4``, ``halvingDoubling``,
        ``doubleBinaryTree``. ``biring`` sends half of each part either way round, where ways
        have links of their own: in a ring or fully connected dimension; elsewhere it is a ring.
    barrier
        The same for barriers; by default a barrier is an all-reduce of one byte.
    bandwidth_aware
        An all-reduce of several dimensions scatters, reduces in the last, and gathers.
    chunks
        Number of chunks of a collective.
    least_chunk
        Minimum bytes per chunk if there are several chunks; not with ``compat``.
    active_chunks, queues
        Number of chunks that a dimension processes at once, and number of its queues.
    policy
        Order of collectives in a queue with ``slots = "device"``: ``fifo`` first in first out,
        ``lifo`` last in first out, ``explicit`` highest ``comm_priority`` first.
    custom
        Paths of traces with a custom algorithm, by collective type: an .et per rank,
        whose sends, receives and computations only wait for each other.
    custom_by_node
        The same by node id of a collective, which is equal on all ranks; takes precedence over
        ``custom``.
    endpoint_delay, group_endpoint_delay
        Time in ns that a rank spends on a packet, in collectives of all ranks and of groups.
    start_time
        Time in ns from when a member enters a collective to its first packet; not with
        ``compat``.
    """

    all_reduce: tuple[str, ...] = ("ring",)
    reduce_scatter: tuple[str, ...] = ("ring",)
    all_gather: tuple[str, ...] = ("ring",)
    all_to_all: tuple[str, ...] = ("direct",)
    broadcast: tuple[str, ...] = ("ring",)
    reduce: tuple[str, ...] = ("ring",)
    gather: tuple[str, ...] = ("direct",)
    scatter: tuple[str, ...] = ("direct",)
    barrier: tuple[str, ...] = ()
    bandwidth_aware: bool = True
    chunks: _Chunks = 1
    least_chunk: _Count = 1
    active_chunks: _Count = 1
    queues: _Count = 1
    policy: Literal["fifo", "lifo", "explicit"] = "fifo"
    custom: dict[str, str] = {}
    custom_by_node: dict[int, str] = {}
    endpoint_delay: _Ns = 10
    group_endpoint_delay: _Ns = 10
    start_time: _Ns = 0

    @property
    def custom_traces(self) -> set[str]:
        """Where all traces of collectives are that have some of their own."""
        return {*self.custom.values(), *self.custom_by_node.values()}

    def algorithms(self, comm_type: str) -> tuple[str, ...]:
        """Return the algorithms of a collective type, or those of its stand-in if it has none.

        Raises
        ------
        UsageError
            If it is a type that is not simulated, such as ``other``.
        """
        if comm_type not in COLLECTIVES:
            what = f"a collective of type {comm_type} is not simulated"
            raise UsageError("collective", what, f"there are {', '.join(COLLECTIVES)}")
        stated: tuple[str, ...] = getattr(self, comm_type, ())
        other = COLLECTIVES[comm_type].stand_in
        return stated if stated or not other else self.algorithms(other)


class System(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A system to simulate a job on.

    Attributes
    ----------
    remote_memory
        What loads and stores use that name no tier (:func:`remote_tier`); its bandwidth and
        latency are whole numbers, and a pool serves one access after the other.
    bus
        The bus that packets share, instead of endpoint delays.
    groups
        Ranks of process groups by name, in ring order; for other names, the groups in the
        traces are used.
    slots
        ``device``: threads and streams of a rank do one thing after the other and all of them
        at once, and so does communication; ``astra-sim``: a rank does one thing on the host,
        one on the device and one that communicates at a time.
    compat
        ``astra-sim`` reproduces that simulator's results, with its quirks.
    ignored
        Settings in the source files that have no effect.
    memory_capacity
        Memory bytes of a rank's device; 0 if unknown. It does not limit the simulation.
    nccl
        How NCCL does collectives on it; what NCCL's model knows then takes its times. None: all
        are simulated.
    measured
        Tables of measured collectives, which come before what a model says.
    price_per_hour, currency
        Of a rank; 0 if unknown.
    tiers
        Memory beyond that of a rank's device, from the nearest one.
    memory_paths
        Links over which ranks reach tiers, by name.
    """

    network: Network
    compute: Compute = Compute()
    remote_memory: MemoryTier | None = None
    collectives: Collectives = Collectives()
    bus: Bus | None = None
    groups: dict[str, tuple[int, ...]] = {}
    slots: Literal["device", "astra-sim"] = "device"
    compat: Literal["", "astra-sim"] = ""
    name: str = ""
    ignored: tuple[str, ...] = ()
    memory_capacity: _Bytes = 0
    nccl: NcclSettings | None = None
    measured: tuple[MeasuredCollective, ...] = ()
    price_per_hour: _NotNegative = 0.0
    currency: str = ""
    tiers: tuple[MemoryTier, ...] = ()
    memory_paths: tuple[MemoryPath, ...] = ()

    @property
    def own_tier(self) -> MemoryTier:
        """Tier 1: the memory of a rank's device."""
        rate = self.compute.memory_bandwidth / 1e9
        return MemoryTier(
            name=OWN_TIERS[0], kind="hbm", capacity=self.memory_capacity, read_bandwidth=rate,
            write_bandwidth=rate,
        )  # fmt: skip

    @property
    def has_memory_pool(self) -> bool:
        """Whether remote memory serves the accesses of several ranks one after the other."""
        return self.remote_memory is not None and self.remote_memory.kind == "cxl-pool"

    def path_of(self, tier: MemoryTier) -> MemoryPath | None:
        """Return the path over which a tier is reached; None if it has none of its own."""
        return next((path for path in self.memory_paths if path.name == tier.path), None)


class Algorithm(msgspec.Struct, frozen=True):
    """An algorithm by name; ``window`` is -1 for all at once, ``single`` ignores dimensions."""

    name: str
    window: int
    single: bool


def parse_algorithm(text: str, where: str) -> Algorithm:
    """Parse the name of an algorithm, such as ``direct4``.

    - Raises UsageError if the algorithm is unknown.
    """
    found = _ALGORITHM.fullmatch(text.lower())
    if not found or (found[3] and found[2] != "direct") or found[3] == "0":
        raise UsageError(
            where, f"{text!r} is not a known algorithm",
            "use ring, biring, direct, direct<window>, halvingDoubling or doubleBinaryTree, "
            "each also with the prefix one",
        )  # fmt: skip
    return Algorithm(found[2], int(found[3] or -1), bool(found[1]))
