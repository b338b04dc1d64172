"""Order the activities and communication of all ranks so that no simulator deadlocks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from nadi.errors import NadiError
from nadi.kernels.groups import group_rows
from nadi.kernels.paths import replay_times, topological_order
from nadi.simulation.workload.activities import Activities
from nadi.simulation.workload.simulator_communication import Transfer
from nadi.trace.arrays import Ints

__all__ = ["Order", "find_order"]

_Pairs = tuple[Ints, Ints]


@dataclass(frozen=True, eq=False)
class Order:
    """The order in which activities are written and communication is started.

    Attributes
    ----------
    position
        int64, shape (activities,): in order of start, but after all dependencies of the activity.
    src, dst
        int64, shape (pairs,): a communication activity of a rank, and the next one of that rank.
    """

    position: Ints
    src: Ints
    dst: Ints


def find_order(
    activities: Activities, transfers: Sequence[Transfer], activity_of_op: Ints
) -> Order:
    """Order activities and communication. O(activities log activities + dependencies).

    In a simulator a rank takes part in one collective at a time. If one rank starts A before B,
    and another B before A, both wait forever. So all ranks start collectives in the same order:
    that in which their stragglers entered them. If dependencies do not allow this order, another
    one that they allow is used.

    Parameters
    ----------
    transfers
        In order of ``entered``.
    activity_of_op
        int64, shape (operations,): the activity of each communication operation.

    Raises
    ------
    NadiError
        If ranks wait for each other in a cycle once no collective ends for one of its members
        before all have started it.
    """
    job = _WholeJob(activities, transfers, activity_of_op)
    pairs = job.successions(range(len(transfers)))
    order = job.topological(pairs)
    if order is None:
        pairs = job.successions(job.allowed())
        order = job.topological(pairs)
    if order is None:
        raise NadiError(
            "",
            "the collectives of the ranks wait for each other in a cycle, as a rank left a "
            "collective before another rank entered it: a simulator would deadlock",
            "please report this recording",
        )  # fmt: skip
    return Order(job.positions(order, pairs), *pairs)


class _WholeJob:
    """Activities of all ranks, followed by a vertex for the start of each transfer."""

    def __init__(
        self, activities: Activities, transfers: Sequence[Transfer], activity_of_op: Ints
    ) -> None:
        self.num_activities = activities.op.size
        self._activities = activities
        self._transfers = transfers
        # of a send and its receive only the sender is ordered, and the receiver follows it
        members = [activity_of_op[list(one.ops)] for one in transfers]
        self._turns = [
            own[:1] if one.comm_type == "send" else own
            for one, own in zip(transfers, members, strict=True)
        ]
        self._entry = np.arange(self.num_activities)  # the vertex for its dependencies
        for number, turn in enumerate(self._turns):
            self._entry[turn] = self.num_activities + number
        begin = self.num_activities + np.repeat(
            np.arange(len(members)), np.array([own.size for own in members], dtype=np.int64)
        )
        self._src = np.concatenate([activities.src, begin])
        self._dst = np.concatenate([self._entry[activities.dst], *members])

    def successions(self, numbers: Iterable[int]) -> _Pairs:
        """Make each rank start its transfers in the order of their numbers."""
        of_rank: dict[int, list[int]] = defaultdict(list)
        for number in numbers:
            # a sender comes before its receiver
            ranks = self._transfers[number].ranks[: self._turns[number].size]
            for rank, activity in zip(ranks, self._turns[number].tolist(), strict=True):
                of_rank[rank].append(activity)
        pairs = [pair for turns in of_rank.values() for pair in pairwise(turns)]
        src, dst = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        return src, dst

    def allowed(self) -> list[int]:
        """Order the transfers in a way that dependencies allow; empty if there is a cycle."""
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
        """Order all vertices topologically; None if there is a cycle."""
        in_ptr, in_src, _ = self._edges(pairs)
        order = np.empty(in_ptr.size - 1, dtype=np.int64)
        return None if topological_order(in_ptr, in_src, order) >= 0 else order

    def positions(self, order: Ints, pairs: _Pairs) -> Ints:
        """Order the activities by start, but after all their dependencies."""
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
        """Return all edges by destination: the first edge of each vertex, sources and weights.

        The last vertex is the origin of time: the edge from it to an activity is as long as the
        time until the activity starts.
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
