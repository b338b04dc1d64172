"""``nadi memory place``: a job whose tensors live in several tiers of memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from nadi.errors import Parameter, UsageError
from nadi.memory.tiers.command import Outstanding, StudyFolder, sharings_in
from nadi.results.terminal.options import (
    AsJson,
    Overwrite,
    SystemName,
    amounts,
    names_in,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nadi.memory.table_lookups import RowCache
    from nadi.simulation.simulation import Simulation
    from nadi.systems.memory_tiers import MemoryTier
    from nadi.systems.system import System
    from nadi.trace.trace import Job, Trace

HELP = """Simulate a job whose tensors live in several memory tiers.

The job is a recording or Chakra traces with operands, or a generated job by a file of
its plan. Prints the step with and without tiers, where tensors live and move, which
operations wait for memory, what each kind of tensor costs, and from which bandwidth the
tier pays (docs/placement.md). nadi memory plan searches for other plans. The exit code
is 1 if tensors do not fit; of lists, with the first of each.

[bold]Examples[/]

  nadi memory place RECORDING --system dgx-h100 --place optimizer=cxl
  nadi memory place plan.toml --system dgx-h100 --memory 24,32,40 --bandwidth 64,128,256
"""

_GBPS = 64.0
_MOST_SKEW = 4.0  # beyond, the first row alone is looked up
_OUTSTANDING = 4096  # where nothing is said


_Job = Annotated[
    str, typer.Argument(metavar="JOB|PLAN", show_default=False,
                        help="A folder of traces with operands, or a file (.toml) with a model and "
                        "its plan."),
]  # fmt: skip
_Place = Annotated[
    str, typer.Option("--place", metavar="RULES|FILE", show_default=False,
                      help="Where tensors live, such as "
                      "optimizer=cxl,activations>64MB=cxl, a .csv or .json file, or solver "
                      "(docs/placement-solver.md); default: what moves most stays as the first "
                      "tier has room."),
]  # fmt: skip
_Memories = Annotated[
    str, typer.Option("--memory", metavar="LIST", show_default="the system's",
                      help="Capacities of the first tier, in GiB or with a unit."),
]  # fmt: skip
_Buffers = Annotated[
    str, typer.Option("--buffers", metavar="SIZE", show_default="a 16th of the first tier",
                      help="Buffers in the first tier for what is loaded."),
]  # fmt: skip
_Prefetch = Annotated[
    int, typer.Option("--prefetch", metavar="N", min=0, show_default="32",
                      help="Operations before a use that its load may begin."),
]  # fmt: skip
_InPlace = Annotated[
    bool, typer.Option("--in-place", help="Computations access tensors where they "
                       "live, rather than copies in buffers."),
]  # fmt: skip
_TableCache = Annotated[
    str, typer.Option("--table-cache", metavar="SIZE:SKEW", show_default="none",
                      help="A cache in the first tier of the rows of tables that are "
                      "looked up most, where the k-th is looked up k to the power -SKEW "
                      "times as often as the first, such as 1GiB:1.05 (docs/placement.md)."),
]  # fmt: skip
_Bandwidths = Annotated[
    str, typer.Option("--bandwidth", metavar="LIST", show_default="the system's, or 64",
                      help="Bandwidths of the tier, in GB/s or with a unit."),
]  # fmt: skip
_Capacities = Annotated[
    str, typer.Option("--capacity", metavar="LIST", show_default="the system's, or any",
                      help="Capacities of the tier, in GiB or with a unit."),
]  # fmt: skip
_Latencies = Annotated[
    str, typer.Option("--latency", metavar="LIST", show_default="the system's, or 250ns",
                      help="Of an access without load."),
]  # fmt: skip
_SharedBy = Annotated[
    str, typer.Option("--shared-by", metavar="LIST", show_default="the system's",
                      help="How many ranks share the tier, its bandwidth and its capacity."),
]  # fmt: skip


def command(
    job: _Job, system: SystemName = "", place: _Place = "", memory: _Memories = "",
    buffers: _Buffers = "", prefetch: _Prefetch = 0, in_place: _InPlace = False,
    table_cache: _TableCache = "", bandwidth: _Bandwidths = "", capacity: _Capacities = "",
    latency: _Latencies = "", outstanding: Outstanding = _OUTSTANDING, shared_by: _SharedBy = "",
    output: StudyFolder = None, overwrite: Overwrite = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Simulate, and print what tiers change."""
    from nadi.results.terminal.progress import show_progress

    if not system or "," in system:
        raise UsageError(
            Parameter("system", system or None), "a job needs one system",
            ["give one: ", Parameter("system", "dgx-h100")],
        )  # fmt: skip
    sharings, rates, most = sharings_in(shared_by), _rates(bandwidth), _sizes("capacity", capacity)
    firsts, buffer_sizes = _sizes("memory", memory), _sizes("buffers", buffers)
    with show_progress(announce=False, use="simulate") as progress:
        progress("starting")
        from nadi.memory.placement.result import (
            PLACEMENT,
            check_placement_folder,
            write_placement,
        )
        from nadi.memory.placement.study import PlacementQuestion, study_placement

        question = PlacementQuestion(
            place, rates, most, firsts, sharings, _latencies(latency), _tier(rates, outstanding),
            buffer_sizes[0] if buffer_sizes else 0, prefetch, in_place, _cache(table_cache),
        )  # fmt: skip
        if output is not None:
            check_placement_folder(output, overwrite=overwrite)
        found = study_placement(job, system, question, progress=progress)
        if output is not None:
            write_placement(output, found)
    PLACEMENT.tell(PLACEMENT.data(found), output, as_json=as_json)
    if found.chosen.excess:
        raise typer.Exit(1)


def simulate_offloaded(job: Job | Sequence[Trace], system: System, rules: str) -> Simulation:
    """Simulate a job on a system whose tensors live where rules say."""
    from nadi.memory.placement.placed_steps import plain_step
    from nadi.memory.placement_choice import ByRules, parse_rules

    plain = plain_step(job, system)
    staging = plain.staging(system)
    where = plain.chosen(ByRules(parse_rules(rules)), system, staging)
    return plain.placed(where, system, staging).simulation


def _sizes(name: str, text: str) -> tuple[int, ...]:
    """Read capacities."""
    from nadi.units import parse_bytes

    found = amounts(name, text, lambda one: parse_bytes(one) / 2**30)
    if any(one <= 0 for one in found):
        raise UsageError(Parameter(name, text), "a tier needs room", "give more than 0")
    return tuple(round(one * 2**30) for one in found)


def _rates(text: str) -> tuple[float, ...]:
    """Read bandwidths, in bytes per ns."""
    from nadi.units import parse_rate

    found = amounts("bandwidth", text, lambda one: parse_rate(one) / 1e9)
    if any(rate <= 0 for rate in found):
        raise UsageError(
            Parameter("bandwidth", text), "a tier needs a bandwidth", "give more than 0"
        )
    return found


def _tier(rates: tuple[float, ...], outstanding: int) -> MemoryTier | None:
    """Return a tier of its own, if how many accesses are under way is said."""
    from nadi.systems.memory_tiers import second_tier

    if outstanding == _OUTSTANDING:
        return None
    return second_tier(rates[0] if rates else _GBPS, outstanding=float(outstanding))


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
    from nadi.units import parse_ns

    try:
        return tuple(float(parse_ns(one)) for one in names_in(text))
    except ValueError as error:
        raise UsageError(Parameter("latency", text), str(error), "such as 250ns") from None
