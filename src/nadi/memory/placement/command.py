"""``nadi cxl --trace``: a job whose tensors live in several tiers of memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nadi.errors import Parameter, UsageError

if TYPE_CHECKING:
    from nadi.memory.placement.study import PlacementQuestion
    from nadi.memory.table_lookups import RowCache

__all__ = ["PlacedWishes", "study_trace"]

_GBPS = 64.0
_MOST_SKEW = 4.0  # beyond, the first row alone is looked up
_LATENCY, _OUTSTANDING = "250ns", 4096  # where nothing is said


class PlacedWishes(NamedTuple):
    """What a user asks for, as the options say it.

    Attributes
    ----------
    tier
        Bandwidths, capacities, latencies, accesses under way, and how many ranks share it.
    """

    trace: str
    system: str
    place: str
    memory: str
    buffers: str
    prefetch: int
    in_place: bool
    table_cache: str
    tier: tuple[str, str, str, int, tuple[int, ...]]
    output: Path | None
    overwrite: bool
    as_json: bool


def study_trace(wishes: PlacedWishes) -> None:
    """Simulate, and print what tiers change."""
    from nadi.results.terminal.progress import show_progress

    if not wishes.system or "," in wishes.system:
        raise UsageError(
            Parameter("system", wishes.system or None), "a job needs one system",
            ["give one: ", Parameter("system", "dgx-h100")],
        )  # fmt: skip
    question = _question(wishes)
    with show_progress(announce=False, use="simulate") as progress:
        progress("starting")
        from nadi.memory.placement.result import (
            PLACEMENT,
            check_placement_folder,
            write_placement,
        )
        from nadi.memory.placement.study import study_placement

        if wishes.output is not None:
            check_placement_folder(wishes.output, overwrite=wishes.overwrite)
        found = study_placement(wishes.trace, wishes.system, question, progress=progress)
        if wishes.output is not None:
            write_placement(wishes.output, found)
    PLACEMENT.tell(PLACEMENT.data(found), wishes.output, as_json=wishes.as_json)


def _question(wishes: PlacedWishes) -> PlacementQuestion:
    from nadi.memory.placement.study import PlacementQuestion
    from nadi.results.terminal.options import amounts
    from nadi.systems.memory_tiers import second_tier
    from nadi.units import parse_bytes, parse_rate

    def sizes(name: str, text: str) -> tuple[int, ...]:
        found = amounts(name, text, lambda one: parse_bytes(one) / 2**30)
        for one in found:
            if one <= 0:
                raise UsageError(Parameter(name, text), "a tier needs room", "give more than 0")
        return tuple(round(one * 2**30) for one in found)

    bandwidth, capacity, *_, sharings = wishes.tier
    rates = amounts("bandwidth", bandwidth, lambda one: parse_rate(one) / 1e9)
    if any(rate <= 0 for rate in rates):
        raise UsageError(
            Parameter("bandwidth", bandwidth), "a tier needs a bandwidth", "give more than 0"
        )
    buffers = sizes("buffers", wishes.buffers)
    latencies = _latencies(wishes.tier[2])
    tier = None
    if wishes.tier[3] != _OUTSTANDING:  # a tier of its own
        tier = second_tier(rates[0] if rates else _GBPS, outstanding=float(wishes.tier[3]))
    return PlacementQuestion(
        wishes.place, rates, sizes("capacity", capacity), sizes("memory", wishes.memory),
        sharings, latencies, tier, buffers[0] if buffers else 0, wishes.prefetch, wishes.in_place,
        _cache(wishes.table_cache),
    )  # fmt: skip


def _cache(text: str) -> RowCache | None:
    """Read a cache of rows, such as ``1GiB:1.05``; None if there is none."""
    from nadi.memory.table_lookups import RowCache
    from nadi.units import parse_bytes

    if not text:
        return None
    size, _, skew = text.partition(":")
    where = Parameter("table_cache", text)
    try:
        found = RowCache(parse_bytes(size), float(skew))
    except ValueError as error:
        raise UsageError(where, str(error), "give its size and the skew: 1GiB:1.05") from None
    if found.capacity < 1 or not 0 <= found.skew <= _MOST_SKEW:
        raise UsageError(where, f"a size above 0, and a skew of 0 to {_MOST_SKEW:.0f}, are needed",
                         "such as 1GiB:1.05")  # fmt: skip
    return found


def _latencies(text: str) -> tuple[float, ...]:
    """Return latencies of the tier; none if nothing is said."""
    from nadi.results.terminal.options import names_in
    from nadi.units import parse_ns

    if text == _LATENCY:
        return ()
    try:
        return tuple(float(parse_ns(one)) for one in names_in(text) or [text])
    except ValueError as error:
        raise UsageError(Parameter("latency", text), str(error), "such as 250ns") from None
