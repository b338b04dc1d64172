"""Between what times the answer of a folded job is that of the whole job."""

from __future__ import annotations

import msgspec

__all__ = ["TimeBound"]


class TimeBound(msgspec.Struct, frozen=True):
    """An interval of times, in ns, both ends included.

    Attributes
    ----------
    low_ns, high_ns
        With the least and the largest of the times that alike ranks took, and less or more by
        ``contended_ns``.
    contended_ns
        For how long communications of a rank overlap each other: so long one can wait for others
        if times change their order.
    """

    low_ns: int
    high_ns: int
    contended_ns: int = 0

    @property
    def is_exact(self) -> bool:
        """Whether both ends are one."""
        return self.low_ns == self.high_ns
