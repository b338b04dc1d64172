"""The time of one collective or message alone on a system."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from nadi.errors import Parameter, UsageError
from nadi.simulation.engine_driver import simulate_job
from nadi.simulation.rules import rules_of
from nadi.systems.system import COLLECTIVES, System
from nadi.trace.schema import DEPS, GROUPS, ISSUES, NODES
from nadi.trace.trace import Provenance, Trace


def stand_in(system: System, comm_type: str) -> str:
    """Return the collective type that is simulated instead; empty if it is the type itself."""
    return rules_of(system).stand_in(comm_type)


def collective_time(
    system: System, comm_type: str, size: int, group: tuple[int, ...] = (), root: int = -1
) -> int:  # fmt: skip
    """Compute the time of a collective alone, after all ranks have entered it; ns.

    Parameters
    ----------
    comm_type
        One of ``system.COLLECTIVES``; see ``stand_in``.
    size
        Bytes that each rank gives; of a broadcast and a scatter, the root.
    group
        Its members in their order; by default all ranks.
    root
        The rank that a broadcast or scatter begins at, or a reduce or gather ends at; by default
        the first member.

    Raises
    ------
    UsageError
        If the type is not a collective, a member is not a rank of the system, or the root is not a
        member.
    """
    everybody = range(system.network.num_ranks)
    if not set(group) <= set(everybody):
        raise UsageError(
            Parameter("group", list(group)), f"the system has ranks 0 to {everybody[-1]}",
            "fit the system to the number of ranks of the job",
        )  # fmt: skip
    members = len(group) or len(everybody)
    if comm_type not in COLLECTIVES:
        raise UsageError(
            Parameter("comm_type", comm_type),
            "is not a collective",
            f"one of {', '.join(COLLECTIVES)}",
        )
    comm_type, size = rules_of(system).in_place_of(comm_type, size, members)
    if root >= 0 and root not in (group or everybody):
        raise UsageError(
            Parameter("root", root), "the root is not in the group", "choose a rank of the group"
        )
    if members == 1:
        return 0
    if sorted(group) == list(everybody):
        group = ()
    return _simulated(msgspec.json.encode(system), comm_type, max(size, 1), group, root)


def message_time(system: System, size: int, src: int, dst: int) -> int:
    """Compute the time of a message between two ranks, alone; ns.

    Raises
    ------
    UsageError
        If one of them is not a rank of the system.
    """
    num_ranks = system.network.num_ranks
    if src == dst or not (0 <= src < num_ranks and 0 <= dst < num_ranks):
        raise UsageError(
            f"message from rank {src} to {dst}", f"the system has ranks 0 to {num_ranks - 1}"
        )
    return _simulated(msgspec.json.encode(system), "message", max(size, 0), (src, dst))


@lru_cache(maxsize=1 << 16)
def _simulated(
    encoded: bytes, what: str, size: int, group: tuple[int, ...], root: int = -1
) -> int:  # fmt: skip
    """Simulate a job of one communication; the system is JSON so that it can be a cache key."""
    system = msgspec.json.decode(encoded, type=System)
    # computation and recorded times are no part of it
    system = msgspec.structs.replace(
        system, groups={}, compute=msgspec.structs.replace(system.compute, replay_only=False)
    )
    num_ranks = system.network.num_ranks
    if what == "message":
        src, dst = group
        column: dict[str, list[Any]] = {
            "comm_bytes": [size],
            "src": [src],
            "dst": [dst],
            "tag": [0],
        }
        given = {
            src: _trace({"kind": ["COMM_SEND"], "comm_type": ["send"], **column}),
            dst: _trace({"kind": ["COMM_RECV"], "comm_type": ["recv"], **column}),
        }
    else:
        column = {"kind": ["COMM_COLL"], "comm_type": [what], "comm_bytes": [size]}
        column |= {"group": [0 if group else -1], "src": [root], "dst": [root]}
        given = dict.fromkeys(group or range(num_ranks), _trace(column, group))
    idle = _trace({"kind": ["INVALID"]})
    return simulate_job([given.get(rank, idle) for rank in range(num_ranks)], system).makespan


def _trace(columns: dict[str, list[Any]], group: tuple[int, ...] = ()) -> Trace:
    """Create the trace of one node."""
    given = {"id": [0], "name": ["one"], "category": ["kernel"], "is_cpu": [False], **columns}
    groups = GROUPS.build(1, {"name": ["members"], "ranks": [list(group)]})
    return Trace(
        nodes=NODES.build(1, given),
        deps=DEPS.empty(),
        groups=groups if group else GROUPS.empty(),
        issues=ISSUES.empty(),
        provenance=Provenance("", ()),
    )
