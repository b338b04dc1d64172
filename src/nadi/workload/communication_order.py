"""One order for everything: communication in which no rank waits for ever, ids that ascend."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from nadi.errors import NadiError
from nadi.kernels.groups import group_rows
from nadi.kernels.paths import replay_times, topological_order
from nadi.model.arrays import Ints
from nadi.workload.activities import Activities
from nadi.workload.simulator_communication import Transfer

__all__ = ["Order", "find_order"]

_Pairs = tuple[Ints, Ints]


@dataclass(frozen=True, eq=False)
class Order:
    """In which order activities are written, and communication is begun.

    Attributes
    ----------
    position
        int64, shape (activities,): an activity's is above those of all that it depends on;
        else they are in order of start.
    src, dst
        int64, shape (pairs,): communication of a rank, and the next to begin on that rank.
    """

    position: Ints
    src: Ints
    dst: Ints


def find_order(
    activities: Activities, transfers: Sequence[Transfer], activity_of_op: Ints
) -> Order:
    """Order activities and communication. O(activities log activities + dependencies).

    A simulator lets a rank take part in one collective at a time. If one rank began A before
    B, and another B before A, both would wait for ever: so all ranks begin them in the same
    order, that in which their last members entered. Where dependencies do not allow that
    order, one is taken that they allow.

    Parameters
    ----------
    transfers
        In order of ``entered``.
    activity_of_op
        int64, shape (operations,): which activity each communication is.

    Raises
    ------
    NadiError
        If ranks wait for each other in a circle once no collective ends for one of its
        members before all have begun it.
    """
    job = _WholeJob(activities, transfers, activity_of_op)
    pairs = job.successions(range(len(transfers)))
    order = job.topological(pairs)
    if order is None:
        pairs = job.successions(job.allowed())
        order = job.topological(pairs)
    if order is None:
        raise NadiError(
            "", "collectives of the ranks wait for each other in a circle, as a rank left one "
            "before another had entered it: a simulator would stand still",
            "please report this recording",
        )  # fmt: skip
    return Order(job.positions(order, pairs), *pairs)


class _WholeJob:
    """Activities of all ranks, then a vertex for the moment at which each transfer begins."""

    def __init__(
        self, activities: Activities, transfers: Sequence[Transfer], activity_of_op: Ints
    ) -> None:
        self.num_activities = activities.op.size
        self._activities = activities
        self._transfers = transfers
        # of a send with its receive the sender takes a turn, and the receiver follows it
        members = [activity_of_op[list(one.ops)] for one in transfers]
        self._turns = [
            own[:1] if one.comm_type == "send" else own
            for one, own in zip(transfers, members, strict=True)
        ]
        self._entry = np.arange(self.num_activities)  # where what an activity waits for leads
        for number, turn in enumerate(self._turns):
            self._entry[turn] = self.num_activities + number
        begin = self.num_activities + np.repeat(
            np.arange(len(members)), np.array([own.size for own in members], dtype=np.int64)
        )
        self._src = np.concatenate([activities.src, begin])
        self._dst = np.concatenate([self._entry[activities.dst], *members])

    def successions(self, numbers: Iterable[int]) -> _Pairs:
        """Let each rank begin its transfers in the order of their numbers."""
        of_rank: dict[int, list[int]] = defaultdict(list)
        for number in numbers:
            # a sender stands before its receiver
            ranks = self._transfers[number].ranks[: self._turns[number].size]
            for rank, activity in zip(ranks, self._turns[number].tolist(), strict=True):
                of_rank[rank].append(activity)
        pairs = [pair for turns in of_rank.values() for pair in pairwise(turns)]
        src, dst = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        return src, dst

    def allowed(self) -> list[int]:
        """Order the transfers in a way that dependencies allow; none if there is a circle."""
        nothing = np.zeros(0, dtype=np.int64)
        order = self.topological((nothing, nothing))
        if order is None:
            return []
        return [
            number
            for number in (order - self.num_activities).tolist()
            if 0 <= number < len(self._transfers)
        ]

    def topological(self, pairs: _Pairs) -> Ints | None:
        """Order all vertices so that every edge points forward; None if there is a circle."""
        in_ptr, in_src, _ = self._edges(pairs)
        order = np.empty(in_ptr.size - 1, dtype=np.int64)
        return None if topological_order(in_ptr, in_src, order) >= 0 else order

    def positions(self, order: Ints, pairs: _Pairs) -> Ints:
        """Place the activities in order of start, but after all that they depend on."""
        in_ptr, in_src, weight = self._edges(pairs)
        size = in_ptr.size - 1
        time, bound_by = np.empty((2, size), dtype=np.int64)
        replay_times(order, in_ptr, in_src, weight, np.zeros(size, dtype=np.int64), time, bound_by)
        place = np.empty(size, dtype=np.int64)
        place[order] = np.arange(size)
        own = np.arange(self.num_activities)
        position = np.empty(own.size, dtype=np.int64)
        position[np.lexsort((place[own], time[own]))] = own
        return position

    def _edges(self, pairs: _Pairs) -> tuple[Ints, Ints, Ints]:
        """Give all edges by destination: where each vertex's begin, sources and weights.

        The last vertex is the very beginning: an edge from there to each activity is as long as
        the time until it starts.
        """
        last = self.num_activities + len(self._transfers)
        own = np.arange(self.num_activities)
        src = np.concatenate([self._src, pairs[0], np.full(own.size, last)])
        dst = np.concatenate([self._dst, self._entry[pairs[1]], own])
        weight = np.zeros(src.size, dtype=np.int64)
        weight[src == last] = self._activities.start
        in_ptr = np.empty(last + 2, dtype=np.int64)
        edge = np.empty(dst.size, dtype=np.int64)
        group_rows(dst, in_ptr, edge)
        return in_ptr, src[edge], weight[edge]
