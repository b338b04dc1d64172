"""A machine as an estimate needs it, by the names of Calculon's system files.

What varies by configuration, a datatype or a network tier, is looked up for whole arrays.
"""

import math
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from nadi.estimates.execution import DATATYPES, Executions
from nadi.systems.device import Device
from nadi.systems.memory_tiers import LoadedLatency, MemoryTier, at_bandwidth, reached_rate
from nadi.systems.prices.learned_prices import LearnedPrices
from nadi.systems.prices.price_list import PriceList, price
from nadi.systems.system import System
from nadi.trace.arrays import Floats, Ints
from nadi.trace.operations import Operations

OPERATIONS = ("p2p", "reduce_scatter", "all_gather", "all_reduce")
_Many = Annotated[int, Meta(ge=1, le=2**62)]
_Share = Annotated[float, Meta(ge=1e-12, le=1)]
_Amount = Annotated[float, Meta(ge=1e-12, le=1e18)]  # so that no product is too large to hold
_NotNegative = Annotated[float, Meta(ge=0, le=1e18)]
_Efficiency = Annotated[tuple[tuple[_NotNegative, _Share], ...], Meta(min_length=1)]
_Op = tuple[_Amount, Annotated[float, Meta(ge=-1e18, le=1e18)] | None]


def _check_steps(steps: tuple[tuple[float, float], ...], unit: str) -> None:
    sizes = [size for size, _ in steps]
    if sizes != sorted(set(sizes), reverse=True) or sizes[-1] != 0:
        raise ValueError(
            f"efficiencies start at {', '.join(f'{size:g}' for size in sizes)} {unit}, which must "
            "fall, and end with 0"
        )


class Engine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What computes with one datatype."""

    tflops: _Amount  # peak, in 10^12 operations a second
    # pairs of a size in 10^9 operations and the share of the peak that an operation of at least
    # this size reaches; the largest size first, the last 0
    gflops_efficiency: _Efficiency

    def __post_init__(self) -> None:
        _check_steps(self.gflops_efficiency, "GFLOP")


class MemoryColumns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A memory tier as Calculon's files state it, whose figures may be those of many."""

    GiB: _NotNegative  # capacity, in 2^30 bytes; 0 if there is none
    GBps: _Amount  # bandwidth, in 10^9 bytes a second
    # pairs of a size in 10^6 bytes and the share of the bandwidth that an access of at least this
    # size reaches; the largest size first, the last 0
    MB_efficiency: _Efficiency
    # seconds from a request to its first byte; of the second tier, and not by Calculon's rules, as
    # what follows
    latency: _NotNegative = 0.0
    shared_by: _Many = 1  # how many processors share its capacity and bandwidth
    # how its latency grows with load, with the accesses that a processor has under way; by default
    # bandwidth does not depend on load
    loaded: LoadedLatency | None = None
    duplex: bool = False  # whether reads and writes have their bandwidths at once
    GBps_written: _NotNegative = 0.0  # bandwidth of writes; 0 for that of reads
    name: str = ""  # by which offloading names it
    price_per_hour: _NotNegative = 0.0  # of all of it, in the machine's currency; 0 if unknown
    # the most that one processor reads and writes while no other one moves; 0 if nothing limits it
    GBps_alone: tuple[_NotNegative, _NotNegative] = (0.0, 0.0)
    # what it reads, and writes, by itself, one at a time, where ports and paths let less through,
    # but both at once; 0 where they do not
    GBps_of_device: tuple[_NotNegative, _NotNegative] = (0.0, 0.0)

    def __post_init__(self) -> None:
        _check_steps(self.MB_efficiency, "MB")

    @property
    def capacity(self) -> float:
        """Bytes."""
        return self.GiB * 2**30

    def time(self, size: Floats) -> Floats:
        """Give the seconds that accesses of so many bytes take, each alone."""
        return size / (self.GBps * 1e9 * _efficiency(self.MB_efficiency, 1e6, size))

    def moving_time(self, read: Floats, written: Floats, processors: Ints) -> Floats:
        """Give the seconds of moves from and to it.

        - ``read``, ``written``: Bytes of one processor.
        - ``processors``: How many move at once, of which those that share it do so together.
        """
        size = read + written
        movers = np.minimum(processors, self.shared_by)
        sharing = movers / _efficiency(self.MB_efficiency, 1e6, size)
        most = self.GBps_alone
        written_rate = np.where(self.GBps_written, self.GBps_written, self.GBps)
        ways = []
        for moved, rate, reads, limit in (
            (read, self.GBps, 1.0, most[0]), (written, written_rate, 0.0, most[1])
        ):  # fmt: skip
            alone = np.where(movers < self.shared_by, 1.0 / (limit * 1e9) if limit else 0.0, 0.0)
            if self.loaded is not None:
                alone = np.maximum(alone, 1.0 / reached_rate(self.loaded, np.array(reads)))
            ways.append(moved * np.maximum(sharing / (np.asarray(rate) * 1e9), alone))
        longest = np.maximum(*ways)
        if self.GBps_of_device[0] and not self.duplex:
            device = self.device_time(read, 0) + self.device_time(written, 1)
            longest = np.maximum(longest, device * movers)
        elif not self.duplex:
            longest = ways[0] + ways[1]
        return np.where(size > 0, self.latency + longest, 0.0)

    def device_time(self, size: Floats, way: int) -> Floats:
        """Give the seconds in which the device alone reads (0) or writes (1) so many bytes."""
        return size / ((self.GBps_of_device[way] or self.GBps) * 1e9)

    def stages_together(self, executions: Executions) -> Ints:
        """Give how many stages of a pipeline share one, of each execution."""
        stages = -(-self.shared_by // executions.procs_of_stage)
        found: Ints = np.minimum(stages, executions.pipeline_par)
        return found

    def share(self, processors: Ints) -> Floats:
        """Give the bytes that a processor can use of it, of so many in all."""
        return self.capacity / np.minimum(processors, self.shared_by)


class NetworkOps(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many bytes go over a link for each byte of an operation, by (factor, offset).

    Of n members it is ``factor * (1 + offset / n)``; without an offset the factor alone.
    """

    p2p: _Op
    reduce_scatter: _Op
    all_gather: _Op
    all_reduce: _Op


class NetworkTier(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One tier of the network."""

    bandwidth: _Amount  # of a processor, in 10^9 bytes a second
    efficiency: _Share  # the share of it that operations reach
    size: _Many  # how many processors it connects
    latency: _NotNegative  # seconds of an operation
    ops: NetworkOps  # bytes that cross a link
    must_be_filled: bool  # whether what is put on it must divide ``size``
    # the share of a processor that an operation occupies while it runs
    processor_usage: Annotated[float, Meta(ge=0, lt=1)] = 0.0


class NetworkDimension(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One dimension of a network that ranks fill from the first one on."""

    size: _Many  # how many ranks differ in it
    GBps: _Amount  # bandwidth of a rank in one direction, in 10^9 bytes a second
    latency: _NotNegative = 0.0  # seconds of a message between two of its ranks
    # collectives whose members send to all others at once, each on a link of its own; others are
    # rings
    direct: tuple[str, ...] = ()
    # in how many ways rings go over links that pass the ranks in between; 0 where none lies between
    ways: int = 0
    is_line: bool = False  # whether its ends are not joined


class NestedNetwork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A network as Nadi's systems describe it: where ranks stand says which links they use."""

    # the first one is that of neighboring ranks
    dimensions: Annotated[tuple[NetworkDimension, ...], Meta(min_length=1)]
    start: _NotNegative = 0.0  # seconds from the entry into a collective to its first message
    # chunks, least_chunk: into how many parts a collective is cut at most, and the bytes of the
    # smallest part
    chunks: _Many = 1
    least_chunk: _Amount = 1.0


class _Networks(NamedTuple):
    """Columns over network tiers."""

    latency: Floats  # shape (tiers,), or (tiers, executions) where a machine has columns
    speed: Floats
    usage: Floats
    factor: Floats  # shape (tiers, operations)
    offset: Floats  # the same


class MachineDescription(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """Processors, their memory, and the networks between them.

    Attributes
    ----------
    matrix, vector
        The engines for products of matrices, and for everything else, by datatype.
    mem1, mem2
        The processor's memory, and the tier to which tensors can be offloaded.
    processing_mode
        Whether the time of a layer is that of computing and of memory together
        (``no_overlap``), or the longer one (``roofline``).
    networks
        Tiers, which executions name by number.
    name
        What people call it; it has no effect.
    nested
        The network by dimensions, which Nadi's default rules use in the place of tiers.
    system
        The system that was described: what is known about its collectives, by NCCL's model or
        tables of measurements, comes before rings in dimensions.
    device
        What prices kernels under Nadi's default rules; without it the engines do.
    prices
        Of kernels that were recorded, which come before the device's; None without any.
    prices_at
        Whether kernels take their price, or the least or the most of its interval.
    price_per_hour
        Of one processor, in the currency that the system's file names.
    currency
        Of that price.
    """

    matrix: dict[str, Engine]
    vector: dict[str, Engine]
    mem1: MemoryColumns
    mem2: MemoryColumns
    processing_mode: Literal["no_overlap", "roofline"]
    networks: Annotated[tuple[NetworkTier, ...], Meta(min_length=1)]
    name: str = ""
    nested: NestedNetwork | None = None
    system: System | None = None
    device: Device | None = None
    prices: LearnedPrices | None = None
    prices_at: Literal["duration", "low", "high"] = "duration"
    price_per_hour: _NotNegative = 0.0
    currency: str = "USD"

    def kernel_prices(self, operations: Operations) -> PriceList:
        """Give the prices of kernels by recorded ones, or by the curves of the device."""
        assert self.device is not None
        if self.prices is not None:
            return self.prices.price(operations, self.device)
        return price(operations, self.device)

    def compute_time(self, engine: str, datatype: Ints, flops: Floats) -> Floats:
        """Give the seconds of operations.

        Parameters
        ----------
        engine
            ``matrix`` or ``vector``.
        datatype
            Codes, which must be datatypes of the engine: shape (configurations,).
        flops
            Shape (..., configurations).
        """
        engines: dict[str, Engine] = getattr(self, engine)
        codes = np.unique(datatype)
        if codes.size == 1:
            return _compute_time(engines[DATATYPES[codes[0]]], flops)
        seconds = np.zeros(np.broadcast_shapes(flops.shape, datatype.shape))
        for code in codes:
            is_it = np.broadcast_to(datatype == code, seconds.shape)
            seconds = np.where(is_it, _compute_time(engines[DATATYPES[code]], flops), seconds)
        return seconds

    def matrix_peak(self, datatype: Ints) -> Floats:
        """Give the peak of the matrix engine in operations a second, for codes of datatypes."""
        peaks = [self.matrix[name].tflops if name in self.matrix else 0.0 for name in DATATYPES]
        return np.array(peaks)[datatype] * 1e12

    def processing_time(self, compute: Floats, memory: Floats) -> Floats:
        """Give the seconds of layers from the seconds of computing and of memory accesses."""
        if self.processing_mode == "roofline":
            return np.maximum(compute, memory)
        return compute + memory

    @property
    def columns(self) -> _Networks:
        """The network tiers as columns, made once."""
        if "columns_" not in self.__dict__:
            ops = [[getattr(tier.ops, name) for name in OPERATIONS] for tier in self.networks]
            self.__dict__["columns_"] = _Networks(
                _tiers([tier.latency for tier in self.networks]),
                _tiers([tier.bandwidth * 1e9 * tier.efficiency for tier in self.networks]),
                _tiers([tier.processor_usage for tier in self.networks]),
                np.array([[float(op[0]) for op in row] for row in ops]),
                np.array([[float(op[1] or 0) for op in row] for row in ops]),
            )
        found: _Networks = self.__dict__["columns_"]
        return found


def _tiers(numbers: Sequence[float]) -> Floats:
    """Give a number of each tier, of which any may be a column."""
    return np.stack(np.broadcast_arrays(*numbers))


def _compute_time(engine: Engine, flops: Floats) -> Floats:
    return flops / (engine.tflops * 1e12 * _efficiency(engine.gflops_efficiency, 1e9, flops))


def _efficiency(steps: tuple[tuple[float, float], ...], unit: float, size: Floats) -> Floats:
    """Give the efficiency of the largest step that a size reaches."""
    rising = steps[::-1]
    reached = np.searchsorted(np.array([least * unit for least, _ in rising[1:]]), size, "right")
    return np.array([share for _, share in rising])[reached]


def columns_of_tier(
    machine: MachineDescription, tier: MemoryTier, bandwidth: float
) -> MemoryColumns:
    """Give a tier of a bandwidth in 10^9 bytes a second and of any size, as a machine's second."""
    there = at_bandwidth(tier, bandwidth) if math.isfinite(bandwidth) else tier
    return msgspec.structs.replace(
        machine.mem2, GiB=math.inf, GBps=bandwidth, latency=tier.latency / 1e9,
        shared_by=tier.shared_by, loaded=there.loaded if math.isfinite(bandwidth) else None,
        duplex=tier.duplex, GBps_written=0.0, name=tier.name,
        price_per_hour=tier.price_per_hour, GBps_alone=(0.0, 0.0), GBps_of_device=(0.0, 0.0),
    )  # fmt: skip


def network_time(
    machine: MachineDescription, tier: Ints, operation: str, size: Floats, members: Ints
) -> Floats:
    """Give the seconds that an operation takes alone.

    - ``tier``: The network tier, by number.
    - ``operation``: One of ``OPERATIONS``.
    - ``size``: Bytes of the whole tensor. A collective of nothing takes no time, a point-to-point
      transfer of nothing still its latency.
    - ``members``: How many processors take part; a collective of one takes no time.
    """
    networks = machine.columns
    which = OPERATIONS.index(operation)
    share = traffic(machine, tier, operation) * (1 + networks.offset[tier, which] / members)
    latency, speed = _of_tier(networks.latency, tier), _of_tier(networks.speed, tier)
    seconds: Floats = latency + size * share / speed
    if operation == "p2p":
        return seconds
    return np.where((members > 1) & (size > 0), seconds, 0.0)


def traffic(machine: MachineDescription, tier: Ints, operation: str) -> Floats:
    """Give the bytes that an operation moves for each byte of a tensor, among many members."""
    factor: Floats = machine.columns.factor[tier, OPERATIONS.index(operation)]
    return factor


def processor_usage(machine: MachineDescription, tier: Ints) -> Floats:
    """Give the share of a processor that operations on a tier occupy."""
    return _of_tier(machine.columns.usage, tier)


def _of_tier(column: Floats, tier: Ints) -> Floats:
    """Give a number of the tier of each execution."""
    return column[tier] if column.ndim == 1 else column[tier, np.arange(column.shape[1])]
