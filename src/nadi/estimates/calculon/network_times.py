"""Seconds of one operation of the network, for many executions at once."""

import numpy as np

from nadi.estimates.calculon.machine_description import OPERATIONS, MachineDescription
from nadi.trace.arrays import Floats, Ints


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
