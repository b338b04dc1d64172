"""What a collective takes beyond NCCL's model: a launch, longer steps, few channels, a ramp.

NCCL's model chooses; its latencies were measured on earlier machines, and it lets all channels
carry the smallest collective. Here are the times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from nadi.systems.nccl.nccl_choice import NcclChoice, channels_used
from nadi.systems.nccl.nccl_communicator import PROTOCOLS, NcclCommunicator
from nadi.systems.nccl.nccl_cost_table import nccl_costs, ring_steps
from nadi.systems.nccl.nccl_versions import NcclRules, Triple
from nadi.trace.arrays import Floats, Ints

# the share of a channel's bandwidth that a protocol leaves: LL writes a flag beside each 4 bytes,
# LL128 8 bytes of flags beside 120
_SHARES = {"LL": 0.5, "LL128": 120 / 128, "Simple": 1.0}
# bytes that a channel moves at once: those of all its threads (src/enqueue.cc)
_LINE = {"LL": 512 * 8, "LL128": 640 * 8, "Simple": 512 * 64}
# of a ring within a node: the part of a step that its first and last one together take more, and
# the share of the ramp that one without steps has, of one with as many as 8 GPUs all-reduce in.
# Fitted to kernels on 2, 4 and 8 A100 (NCCL 2.27.3); those of H100 and Blackwell were left out
_ENDS, _FIRST, _STEPS = 0.42, 0.4, 14


class Corrections(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a collective takes beyond NCCL's model, in three regimes."""

    launch: float = 0.0  # time that every collective takes more, us: latency
    # ramp, ramp_size: most that filling the pipeline takes more, us, and at how many bytes it is
    # half of that: the transition
    ramp: float = 0.0
    ramp_size: float = 1.0
    efficiency: float = 1.0  # share of the modeled bandwidth that is reached
    # steps, hops: how many times NCCL's latency a step takes within a node and between nodes, by
    # protocol; 1 where none is stated: latency
    steps: dict[str, float] = {}
    hops: dict[str, float] = {}
    ring_ramp: float = 0.0  # as ``ramp``, of a ring within a node; 0 for the same

    def with_bytes(self, size: int, latency: float, of_bytes: float) -> float:
        """Give the time of a collective, us, from its latency and what the model has for bytes."""
        filling = self.ramp * size / (size + self.ramp_size)
        return self.launch + latency + max(of_bytes, 0.0) / self.efficiency + filling

    def of_ring(self, steps: int) -> Corrections:
        """Give the corrections of a ring within a node, by its steps.

        Each channel's block of threads does one step after the other, so that its ramp grows with
        their number. It also begins with a step that only sends and ends with one that only
        receives, beside its steps that do both.
        """
        ramp = self.ring_ramp or self.ramp
        share = min(_FIRST + (1 - _FIRST) * steps / _STEPS, 1.0)
        efficiency = self.efficiency / (1 + _ENDS / steps)
        return msgspec.structs.replace(self, ramp=ramp * share, efficiency=efficiency)


def corrected_times(
    sizes: Ints, collective: str, choices: Sequence[NcclChoice], communicator: NcclCommunicator,
    corrections: Corrections, rules: NcclRules,
) -> Floats:  # fmt: skip
    """Give the times of collectives, us, from what NCCL chose and thinks of them.

    - ``sizes``: int64 bytes, shape (sizes,), as NCCL counts them.
    - ``choices``: One for each size, of NCCL's own table.
    """
    table = nccl_costs(communicator, rules)
    longer = nccl_costs(communicator, measured_rules(rules, corrections))
    times = np.empty(sizes.size)
    for row, (size, choice) in enumerate(zip(sizes.tolist(), choices, strict=True)):
        key = (collective, choice.algorithm, choice.protocol)
        of_bytes = choice.time - table[key].latency
        chosen = corrections
        rooted = collective in ("broadcast", "reduce")  # no rank's part goes round
        if choice.algorithm == "Ring" and communicator.nodes == 1 and not rooted:
            chosen = corrections.of_ring(ring_steps(collective, communicator.ranks))
        few = _few_channels(size, key, communicator, of_bytes / chosen.efficiency)
        times[row] = chosen.with_bytes(size, longer[key].latency + few, of_bytes)
    return times


def measured_rules(rules: NcclRules, corrections: Corrections) -> NcclRules:
    """Return the rules of a version with steps as long as measured."""
    if not corrections.steps and not corrections.hops:
        return rules
    return replace(
        rules,
        nvlink=_scaled(rules.nvlink, corrections.steps),
        pci=_scaled(rules.pci, corrections.steps),
        network=_scaled(rules.network, corrections.hops),
    )


def _scaled(latencies: dict[str, Triple], factors: dict[str, float]) -> dict[str, Triple]:
    by_protocol = [factors.get(protocol, 1.0) for protocol in PROTOCOLS]
    return {
        algorithm: (triple[0] * by_protocol[0], triple[1] * by_protocol[1],
                    triple[2] * by_protocol[2])
        for algorithm, triple in latencies.items()
    }  # fmt: skip


def _few_channels(
    size: int, key: tuple[str, str, str], communicator: NcclCommunicator, of_bytes: float
) -> float:  # fmt: skip
    """Give what a collective takes longer as only some channels carry it, us.

    A ring's step moves a rank's part of each channel, and a channel is no faster than its link. A
    tree hands on whole lines: the first one passes all of its steps before the pipeline is full.
    """
    collective, algorithm, protocol = key
    if algorithm not in ("Ring", "Tree"):
        return 0.0
    graph = communicator.graphs[algorithm]
    per_channel = size / channels_used(size, (algorithm, protocol), communicator)[0]
    within = graph.bandwidth_intra * _SHARES[protocol] * 1000  # bytes a us
    between = min(graph.bandwidth_inter, graph.bandwidth_intra) * _SHARES[protocol] * 1000
    line = min(per_channel, _LINE[protocol])
    several = communicator.nodes > 1
    if algorithm == "Tree":
        others = communicator.ranks // communicator.nodes - 1
        doublings = communicator.nodes.bit_length() - 1
        return 2 * line * (others / within + doublings / between)
    steps, slowest = ring_steps(collective, communicator.ranks), between if several else within
    if collective in ("broadcast", "reduce"):
        return steps * line / slowest
    return max(steps * per_channel / communicator.ranks / slowest - of_bytes, 0.0)
