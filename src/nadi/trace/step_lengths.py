"""How long the steps of a recording took with each recorder, and without one."""

from __future__ import annotations

import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class StepLengths:
    """Lengths of steps of one process, as its recorder wrote them."""

    # timed_ns, observed_ns, unrecorded_ns: of the steps whose times are recorded, of those in which
    # the execution trace observer ran, and of those without a recorder
    timed_ns: tuple[int, ...] = ()
    observed_ns: tuple[int, ...] = ()
    unrecorded_ns: tuple[int, ...] = ()
    # whether the host trace is of other steps than the device trace, which followed
    host_is_later: bool = False
    # for how much of each timed step its thread was ready while others ran; empty if unknown
    ready_ns: tuple[int, ...] = ()

    @property
    def cost(self) -> float | None:
        """By how much longer the timed steps took, as a share: of medians; None if unknown."""
        if not self.timed_ns or not self.unrecorded_ns:
            return None
        return statistics.median(self.timed_ns) / statistics.median(self.unrecorded_ns) - 1

    @property
    def contention(self) -> float:
        """The share of the timed steps in which their thread was ready and did not run."""
        return sum(self.ready_ns) / max(sum(self.timed_ns), 1)
