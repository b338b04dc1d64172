"""Programs of messages: what each rank sends, receives and computes, and in which order.

They are what GOAL files hold (:mod:`nadi.files.goal`), and what LogGP models run
(:mod:`nadi.simulation.loggp`): collectives are taken apart into their messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from nadi.trace.arrays import Bools, Ints

__all__ = ["ANY", "Action", "MessageProgram"]

ANY = -1
"""A receive with this source, or this tag, takes any."""


class Action(IntEnum):
    """What an operation does."""

    SEND = 0
    RECEIVE = 1
    COMPUTE = 2


@dataclass(frozen=True, eq=False)
class MessageProgram:
    """The operations of all ranks, in order of rank.

    Attributes
    ----------
    first
        int64, shape (ranks + 1,): where the operations of each rank begin.
    action
        int64, shape (operations,): of :class:`Action`.
    size
        int64: bytes of a message, or ns of a computation.
    peer
        int64: to whom an operation sends, or from whom it receives; :data:`ANY` for any sender.
    tag
        int64: a receive takes the first message of its sender with its tag, or with any.
    cpu, interface
        int64: the processor of the rank that the operation occupies, and the network interface
        that its message takes, each counted from 0.
    waiting, awaited
        int64, shape (dependencies,): an operation, and one of the same rank that it waits for.
    at_start
        bool, shape (dependencies,): whether it waits only for that one to start.
    """

    first: Ints
    action: Ints
    size: Ints
    peer: Ints
    tag: Ints
    cpu: Ints
    interface: Ints
    waiting: Ints
    awaited: Ints
    at_start: Bools

    @property
    def num_ranks(self) -> int:
        """Number of ranks."""
        return self.first.size - 1

    @property
    def num_operations(self) -> int:
        """Number of operations over all ranks."""
        return self.action.size

    def rank_of(self, operation: int) -> int:
        """Return the rank of an operation."""
        return int(np.searchsorted(self.first, operation, "right")) - 1

    def describe(self, operation: int) -> str:
        """Describe an operation for messages: what it does, of which rank, with whom."""
        rank = self.rank_of(operation)
        number = operation - int(self.first[rank]) + 1
        action = Action(int(self.action[operation]))
        name = f"rank {rank} operation {number}"
        if action == Action.COMPUTE:
            return f"{name} (compute {self.size[operation]} ns)"
        peer, tag = int(self.peer[operation]), int(self.tag[operation])
        way = "to" if action == Action.SEND else "from"
        other = "any rank" if peer == ANY else f"rank {peer}"
        verb = "send" if action == Action.SEND else "receive"
        return f"{name} ({verb} {self.size[operation]} bytes {way} {other}, tag {tag})"
