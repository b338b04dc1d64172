"""Upper bounds of the gain of moves, from their position on the critical path."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from nadi.graph.replay import Replay
from nadi.trace.arrays import Bools, Ints
from nadi.whatif.reordering.movable_units import Units
from nadi.whatif.reordering.moves import Block

__all__ = ["Promise"]


class Promise:
    """Upper bounds of the gain of moves in a window.

    A move that touches no vertex of the critical path leaves a path as long, and gains
    nothing. If it touches the part on a thread, that thread takes as long as before for all
    that it does, and only idle time can be filled. If it touches work that the unit asks for,
    this can start sooner, though not before its call does.

    Parameters
    ----------
    units
        Of the graph that was replayed.
    path
        int64: the vertices of the critical path of the window.
    """

    def __init__(self, units: Units, replay: Replay, path: Ints) -> None:
        layout, graph, time = units.layout, replay.graph, replay.time
        self.units, self.time = units, time
        critical = np.zeros(graph.num_vertices, dtype=np.bool_)
        critical[path] = True
        chain, link = layout.chain, layout.link
        total = np.concatenate([[0], np.cumsum(critical[chain])])
        self._host: Bools = total[units.end + 1] > total[units.begin]
        works = layout.works.op
        by_work = critical[2 * works] | critical[2 * works + 1] | self._meets(critical)[works]
        total = np.concatenate([[0], np.cumsum(by_work)])
        self._work: Bools = total[units.last_work] > total[units.first_work]
        own = np.where(link >= 0, graph.weight[link], 0)
        before = np.concatenate([[0], time[chain[:-1]]])[: chain.size]
        idle = np.where(link >= 0, time[chain] - before - own, 0)
        self._waits = np.flatnonzero(idle > 0)
        # up to a place, and all that is before it
        self._idle = np.concatenate([[0], np.cumsum(idle)])
        self._own = np.concatenate([[0], np.cumsum(own)])

    def _meets(self, critical: Bools) -> Bools:
        """Return which operations belong to a critical collective; bool, shape (ops,)."""
        graph = self.units.layout.graph
        found = np.zeros(graph.num_ops, dtype=np.bool_)
        dst = graph.destinations
        edges = np.flatnonzero(dst >= 2 * graph.num_ops)
        found[graph.in_src[edges[critical[dst[edges]]]] // 2] = True
        return found

    @cached_property
    def start(self) -> Ints:
        """Start of the first work of each unit, or of the unit if it launches none; ns."""
        return self._of_works(np.minimum, np.iinfo(np.int64).max)

    @cached_property
    def _last_start(self) -> Ints:
        return self._of_works(np.maximum, np.iinfo(np.int64).min)

    def _of_works(self, choose: np.ufunc, neutral: int) -> Ints:
        units = self.units
        works = units.layout.works
        found = np.full(units.op.size, neutral, dtype=np.int64)
        unit = units.of_op[works.call]
        asked = unit >= 0
        choose.at(found, unit[asked], self.time[2 * works.op[asked]])
        return np.where(found == neutral, self.time[2 * units.op], found)

    @cached_property
    def at_fence(self) -> Ints:
        """Upper bound of each unit's gain at any position; int64 ns, shape (units,)."""
        units = self.units
        idle = self._idle[units.begin + 1] - self._idle[units.fence + 1]
        sooner = self._last_start - self.time[units.layout.chain[units.fence]]
        # what comes along may fill idle time too
        most: Ints = np.where(self._host, idle, 0) + np.where(self._work, sooner, 0)
        return most

    def of(self, block: Block) -> int:
        """Return the upper bound of a move's gain, in ns."""
        units, members = self.units, list(block.units)
        place = int(units.end[block.after])
        most = 0
        if self._host[members].any():
            idle = self._idle[units.begin[members[-1]] + 1] - self._idle[place + 1]
            own = self._own[units.end[members] + 1] - self._own[units.begin[members] + 1]
            most = min(int(idle), int(own.sum()))
        sooner = self._last_start[members][self._work[members]]
        return most + max(int(sooner.max(initial=0)) - int(self.time[units.layout.chain[place]]), 0)

    def wait_before(self, unit: int) -> int:
        """Return the last unit before a unit after which the thread waits, or -1."""
        units = self.units
        at = int(np.searchsorted(self._waits, units.begin[unit], side="right")) - 1
        return int(np.searchsorted(units.end, self._waits[at])) - 1 if at >= 0 else -1
