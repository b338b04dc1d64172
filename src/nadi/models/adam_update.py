"""What an update of weights by Adam costs."""

from __future__ import annotations

from nadi.trace.work import Work

__all__ = ["ADAM_STATE", "adam_work"]

ADAM_STATE = 12
"""Bytes of a parameter's float32 copy and its two moments."""

_FLOPS = 11  # per parameter, as Calculon counts Adam


def adam_work(parameters: int, gradient_itemsize: int, itemsize: int) -> Work:
    """Return the work of one update: the state is read and written, the gradient read.

    Parameters
    ----------
    gradient_itemsize, itemsize
        Bytes of an element of a gradient, and of a weight.
    """
    moved = parameters * (2 * ADAM_STATE + gradient_itemsize + itemsize)
    return Work("optimizer", _FLOPS * parameters, moved, dtype="float32")
