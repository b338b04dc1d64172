"""``nadi memory plan``: the fastest plans with a second memory tier, such as CXL memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nadi.errors import Parameter, UsageError
from nadi.estimates.searches.command import SetFields, fields_in
from nadi.estimates.single.command import Compat, calibration_of
from nadi.results.terminal.options import AsJson, Calibrate, Overwrite, amounts, names_in

if TYPE_CHECKING:
    from nadi.systems.memory_tiers import MemoryTier

HELP = """Search the fastest plans with a second memory tier, such as CXL.

For each model and system, searches the fastest execution without a second tier, and
with tiers of several bandwidths and capacities. Prints what becomes possible, what
becomes faster, from which bandwidth the tier pays, and from which more bandwidth gains
nothing. docs/cxl.md has the search space and a study with charts. nadi memory place keeps
the plan of a job. The exit code is 1 if nothing is possible, with a tier or without.

[bold]Examples[/]

  nadi memory plan
  nadi memory plan --model 175b,1t --system h100 --ranks 64 -o study
  nadi memory plan --model llama3-70b --system gb200-nvl72 --bandwidth 64,128 --capacity 1TiB
  nadi memory plan --model llama3-8b --system h100 --ranks 8 --set zero=3 --set cp=1,2
"""


_Models = Annotated[
    str,
    typer.Option("--model", metavar="NAMES", show_default=False,
                 help="Models: 13b, 22b, 175b, 530b, 1t, other names, or files; default: these "
                 "five."),
]  # fmt: skip
_Systems = Annotated[
    str,
    typer.Option("--system", metavar="NAMES", show_default=False,
                 help="Systems: a100, h100, h200, other names, or files; default: these three."),
]  # fmt: skip
_Ranks = Annotated[
    int,
    typer.Option("--ranks", metavar="N", min=0, show_default=False,
                 help="How many ranks; by default 4 for 13b, 8 for 22b, 128 for 530b and 1t, "
                 "else 64."),
]  # fmt: skip
_GlobalBatch = Annotated[
    int, typer.Option("--global-batch", metavar="N", min=1, help="Sequences of a step.")
]
_Bandwidths = Annotated[
    str, typer.Option("--bandwidth", metavar="LIST",
                      show_default="32,64,128,256,512",
                      help="Bandwidths of a tier, in GB/s or with a unit."),
]  # fmt: skip
_Capacities = Annotated[
    str, typer.Option("--capacity", metavar="LIST",
                      show_default="64,128,256,512,1024,4096",
                      help="Capacities of a tier, in GiB or with a unit."),
]  # fmt: skip
_Latency = Annotated[
    str, typer.Option("--latency", metavar="TIME", help="Of an access without load.")
]
Outstanding = Annotated[
    int, typer.Option("--outstanding", metavar="N", min=1,
                      help="Accesses of 64 bytes that a rank has under way."),
]  # fmt: skip
_SharedBy = Annotated[
    str, typer.Option("--shared-by", metavar="N", show_default="1",
                      help="How many ranks share a tier, its bandwidth and its capacity."),
]  # fmt: skip
StudyFolder = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FOLDER", show_default=False,
                 help="Write tables, index.html and charts as SVG to this folder."),
]  # fmt: skip
_BANDWIDTHS, _CAPACITIES = "32,64,128,256,512", "64,128,256,512,1024,4096"


def _refuse_several(**given: str) -> None:
    for name, text in given.items():
        if len(names_in(text)) > 1:
            raise UsageError(
                Parameter(name, text), "a search has one value of it",
                "give one, or ask nadi memory place about a job",
            )  # fmt: skip


def command(
    model: _Models = "", system: _Systems = "", ranks: _Ranks = 0, global_batch: _GlobalBatch = 512,
    given: SetFields = None,
    bandwidth: _Bandwidths = "", capacity: _Capacities = "", latency: _Latency = "250ns",
    outstanding: Outstanding = 4096, shared_by: _SharedBy = "",
    calibrate: Calibrate = None, compat: Compat = "",
    output: StudyFolder = None, overwrite: Overwrite = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Study, and print what changes."""
    _refuse_several(shared_by=shared_by, latency=latency)
    from nadi.results.terminal.progress import show_progress

    with show_progress(announce=False, counts="studies") as progress:
        progress("starting")
        from nadi.estimates.calculon.rules import rules_named
        from nadi.memory.tiers.result import (
            SECOND_TIER,
            check_study_folder,
            describe_studies,
            write_studies,
        )
        from nadi.memory.tiers.study import TierQuestion, study_second_tiers
        from nadi.units import parse_bytes, parse_rate

        rules = rules_named(compat)
        question = TierQuestion(
            amounts("bandwidth", bandwidth or _BANDWIDTHS, lambda text: parse_rate(text) / 1e9),
            amounts("capacity", capacity or _CAPACITIES, lambda text: parse_bytes(text) / 2**30),
            _kind(latency, outstanding, sharings_in(shared_by)), ranks, global_batch,
            calibration_of(calibrate, rules), fields_in(given),
        )  # fmt: skip
        if output is not None:
            check_study_folder(output, overwrite=overwrite)
        progress("studying")
        found = study_second_tiers(names_in(model), names_in(system), question, rules=rules)
    data = describe_studies(found)
    if output is not None:
        write_studies(output, data)
    SECOND_TIER.tell(data, output, as_json=as_json)
    if not any(job["without"]["rate"] or job["offloads"] for job in data):
        raise typer.Exit(1)


def sharings_in(text: str) -> tuple[int, ...]:
    """Read how many ranks share a tier."""
    found = names_in(text)
    for one in found:
        if not one.isdecimal() or int(one) < 1:
            raise UsageError(
                Parameter("shared_by", text), f"{one!r} is no number of ranks",
                "give numbers from 1 with commas between them",
            )  # fmt: skip
    return tuple(map(int, found))


def _kind(latency: str, outstanding: int, sharings: tuple[int, ...]) -> MemoryTier:
    from nadi.systems.memory_tiers import second_tier
    from nadi.units import parse_ns

    try:
        idle = parse_ns(latency)
    except ValueError as error:
        raise UsageError(Parameter("latency", latency), str(error), "such as 250ns") from None
    ranks = sharings[0] if sharings else 1
    return second_tier(1.0, 0, float(idle), float(outstanding), ranks)
