"""What pricing gave to the computations of a job, in sums."""

from __future__ import annotations

import msgspec

__all__ = ["PricedWork"]


class PricedWork(msgspec.Struct, frozen=True):
    """Computations that had no time and got one, over all ranks.

    Attributes
    ----------
    device
        Name of the device whose curves they were priced by.
    exact, interpolated, curve, roofline
        Number of operations by what their price comes from (``nadi.systems.SOURCES``).
    unpriced
        Number of operations without a time that state nothing to price them by.
    duration_ns, low_ns, high_ns
        Sums of all prices, and of the ends of their intervals.
    """

    device: str
    exact: int = 0
    interpolated: int = 0
    curve: int = 0
    roofline: int = 0
    unpriced: int = 0
    duration_ns: int = 0
    low_ns: int = 0
    high_ns: int = 0

    @property
    def num_priced(self) -> int:
        """Number of operations that got a time."""
        return self.exact + self.interpolated + self.curve + self.roofline

    def plus(self, other: PricedWork, times: int = 1) -> PricedWork:
        """Return the sum of two, of which the other one counts several times."""
        sums = {
            name: getattr(self, name) + times * getattr(other, name)
            for name in self.__struct_fields__
            if name != "device"
        }
        return PricedWork(self.device or other.device, **sums)
