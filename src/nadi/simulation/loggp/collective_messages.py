"""The messages of a collective: what one of its members sends and receives, and in which order.

All-reduces, reduce-scatters and all-gathers go round a ring, all-to-alls send to every member at
once, a barrier doubles its distance in each round, and what has a root is a binomial tree.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from nadi.errors import UsageError
from nadi.files.message_programs import Action
from nadi.simulation.collectives.step_tables import steps_of
from nadi.simulation.engine.codes import Comm, StepKind
from nadi.simulation.engine.machine_state import STEP
from nadi.trace.arrays import Ints

__all__ = ["Messages", "member_messages"]

_ROOTED = {
    "broadcast": Comm.BROADCAST, "reduce": Comm.REDUCE_TO, "gather": Comm.GATHER,
    "scatter": Comm.SCATTER,
}  # fmt: skip
_ON_RINGS = ("all_reduce", "reduce_scatter", "all_gather")


class Messages(NamedTuple):
    """What one member of a collective does; int64, shape (operations,).

    Attributes
    ----------
    action
        Of :class:`Action`; a computation takes no time, and is there for others to wait for.
    peer
        Position of the other member.
    shares, parts
        A message has the bytes of ``shares`` of ``parts`` parts of the size, rounded up.
    awaited
        Which of these it waits for; -1 for those that the collective begins with.
    lasts
        Which of these have to end for the collective to end.
    """

    action: Ints
    peer: Ints
    shares: Ints
    parts: Ints
    awaited: Ints
    lasts: Ints


@lru_cache(maxsize=4096)
def member_messages(comm_type: str, size: int, member: int, root: int = 0) -> Messages:
    """Return what a member of a group of some size sends and receives. O(messages).

    Raises
    ------
    UsageError
        If the type is unknown.
    """
    if comm_type not in (*_ON_RINGS, "all_to_all", "barrier", *_ROOTED):
        raise UsageError(
            "collective", f"the messages of {comm_type} are unknown",
            f"there are {', '.join(_ON_RINGS)}, all_to_all, barrier, {', '.join(_ROOTED)}",
        )  # fmt: skip
    if size == 1:
        return _nothing()
    if comm_type == "all_to_all":
        return _all_to_all(size, member)
    if comm_type == "barrier":
        distance = 1 << np.arange((size - 1).bit_length(), dtype=np.int64)
        return _rounds((member + distance) % size, (member - distance) % size, 1)
    if comm_type in _ROOTED:
        return _tree(_ROOTED[comm_type], size, member, root)
    rounds = np.ones((2 if comm_type == "all_reduce" else 1) * (size - 1), dtype=np.int64)
    parts = 1 if comm_type == "all_gather" else size
    return _rounds((member + rounds) % size, (member - rounds) % size, parts)


def _nothing() -> Messages:
    one = np.zeros(1, dtype=np.int64)
    return Messages(one + Action.COMPUTE, one, one, one + 1, one - 1, one)


def _rounds(to: Ints, source: Ints, parts: int) -> Messages:
    """Send to one member and receive from another; go on when that has come."""
    number = np.arange(to.size)
    received = np.repeat(2 * number - 1, 2)  # in the round before, -1 in the first one
    return Messages(
        np.tile(np.array([Action.SEND, Action.RECEIVE], dtype=np.int64), to.size),
        np.column_stack([to, source]).ravel(), np.ones(2 * to.size, dtype=np.int64),
        np.full(2 * to.size, parts, dtype=np.int64), received,
        np.array([2 * to.size - 2, 2 * to.size - 1]),
    )  # fmt: skip


def _all_to_all(size: int, member: int) -> Messages:
    """Send to all others and receive from all, between a begin and an end."""
    distance = np.arange(1, size, dtype=np.int64)
    between = 2 * distance.size
    peers = np.column_stack([(member + distance) % size, (member - distance) % size]).ravel()
    action = np.tile(np.array([Action.SEND, Action.RECEIVE], dtype=np.int64), distance.size)
    awaited = np.zeros(between + 1, dtype=np.int64)
    awaited[0] = -1
    return Messages(
        np.append(Action.COMPUTE, action), np.append(0, peers),
        np.append(0, np.ones(between, dtype=np.int64)), np.full(between + 1, size), awaited,
        1 + np.arange(between),
    )  # fmt: skip


def _tree(comm: int, size: int, member: int, root: int) -> Messages:
    """Do the steps of a binomial tree one after the other."""
    rows = steps_of("halvingdoubling", comm, size, 0).rows
    rows = rows[rows[:, STEP.member] == (member - root) % size]
    sends = rows[:, STEP.kind] < StepKind.TAKE
    number = np.arange(len(rows))
    return Messages(
        np.where(sends, Action.SEND, Action.RECEIVE).astype(np.int64),
        (rows[:, STEP.peer] + root) % size, rows[:, STEP.count].copy(),
        np.maximum(rows[:, STEP.parts], 1), number - 1, number[-1:],
    )  # fmt: skip
