"""When transfers end that share the links of one switch, slowly and with fractions.

Each send, and each collective, is one flow: of a collective all links of its members, each with
the bytes that go over it, at most as fast as it is alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from tests.reference.max_min import exact_share, max_min


@dataclass(frozen=True)
class Transfer:
    """A send from one rank to another, or a collective of several; times in ns.

    ``moved`` bytes leave each sender and come to each receiver; ``alone`` is how long that takes
    if nobody else is there, without what comes ``after`` (latency).
    """

    senders: tuple[int, ...]
    receivers: tuple[int, ...]
    moved: int
    alone: int
    start: int
    after: int = 0


def end_times(num_ranks: int, bandwidth: Fraction, transfers: Sequence[Transfer]) -> list[Fraction]:
    """Return when each transfer ends, if its start is known."""
    left = {k: Fraction(one.alone) for k, one in enumerate(transfers)}  # of its time alone
    ends = [Fraction(0)] * len(transfers)
    now = Fraction(0)
    while left:
        active = [k for k in left if transfers[k].start <= now]
        later = [Fraction(transfers[k].start) for k in left if transfers[k].start > now]
        # a flow's rate is that of its bytes on one link
        ways = {
            k: [(rank, 1) for rank in transfers[k].senders]
            + [(num_ranks + rank, 1) for rank in transfers[k].receivers]
            for k in active
        }
        caps = {k: Fraction(transfers[k].moved, transfers[k].alone) for k in active}
        rates = max_min([bandwidth] * (2 * num_ranks), ways, exact_share, caps) if active else {}
        speed = {k: Fraction(rates[k]) / caps[k] for k in active}
        then = min(later + [now + left[k] / speed[k] for k in active])
        for k in active:
            left[k] -= speed[k] * (then - now)
            if left[k] <= 0:
                ends[k] = then + transfers[k].after
                del left[k]
        now = then
    return ends
