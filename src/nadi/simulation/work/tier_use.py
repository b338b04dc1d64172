"""Which memory tier each load and store of a job uses."""

from __future__ import annotations

import numpy as np

from nadi.errors import InputError
from nadi.simulation.work.program import Program
from nadi.systems.memory_tiers import OWN_TIERS
from nadi.systems.system import System
from nadi.trace.arrays import Ints
from nadi.trace.schema import NODE_KINDS

__all__ = [
    "NO_TIER",
    "OWN_MEMORY",
    "STORE",
    "engines_of",
    "paths_slow_messages",
    "ranks_are_apart",
    "tiers_of_nodes",
]

NO_TIER, OWN_MEMORY = -1, -2
STORE = NODE_KINDS.index("MEM_STORE")
_ACCESSES = (NODE_KINDS.index("MEM_LOAD"), STORE)


def tiers_of_nodes(program: Program, system: System) -> Ints:
    """Return the tier that each node reads or writes.

    Of those that name none it is remote memory, if the system has it, else the first tier.

    Returns
    -------
    numpy.ndarray
        int64, shape (nodes,): a position in ``system.tiers``; ``OWN_MEMORY`` for that of the
        device itself, ``NO_TIER`` for remote memory and for nodes that are no accesses. O(nodes).

    Raises
    ------
    InputError
        If a node names a tier that the system does not have.
    """
    found = np.full(program.num_nodes, NO_TIER, dtype=np.int64)
    chosen = np.flatnonzero(np.isin(program.kind, _ACCESSES))
    if not chosen.size:
        return found
    named, names = program.tier
    remote = system.remote_memory is not None
    number = {tier.name: i for i, tier in enumerate(system.tiers)}
    number |= dict.fromkeys(OWN_TIERS, OWN_MEMORY)
    of_name = np.full(len(names) + 1, NO_TIER, dtype=np.int64)  # the last is of those without
    of_name[-1] = NO_TIER if remote or not system.tiers else 0
    for code, name in enumerate(names):
        if name not in number:
            first = int(chosen[np.argmax(named[chosen] == code)])
            known = ", ".join(number) if system.tiers else "none but the device's own (hbm)"
            raise InputError(
                program.describe(first),
                f"it uses the memory tier {name!r}, but the system has {known}",
                "describe it in memory.tiers of the system's file (docs/memory-tiers.md)",
            )
        of_name[code] = number[name]
    found[chosen] = of_name[named[chosen]]
    return found


def engines_of(system: System) -> tuple[str, ...]:
    """Return what loads and stores of each tier are called: ``2 * tier + is_store``."""
    return tuple(f"{tier.name} {what}" for tier in system.tiers for what in ("load", "store"))


def ranks_are_apart(system: System) -> bool:
    """Return whether no rank's accesses of tiers take links that another rank takes, too."""
    return all(tier.shared_by == 1 for tier in system.tiers) and all(
        path.shared_by == 1 and not path.dimensions for path in system.memory_paths
    )


def paths_slow_messages(system: System) -> bool:
    """Return whether paths of memory carry less than the dimensions of the network over them.

    Of a system with fabrics all messages are followed over its links, and paths are among them.
    """
    for path in system.memory_paths:
        limits = [rate for rate in (path.read_bandwidth, path.write_bandwidth) if rate]
        for d in path.dimensions if limits and not system.network.fabrics else ():
            dimension = system.network.dimensions[d]
            links = {"switch": 1, "fully-connected": dimension.size - 1}.get(dimension.topology, 2)
            if min(limits) < path.shared_by * links * dimension.bandwidth:
                return True
    return False
