"""``nadi cxl --trace``: a job whose tensors live in several tiers of memory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nadi.cli.shared_options import output_console
from nadi.errors import Parameter, UsageError

if TYPE_CHECKING:
    from nadi.pipeline.placed_steps import TierKind
    from nadi.pipeline.placement_studies import PlacementQuestion

__all__ = ["PlacedWishes", "study_trace"]

_USUAL = ("", "", "250ns", 4096, 1)  # of a tier, where nothing is said


class PlacedWishes(NamedTuple):
    """What a user asks for, as the options say it.

    Attributes
    ----------
    tier
        Bandwidths, capacities, latency, accesses under way, and how many ranks share it.
    """

    trace: str
    system: str
    place: str
    memory: str
    buffers: str
    prefetch: int
    in_place: bool
    tier: tuple[str, str, str, int, int]
    output: Path | None
    overwrite: bool
    as_json: bool


def study_trace(wishes: PlacedWishes) -> None:
    """Simulate, and print what tiers change."""
    from nadi.cli.progress_bar import show_progress

    if not wishes.system or "," in wishes.system:
        raise UsageError(
            Parameter("system", wishes.system or None), "a job needs one system",
            ["give one: ", Parameter("system", "dgx-h100")],
        )  # fmt: skip
    question = _question(wishes)
    with show_progress(announce=False, use="simulate") as progress:
        progress("starting")
        from nadi.pipeline.placement_studies import study_placement
        from nadi.report.placement_report import (
            check_placement_folder,
            describe_placement,
            print_placement,
            write_placement,
        )
        from nadi.report.text_layout import to_json

        if wishes.output is not None:
            check_placement_folder(wishes.output, overwrite=wishes.overwrite)
        found = study_placement(wishes.trace, wishes.system, question, progress=progress)
        if wishes.output is not None:
            write_placement(wishes.output, found)
    if wishes.as_json:
        sys.stdout.write(to_json(describe_placement(found)).decode())
        return
    console = output_console()
    print_placement(found, console)
    if wishes.output is not None:
        console.print(f"wrote {wishes.output}", markup=False)


def _question(wishes: PlacedWishes) -> PlacementQuestion:
    from nadi.cli.amount_lists import amounts
    from nadi.pipeline.placement_studies import PlacementQuestion
    from nadi.units import parse_bytes, parse_rate

    def sizes(name: str, text: str) -> tuple[int, ...]:
        found = amounts(name, text, lambda one: parse_bytes(one) / 2**30)
        for one in found:
            if one <= 0:
                raise UsageError(Parameter(name, text), "a tier needs room", "give more than 0")
        return tuple(round(one * 2**30) for one in found)

    bandwidth, capacity, *_ = wishes.tier
    rates = amounts("bandwidth", bandwidth, lambda one: parse_rate(one) / 1e9)
    if any(rate <= 0 for rate in rates):
        raise UsageError(
            Parameter("bandwidth", bandwidth), "a tier needs a bandwidth", "give more than 0"
        )
    buffers = sizes("buffers", wishes.buffers)
    return PlacementQuestion(
        wishes.place, rates, sizes("capacity", capacity), sizes("memory", wishes.memory),
        _kind(wishes), buffers[0] if buffers else 0, wishes.prefetch,
        wishes.in_place,
    )  # fmt: skip


def _kind(wishes: PlacedWishes) -> TierKind | None:
    """Return what options say of the tier; None if they say nothing of it."""
    from nadi.pipeline.placed_steps import TierKind
    from nadi.units import parse_ns

    if (wishes.tier[0], *wishes.tier[2:]) == (_USUAL[0], *_USUAL[2:]):
        return None
    _, _, latency, outstanding, shared_by = wishes.tier
    try:
        idle = parse_ns(latency)
    except ValueError as error:
        raise UsageError(Parameter("latency", latency), str(error), "such as 250ns") from None
    return TierKind(0.0, 0, float(idle), float(outstanding), shared_by)
