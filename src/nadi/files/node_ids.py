"""Look up the row of a node by its id."""

import numpy as np

from nadi.trace.arrays import Ints


class NodeRows:
    """The row of each node id.

    Parameters
    ----------
    ids
        int64, shape (nodes,), in any order.

    Attributes
    ----------
    repeated
        An id that occurs twice, or -1.
    is_ascending
        Whether the ids ascend, as in most files.
    """

    def __init__(self, ids: Ints) -> None:
        self.ids = ids
        self.repeated = -1
        self._order: Ints | None = None
        self.is_ascending = bool((ids[1:] > ids[:-1]).all())
        if not self.is_ascending:
            self._order = np.argsort(ids, kind="stable")
            ordered = ids[self._order]
            if (twice := np.flatnonzero(ordered[1:] == ordered[:-1])).size:
                self.repeated = int(ordered[twice[0]])
            self._sorted = ordered
        else:
            self._sorted = ids

    def find(self, ids: Ints) -> Ints:
        """Return the row of each id; -1 if it is missing."""
        size = self.ids.size
        if not size:
            return np.full(ids.size, -1, dtype=np.int64)
        if self._order is None and self.ids[-1] - self.ids[0] == size - 1:  # none is left out
            rows: Ints = ids - self.ids[0]
            outside = rows.view(np.uint64) >= size  # below the first is very large then
            if outside.any():
                rows[outside] = -1
            return rows
        at = np.minimum(self._positions(ids), size - 1)
        found = self._sorted[at] == ids
        at = at if self._order is None else self._order[at]
        return np.where(found, at, -1)

    def _positions(self, ids: Ints) -> Ints:
        low, high = int(self._sorted[0]), int(self._sorted[-1])
        # ids are nearly without gaps: a table of positions is several times faster
        if high - low > 8 * self._sorted.size or 8 * ids.size < self._sorted.size:
            return np.searchsorted(self._sorted, ids)
        table = np.zeros(high - low + 1, dtype=np.int64)
        table[self._sorted - low] = np.arange(self._sorted.size)
        return table[np.clip(ids - low, 0, high - low)]
