"""Switches of threads and their wakeups, as the system's scheduler recorded them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from nadi.errors import FormatError
from nadi.trace.arrays import Bools, Ints

__all__ = ["INTERRUPTS", "SWITCH", "WAKEUP", "SwitchEvents", "SwitchLog"]

SWITCH, WAKEUP = 0, 1
INTERRUPTS = {-1: "interrupt", -2: "timer", -4: "network", -5: "disk", -15: "timer",
              -16: "software interrupt"}  # fmt: skip
"""What wakes a thread if it is no thread, by its code."""


@dataclass(frozen=True, eq=False)
class SwitchEvents:
    """Events of the scheduler in order of time; arrays of shape (events,).

    Attributes
    ----------
    kind
        int64: SWITCH or WAKEUP.
    time
        int64 ns.
    before
        int64: the thread that leaves the CPU, or the one that wakes another.
    after
        int64: the thread that gets the CPU, or the one that is woken. 0 is the idle thread.
    cause
        int64: a code of ``INTERRUPTS`` if an interrupt woke the thread, else 0.
    stays
        bool: whether the thread that leaves could go on (it was preempted).
    names
        Name of each thread that has one.
    """

    kind: Ints
    time: Ints
    before: Ints
    after: Ints
    cause: Ints
    stays: Bools
    names: dict[int, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<SwitchEvents events={self.kind.size} threads={len(self.names)}>"


class SwitchLog:
    """Collects events while a file is read.

    Files have up to two events per wakeup: ``sched_waking``, in the context of the waker, and
    ``sched_wakeup``, which may come from an interrupt of another CPU. If there are any of the
    first kind, only those count.
    """

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self._switches: list[tuple[int, int, int, int, int, bool]] = []
        self._wakings: list[tuple[int, int, int, int, int, bool]] = []
        self._wakeups: list[tuple[int, int, int, int, int, bool]] = []

    def switch(self, time: int, before: int, after: int, *, stays: bool) -> None:
        """Add a switch from one thread to another."""
        self._switches.append((SWITCH, time, before, after, 0, stays))

    def wakeup(self, time: int, waker: int, woken: int, cause: int, *, is_waking: bool) -> None:
        """Add a wakeup; the idle thread wakes nobody, so an interrupt did."""
        where = self._wakings if is_waking else self._wakeups
        where.append((WAKEUP, time, waker, woken, cause or (0 if waker > 0 else -1), False))

    def events(self) -> SwitchEvents:
        """Give all events in order of time; of equal times wakeups come first.

        Raises
        ------
        FormatError
            If a time or a thread is no number of 64 bits.
        """
        rows = self._switches + (self._wakings or self._wakeups)
        try:
            table = np.array(rows, dtype=np.int64).reshape(-1, 6)
        except OverflowError:
            what = "a time or the number of a thread has over 63 bits"
            raise FormatError("", what, "record the switches again") from None
        table = table[np.lexsort((-table[:, 0], table[:, 1]))]
        kind, time, before, after, cause, stays = table.T.copy()
        return SwitchEvents(kind, time, before, after, cause, stays == 1, self.names)
