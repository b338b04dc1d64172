"""Seconds of one operation of the network, for many executions at once."""

from __future__ import annotations

import numpy as np

from nadi.estimate.machine_description import OPERATIONS, MachineDescription
from nadi.model.arrays import Floats, Ints

__all__ = ["network_time", "processor_usage"]


def network_time(
    machine: MachineDescription, tier: Ints, operation: str, size: Floats, members: Ints
) -> Floats:
    """Give the seconds that an operation takes alone.

    Parameters
    ----------
    tier
        The network tier, by number.
    operation
        One of ``OPERATIONS``.
    size
        Bytes of the whole tensor. A collective of nothing takes no time, a point-to-point
        transfer of nothing still its latency.
    members
        How many processors take part; a collective of one takes no time.
    """
    networks = machine.columns
    which = OPERATIONS.index(operation)
    share = networks.factor[tier, which] * (1 + networks.offset[tier, which] / members)
    seconds: Floats = networks.latency[tier] + size * share / networks.speed[tier]
    if operation == "p2p":
        return seconds
    return np.where((members > 1) & (size > 0), seconds, 0.0)


def processor_usage(machine: MachineDescription, tier: Ints) -> Floats:
    """Give the share of a processor that operations on a tier occupy."""
    return machine.columns.usage[tier]
