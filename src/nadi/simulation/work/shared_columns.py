"""Columns of ranks that share traces, which take memory for each different trace only."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["SharedColumn"]


class SharedColumn(np.lib.mixins.NDArrayOperatorsMixin):
    """A column of all nodes, of which each is one of a few own ones; behaves as an array.

    It is expanded where it is used, into an array that whoever uses it may drop. What numpy does
    with each value by itself is done with the own values first.

    Attributes
    ----------
    own
        Shape (own nodes,).
    place
        int32 or int64, shape (nodes,): which of them each node is.
    """

    def __init__(self, own: npt.NDArray[Any], place: npt.NDArray[Any]) -> None:
        self.own, self.place = own, place

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Return the values of all nodes."""
        own = self.own if dtype is None else self.own.astype(dtype)
        return np.asarray(own[self.place])

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Do with own values what is to be done with each value, else with all."""
        ours = [one for one in inputs if isinstance(one, SharedColumn)]
        others = [one for one in inputs if not isinstance(one, SharedColumn)]
        alike = all(one.place is self.place for one in ours) and all(map(np.isscalar, others))
        if alike and method == "__call__" and not options:
            own = (one.own if isinstance(one, SharedColumn) else one for one in inputs)
            return ufunc(*own)[self.place]
        whole = (np.asarray(one) if isinstance(one, SharedColumn) else one for one in inputs)
        return getattr(ufunc, method)(*whole, **options)

    def __getitem__(self, chosen: Any) -> Any:
        """Return the values of some nodes."""
        return self.own[self.place[chosen]]

    def __len__(self) -> int:
        """Return the number of nodes."""
        return self.place.size

    @property
    def size(self) -> int:
        """Number of nodes."""
        return self.place.size

    def __getattr__(self, name: str) -> Any:
        """Return what an array of all values has."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)
