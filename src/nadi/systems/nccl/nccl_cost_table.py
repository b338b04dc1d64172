"""Latency and bandwidth of each collective, algorithm and protocol, as NCCL computes them.

NCCL fills this table when a communicator is made (``src/graph/tuning.cc``), and chooses by it
(``src/enqueue.cc``).
"""

from typing import NamedTuple

import msgspec
import numpy as np

from nadi.systems.nccl.nccl_versions import NcclRules
from nadi.trace.arrays import Floats, Ints

ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")
COLLECTIVES = ("broadcast", "reduce", "all_gather", "reduce_scatter", "all_reduce")
EXCHANGE = "all_to_all"  # of which NCCL's model has nothing; its times are those of measurements
# what lies between two GPUs, or a GPU and its adapter, from near to far, in NCCL's words
PATH_TYPES = (
    "LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET", "DIS",
)  # fmt: skip


class ChannelGraph(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How NCCL lays an algorithm over a machine, as its topology search finds it.

    Attributes
    ----------
    channels
        That work in parallel.
    bandwidth_intra, bandwidth_inter
        GB/s (10^9 bytes) of a channel, within a node and between nodes.
    type_intra, type_inter
        The longest path of a channel between GPUs, and between GPU and adapter: of PATH_TYPES.
    latency_inter
        Of the adapter, us.
    same_channels
        Whether all channels visit GPUs in the same order.
    pattern
        NCCL's number of the pattern; 3 is a tree whose traffic all passes one GPU of a node.
    """

    channels: int
    bandwidth_intra: float
    bandwidth_inter: float
    type_intra: str = "NVL"
    type_inter: str = "PIX"
    latency_inter: float = 0.0
    same_channels: bool = True
    pattern: int = 4


class NcclCommunicator(msgspec.Struct, frozen=True):
    """The ranks of a collective, and what NCCL finds under them.

    Attributes
    ----------
    ranks, nodes
        Their numbers; GPUs of one multi-node NVLink domain are one node.
    capability, highest_capability
        The lowest and highest compute capability of the GPUs, 90 for 9.0.
    cpu, cpu_vendor
        The architecture of the hosts: x86, arm, power or mixed; and of x86 its maker: intel,
        amd, zhaoxin or mixed.
    graphs
        By algorithm; those that are missing cannot be used.
    channels
        Of the communicator, after NCCL has doubled those of its graphs.
    nvswitch
        Whether GPUs are connected by NVSwitch.
    collnet
        Whether a network plugin reduces in switches (SHARP).
    """

    ranks: int
    nodes: int
    capability: int
    graphs: dict[str, ChannelGraph]
    channels: int
    highest_capability: int = 0
    cpu: str = "x86"
    cpu_vendor: str = "intel"
    nvswitch: bool = True
    collnet: bool = False

    @property
    def ranks_per_node(self) -> float:
        """As NCCL counts them: not a whole number if nodes differ."""
        return self.ranks / self.nodes

    @property
    def architecture(self) -> int:
        """The row of NCCL's tables: 0 Volta, 1 Ampere, 2 Hopper, 3 Blackwell."""
        return sum(self.capability >= first for first in (80, 90, 100))

    @property
    def scale(self) -> int:
        """The column of NCCL's tables: 0 one node, 1 two nodes, 2 more."""
        return min(self.nodes, 3) - 1


_GATHERS = ("all_gather", "reduce_scatter")
_COLLNET = ("CollNetDirect", "CollNetChain")
_MOST_COLLNET = 8  # GPUs of a node: NCCL_MAX_DIRECT_ARITY and this one
_SIMPLE_ONLY = ("NVLS", "NVLSTree", "PAT")


class NcclCost(NamedTuple):
    """Of one collective, algorithm and protocol."""

    latency: float  # us
    bandwidth: float  # GB/s of the bytes of the collective; 0 if NCCL does not use it


CostTable = dict[tuple[str, str, str], NcclCost]
"""Costs by collective, algorithm and protocol."""


class _Case(NamedTuple):
    """One entry of the table, and what it is computed from."""

    collective: str
    algorithm: str
    protocol: str
    graph: ChannelGraph
    steps: int


def nccl_costs(
    communicator: NcclCommunicator, rules: NcclRules
) -> CostTable:  # fmt: skip
    """Compute NCCL's table, in NCCL's order.

    What NCCL has no kernel for is left out; what it has but does not use has bandwidth 0.
    """
    table = {}
    for collective in COLLECTIVES:
        for algorithm in ALGORITHMS:
            graph = communicator.graphs.get(algorithm)
            if graph is None or not _exists(collective, algorithm, communicator, rules):
                continue
            for protocol in PROTOCOLS:
                if protocol != "Simple" and algorithm in _SIMPLE_ONLY:
                    continue
                steps = ring_steps(collective, communicator.ranks)
                case = _Case(collective, algorithm, protocol, graph, steps)
                used = _is_used(case, communicator)
                table[collective, algorithm, protocol] = NcclCost(
                    _latency(case, communicator, rules),
                    _bandwidth(case, communicator, rules) if used else 0.0,
                )
    return table


def ring_steps(collective: str, ranks: int) -> int:
    """Count the steps of a ring."""
    if collective == "all_reduce":
        return 2 * (ranks - 1)
    return ranks - 1 if collective in _GATHERS else ranks


def _exists(
    collective: str, algorithm: str, communicator: NcclCommunicator, rules: NcclRules
) -> bool:  # fmt: skip
    """Tell whether NCCL has the collective in this algorithm."""
    if algorithm == "Ring":
        return True
    if algorithm in ("NVLS", "NVLSTree") and communicator.graphs[algorithm].channels < 2:
        return False
    if algorithm == "PAT":
        alone = communicator.ranks == communicator.nodes and communicator.capability >= 60
        return bool(rules.pat) and collective in _GATHERS and alone
    if collective == "all_reduce":
        return True
    if algorithm == "NVLS":
        return collective in _GATHERS and rules.nvls_gathers
    return algorithm == "CollNetDirect" and collective in _GATHERS and rules.collnet_gathers


def _is_used(case: _Case, communicator: NcclCommunicator) -> bool:
    """Tell whether NCCL uses an entry of its own choice.

    Of CollNet only the all-reduce: its gathers depend on what the plugin has.
    """
    if case.algorithm in _COLLNET or (case.algorithm == "NVLS" and communicator.nodes > 1):
        reduces = communicator.collnet and case.collective == "all_reduce"
        few = communicator.ranks_per_node <= _MOST_COLLNET or case.algorithm == "NVLS"
        switched = communicator.nvswitch or case.algorithm != "CollNetDirect"
        return reduces and few and switched and case.protocol == "Simple"
    if case.algorithm == "NVLSTree" and communicator.nodes == 1:
        return False
    if case.protocol != "LL128":
        return True
    reach = "PXN" if communicator.capability >= 90 else "PXB"
    highest = communicator.highest_capability or communicator.capability
    return (
        _distance(case.graph.type_inter) <= _distance(reach)
        and _distance(case.graph.type_intra) <= _distance("NVB")
        and (highest == communicator.capability or communicator.capability >= 90)
        and communicator.capability >= 70
    )


def _distance(path_type: str) -> int:
    return PATH_TYPES.index(path_type)


def _bandwidth(case: _Case, communicator: NcclCommunicator, rules: NcclRules) -> float:
    """Compute the bandwidth of the whole collective, GB/s."""
    algorithm, protocol, graph = case.algorithm, case.protocol, case.graph
    row, column = communicator.architecture, communicator.scale
    if algorithm in ("NVLS", "NVLSTree"):
        total = graph.channels * _nvls_channel(case, communicator, rules)
    else:
        near = communicator.nodes <= 2 or algorithm in _COLLNET
        total = graph.channels * (graph.bandwidth_intra if near else graph.bandwidth_inter)
    most_ll = rules.ll_most[_row_of_ll(communicator)][column]
    if algorithm == "Ring" and protocol == "LL":
        total = min(most_ll, total * _ring_ll(case, communicator, rules))
    elif algorithm == "Ring" and protocol == "LL128":
        alone = communicator.ranks_per_node < 2
        share = rules.ring_ll128_alone if alone else 0.92
        total = min(total * share, graph.channels * rules.ring_ll128_most[row][column])
    elif algorithm == "Tree":
        total = min(0.92 * total, graph.channels * rules.tree_most[row][column])
        if protocol == "LL":
            total = min(total / 3.8, most_ll)
        elif protocol == "LL128":
            share = 7 / 9 if communicator.nodes == 1 else 120 / 128
            total = min(total * share, graph.channels * rules.tree_ll128_most[row][column])
        if graph.pattern == 3:
            total *= 0.85
    elif algorithm == "PAT":
        total *= rules.pat
    elif algorithm == "CollNetDirect":
        gpus = communicator.ranks_per_node / graph.channels  # for each adapter
        total /= gpus - (gpus - 1) / 2
        if communicator.capability >= 90:
            total *= 0.85
    return total * _of_all_bytes(case, communicator, rules)


def _of_all_bytes(case: _Case, communicator: NcclCommunicator, rules: NcclRules) -> float:
    """Give the ratio of the bandwidth of the collective to that of its channels."""
    if case.algorithm == "Ring":
        return communicator.ranks / case.steps
    if case.algorithm in ("NVLS", "NVLSTree"):
        if rules.nvls == "intra":
            if case.algorithm == "NVLS":
                return 5 / 6
            return 0.7 * communicator.nodes / (2 * (communicator.nodes - 1))
        if case.collective in _GATHERS and rules.nvls_gathers_by_ranks:
            return 1.0
        if rules.nvls == "least":
            return 5 / 6
        return communicator.ranks / case.steps
    return 1.0 if case.collective in _GATHERS and rules.pat else 0.5


def _row_of_ll(communicator: NcclCommunicator) -> int:
    """Give the row of the limit of LL: over several nodes it is the CPU that matters."""
    if communicator.nodes == 1:
        return communicator.architecture
    return 1 if communicator.cpu_vendor in ("amd", "mixed") else 0


def _ring_ll(case: _Case, communicator: NcclCommunicator, rules: NcclRules) -> float:
    if rules.ring_ll == "half":
        return 0.5
    several = communicator.nodes > 1 or case.collective in ("all_reduce", "reduce")
    return 1 / 4 if several else 1 / 3


def _nvls_channel(case: _Case, communicator: NcclCommunicator, rules: NcclRules) -> float:
    """Give what one channel of NVLS or NVLSTree carries, GB/s."""
    graph, is_tree = case.graph, case.algorithm == "NVLSTree"
    two = communicator.nodes <= 2
    if rules.nvls == "intra":
        return graph.bandwidth_intra if two else graph.bandwidth_inter
    shared = (communicator.ranks_per_node - 1) / communicator.ranks_per_node
    if rules.nvls == "least":
        if is_tree:
            between = graph.bandwidth_inter if two else graph.bandwidth_inter / 2
            return min(graph.bandwidth_intra, between)
        if case.collective in _GATHERS and rules.nvls_gathers_by_ranks:
            return min(graph.bandwidth_intra * shared, 0.9 * graph.bandwidth_inter)
        return min(graph.bandwidth_intra, graph.bandwidth_inter)
    efficiency = rules.nvls_efficiency[communicator.architecture]
    within = graph.bandwidth_intra * efficiency * (graph.channels - 1) / graph.channels
    within *= 2 if case.collective == "all_reduce" else shared
    between = graph.bandwidth_inter * (2 if is_tree and two else 1)
    least = min(within, between)
    if is_tree:
        least = min(least, rules.nvls_tree_most[communicator.architecture][communicator.scale])
    return least


def _latency(case: _Case, communicator: NcclCommunicator, rules: NcclRules) -> float:
    """Compute the latency of the whole collective, us."""
    collective, algorithm, protocol, graph, steps = case
    which = PROTOCOLS.index(protocol)
    several = communicator.nodes > 1
    others = communicator.ranks // communicator.nodes - 1
    doublings = communicator.nodes.bit_length() - 1
    within = _step(rules, graph, algorithm, communicator)[which]
    alone = communicator.ranks_per_node == 1 and rules.alone_uses_tree_row
    between = rules.network["Tree" if alone else algorithm][which]
    between += graph.latency_inter * (2 if protocol == "Simple" else 1)  # Simple flushes
    latency = rules.base[algorithm][which]
    if algorithm == "Ring":
        if collective in ("broadcast", "reduce"):
            return latency + _ring_from_root(case, communicator, rules)
        if several:
            is_amd = (communicator.cpu, communicator.cpu_vendor) == ("x86", "amd")
            overhead = 2.0 if is_amd else 1.0
            within = max(within, overhead * (3 if protocol == "Simple" else 1))
        crossings = communicator.nodes - 1 if several else 0
        if collective == "all_reduce":
            in_all = rules.all_reduce_between == "nodes"
            crossings = 2 * (communicator.nodes if in_all and several else crossings)
        return latency + (steps - crossings) * within + crossings * between
    if algorithm == "Tree":
        return latency + 2 * (others * within + doublings * between)
    if algorithm == "CollNetDirect":
        return latency + 2 * (min(1, others) * within + others * rules.collnet_step) + between
    if algorithm == "CollNetChain":
        return latency + 2 * others * within + between
    if algorithm == "NVLS":
        return latency + within + (between if several else 0.0)
    if algorithm == "NVLSTree":
        rounds = communicator.nodes - 1 if rules.nvls_tree_is_linear else doublings
        return latency + within + 2 * rounds * between
    return latency + doublings * between / 3.5 + 2.8 * communicator.ranks  # PAT


def _ring_from_root(case: _Case, communicator: NcclCommunicator, rules: NcclRules) -> float:
    """Give the latency of a broadcast or reduce along a ring, after its start."""
    which = PROTOCOLS.index(case.protocol)
    # chunks wait for each other: NCCL counts a tree's step of protocol Simple
    by_tree = case.protocol == "Simple" and not case.graph.same_channels
    algorithm = "Tree" if by_tree else "Ring"
    if communicator.nodes > 1:
        step = rules.network[algorithm][which]
    else:
        step = _step(rules, case.graph, algorithm, communicator)[which]
    return step if case.graph.same_channels else case.steps * step


def _step(
    rules: NcclRules, graph: ChannelGraph, algorithm: str, communicator: NcclCommunicator
) -> tuple[float, float, float]:
    """Give the latencies of a step within a node."""
    if graph.type_intra == "NVL":
        return rules.nvlink[algorithm]
    if communicator.cpu == "power" and algorithm == "Tree":
        low, middle, _ = rules.pci["Tree"]
        return (low, middle, rules.pci["Ring"][2])
    return rules.pci[algorithm]


_SMALLEST_CORRECTED = 6  # log2 of 64 bytes


class NcclChoice(NamedTuple):
    """What NCCL takes for one collective."""

    algorithm: str
    protocol: str
    time: float  # us, as NCCL's model has it


def nccl_times(
    sizes: Ints, entry: tuple[str, str, str], cost: NcclCost, communicator: NcclCommunicator,
    rules: NcclRules,
) -> Floats:  # fmt: skip
    """Compute the times of one entry of the table for sizes.

    Parameters
    ----------
    sizes
        int64 bytes, shape (sizes,): what NCCL counts. That is all bytes that an all-gather
        gathers or a reduce-scatter scatters, and otherwise the bytes of one rank.
    entry
        Collective, algorithm and protocol.

    Returns
    -------
    us, shape (sizes,); infinite where NCCL does not use the entry.
    """
    collective, algorithm, protocol = entry
    if cost.bandwidth <= 0:
        return np.full(sizes.shape, np.inf)
    bandwidth = np.full(sizes.shape, cost.bandwidth)
    latency = np.full(sizes.shape, cost.latency)
    if _is_corrected(collective, algorithm, communicator, rules):
        factors = np.array(rules.correction[PROTOCOLS.index(protocol)])
        power = np.frexp(sizes.astype(np.float64))[1] - 1 - _SMALLEST_CORRECTED
        if rules.corrects_smallest:
            power = np.maximum(power, 0)
        last = factors.size if algorithm == "NVLSTree" else min(factors.size, 23)
        inside = (power >= 0) & (power < last)
        bandwidth[inside] *= factors[power[inside]]
    ring = algorithm == "Ring" and protocol == "Simple" and collective == "all_reduce"
    if ring and communicator.nodes > 1:
        large = sizes // (communicator.channels * communicator.ranks) >= 64
        latency[large] *= 1.4 if communicator.architecture else 1.9
    times: Floats = latency + sizes / (1000 * bandwidth)
    return times


def nccl_choices(
    sizes: Ints, collective: str, table: CostTable,
    communicator: NcclCommunicator, rules: NcclRules,
) -> list[NcclChoice]:  # fmt: skip
    """Choose as NCCL does: the least time, and of equal ones the first.

    Parameters
    ----------
    sizes
        As for ``nccl_times``.
    table
        As ``nccl_costs`` computes it; entries that are left out are not chosen.
    """
    entries = [key for key in table if key[0] == collective]
    times = np.array([nccl_times(sizes, key, table[key], communicator, rules) for key in entries])
    first = np.argmin(times, axis=0)
    return [
        NcclChoice(entries[row][1], entries[row][2], float(times[row, column]))
        for column, row in enumerate(first)
    ]


def channels_used(
    size: int, choice: tuple[str, str], communicator: NcclCommunicator
) -> tuple[int, int]:
    """Give the channels of a collective, and the threads of each, as NCCL reduces them."""
    algorithm, protocol = choice
    graph = communicator.graphs[algorithm]
    if algorithm in ("NVLS", "NVLSTree"):
        return _nvls_channels(communicator), 640
    channels, threads = communicator.channels, 512
    if protocol == "LL128" or algorithm.startswith("CollNet"):
        threads = 640
    elif protocol == "Simple" and algorithm == "Ring":
        threads = 256 if graph.bandwidth_intra * graph.channels <= 12 else 512
    least = {"LL": 8, "LL128": 8, "Simple": 64}[protocol]
    if algorithm == "Ring" and protocol == "LL":
        least *= communicator.ranks
    if algorithm.startswith("CollNet"):
        least = 512
    while size < channels * threads * least and channels > 1:
        channels -= 1
    while size < channels * threads * least and threads % 128 == 0:
        threads //= 2
    if protocol == "Simple":
        threads = 640 if algorithm in ("Tree", "PAT") else threads + 32
    return channels, threads


def _nvls_channels(communicator: NcclCommunicator) -> int:
    if communicator.capability < 100:
        return 16
    return 24 if communicator.nodes == 1 else 32


def _is_corrected(
    collective: str, algorithm: str, communicator: NcclCommunicator, rules: NcclRules
) -> bool:  # fmt: skip
    if collective != "all_reduce":
        return False
    if algorithm == "NVLSTree":
        x86 = communicator.cpu == "x86"
        return rules.nvls_tree_corrected and x86 and communicator.capability >= 100
    return algorithm == "Tree"
