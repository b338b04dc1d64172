"""Max-min fair flows, slowly: every rate anew at every instant, in plain Python and exact.

Two ways: in whole units of 1/1024 bytes per second, rounded down as Nadi does it, and with
fractions, which is what max-min fairness means.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

Number = int | Fraction
Way = Sequence[tuple[int, int]]  # links and weights


@dataclass(frozen=True)
class Flow:
    """A flow: links with weights, bytes, and when it starts (ps) or after which other it does."""

    way: Way
    size: int
    start: int = 0
    after: int = -1
    cap: int = 0


def floor_share(left: Number, weight: int) -> int:
    return int(left // weight)


def exact_share(left: Number, weight: int) -> Fraction:
    return Fraction(left) / weight


def max_min(
    capacity: Sequence[int],
    ways: dict[int, Way],
    share: Callable[[Number, int], Number],
    caps: dict[int, int],
) -> dict[int, Number]:
    """Return the rate of each flow: all get faster together until a link is full."""
    left: dict[object, Number] = dict(enumerate(capacity))
    links: dict[int, list[tuple[object, int]]] = {flow: list(way) for flow, way in ways.items()}
    for flow, cap in caps.items():
        left["cap", flow] = cap
        links[flow].append((("cap", flow), 1))
    rates: dict[int, Number] = {}
    while len(rates) < len(ways):
        open_weight: dict[object, int] = {}
        for flow in ways.keys() - rates.keys():
            for link, weight in links[flow]:
                open_weight[link] = open_weight.get(link, 0) + weight
        shares = {link: share(left[link], weight) for link, weight in open_weight.items()}
        level = min(shares.values())
        full = {link for link, one in shares.items() if one == level}
        for flow in sorted(ways.keys() - rates.keys()):
            if full & {link for link, _ in links[flow]}:
                rates[flow] = level
                for link, weight in links[flow]:
                    left[link] -= weight * level
    return rates


def end_times(
    capacity: Sequence[int], flows: Sequence[Flow], *, exact: bool = False
) -> list[Fraction | int]:
    """Return when each flow ends, in ps: rounded up to whole ps, or exact."""
    share = exact_share if exact else floor_share
    ends: list[Fraction | int] = [-1] * len(flows)
    waiting = set(range(len(flows)))
    left: dict[int, Fraction] = {}  # bytes times 1024 times 10^12
    now: Fraction | int = 0
    while waiting or left:
        begun = {
            flow
            for flow in waiting
            if (
                ends[flows[flow].after] >= 0 if flows[flow].after >= 0 else flows[flow].start <= now
            )
        }
        waiting -= begun
        for flow in begun:
            left[flow] = Fraction(flows[flow].size * 1024 * 10**12)
        at_once = {f for f in left if left[f] <= 0 or not (flows[f].way or flows[f].cap)}
        if at_once:
            for flow in at_once:
                ends[flow] = now
                del left[flow]
            continue
        ways = {flow: flows[flow].way for flow in left}
        caps = {flow: flows[flow].cap for flow in left if flows[flow].cap}
        rates = max_min(capacity, ways, share, caps)
        nexts: list[Fraction | int] = [flows[f].start for f in waiting if flows[f].after < 0]
        for flow, rate in rates.items():
            if rate > 0:
                time = now + left[flow] / Fraction(rate)
                nexts.append(time if exact else -(-time // 1))
        if not nexts:
            break
        then = min(nexts)
        for flow in left:
            left[flow] -= Fraction(rates[flow]) * (then - now)
        now = then
    return ends
