"""The collective between two operations follows from how each has its tensor laid out.

This is said once, as a table: an operation gives a tensor in one layout on the ranks of an axis,
the next one needs it in another, and the pair names the collective. What a weight goes
through along the data parallel axis follows from the same table.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from nadi.errors import UsageError

__all__ = ["Exchange", "Layout", "exchange"]


class Layout(Enum):
    """How the ranks of an axis hold a tensor.

    WHOLE: each has all of it. TOKENS, FEATURES: each has a part, along the sequence or the width.
    PARTIAL: each has a summand. PARTS: each has a part of a weight or its gradient, or the tokens
    that belong to its experts.
    """

    WHOLE = "whole"
    TOKENS = "tokens"
    FEATURES = "features"
    PARTIAL = "partial"
    PARTS = "parts"


class Exchange(NamedTuple):
    """A collective, and the bytes that each of its ranks contributes."""

    comm_type: str
    bytes: int


_SPLIT = (Layout.TOKENS, Layout.FEATURES, Layout.PARTS)
_COLLECTIVE: dict[tuple[Layout, Layout], str] = {
    (Layout.PARTIAL, Layout.WHOLE): "all_reduce",
    **{(Layout.PARTIAL, part): "reduce_scatter" for part in _SPLIT},
    **{(part, Layout.WHOLE): "all_gather" for part in _SPLIT},
    (Layout.TOKENS, Layout.FEATURES): "all_to_all",
    (Layout.FEATURES, Layout.TOKENS): "all_to_all",
    # tokens to their experts, and back
    (Layout.TOKENS, Layout.PARTS): "all_to_all",
    (Layout.PARTS, Layout.TOKENS): "all_to_all",
    # a rank that has all of a tensor takes its part
    **{(Layout.WHOLE, part): "" for part in _SPLIT},
    **{(layout, layout): "" for layout in Layout},
}


def exchange(given: Layout, needed: Layout, size: int, ranks: int) -> Exchange | None:
    """Return the collective that brings a tensor from one layout into another.

    Parameters
    ----------
    given, needed
        Its layouts.
    size
        Bytes of the whole tensor.
    ranks
        Number of ranks of the axis; one needs no collective.

    Raises
    ------
    UsageError
        If there is none: summands are only made by computing.
    """
    if (given, needed) not in _COLLECTIVE:
        what = f"no collective makes it {needed.value}"
        raise UsageError(f"a tensor that is {given.value}", what, "change the operation after it")
    comm_type = _COLLECTIVE[given, needed]
    if ranks == 1 or not comm_type:
        return None
    part = size if comm_type in ("all_reduce", "reduce_scatter") else -(-size // ranks)
    return Exchange(comm_type, part)
