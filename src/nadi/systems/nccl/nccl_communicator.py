"""What NCCL's model knows of a communicator: its ranks, its machine, its graphs."""

from __future__ import annotations

import msgspec

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
