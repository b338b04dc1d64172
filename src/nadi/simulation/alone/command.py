"""``nadi collective``: one collective alone on a described system."""

from pathlib import Path
from typing import Annotated, Any

import typer

from nadi.errors import Parameter, UsageError
from nadi.results.terminal.options import AsJson, Measured, Overwrite, SystemName

HELP = """Predict the time of one collective, and what NCCL chooses.

Prints the time, algorithm, protocol, channels and bus bandwidth, and the least time
that its bytes take. Sizes are those of nccl-tests: for an all-gather, the gathered bytes.
Several sizes are a list, or a range whose sizes double.

[bold]Examples[/]

  nadi collective all_reduce 256MB --system dgx-h100 --ranks 64
  nadi collective all_gather 1KiB..8GiB --system hgx-h200 --ranks 16 -o times.csv
  nadi collective all_reduce 1MiB,1GiB --system dgx-h100 --ranks 16 --measured nccl-tests.txt
  nadi collective measured --system dgx-h100 --measured INSPECTOR_LOGS
"""
_MOST_SIZES = 1000
_MEASURED = "measured"


_Collective = Annotated[
    str, typer.Argument(metavar="COLLECTIVE", show_default=False,
                        help="all_reduce, all_gather, reduce_scatter, broadcast, reduce, "
                        "all_to_all, gather, scatter, barrier, or send: a message from the first "
                        "rank to the last; or measured: each that --measured has, compared."),
]  # fmt: skip
_Size = Annotated[
    str, typer.Argument(metavar="SIZE", help="Such as 256MB, 1KiB,1MiB or 1KiB..8GiB; not of "
                        "measured.", show_default=False),
]  # fmt: skip
_Ranks = Annotated[
    int | None, typer.Option("--ranks", metavar="N", min=2, show_default=False,
                             help="How many take part; by default those of a node."),
]  # fmt: skip
_NcclLog = Annotated[
    Path | None, typer.Option("--nccl-log", metavar="LOG", show_default=False,
                              help="Take NCCL's version and graphs from a log of "
                              "NCCL_DEBUG=INFO with the subsystems INIT and GRAPH."),
]  # fmt: skip
_Output = Annotated[
    str, typer.Option("-o", "--output", metavar="OUT", show_default=False,
                      help="Write a row per size (.csv, .json)."),
]  # fmt: skip


def command(
    collective: _Collective,
    size: _Size = "",
    *,
    system: SystemName,
    ranks: _Ranks = None,
    measured: Measured = None,
    nccl_log: _NcclLog = None,
    output: _Output = "",
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Estimate, and print or write."""
    from nadi.simulation.alone.collective import (
        compare_collectives,
        estimate_collectives,
        with_tables,
    )
    from nadi.simulation.alone.result import (
        COLLECTIVES,
        COMPARED,
        check_collective_output,
        write_collectives,
    )
    from nadi.systems.library import load_system, read_measured_collectives, read_nccl_log

    compares = collective == _MEASURED
    _check_size(size, ranks, measured, compares=compares)
    sizes = [] if compares else _sizes(size)
    if output:
        given = [Path(one) for one in (system, *(measured or []), nccl_log) if one]
        check_collective_output(output, given, overwrite=overwrite)
    tables = read_measured_collectives(measured or [])
    log = read_nccl_log(nccl_log) if nccl_log else None
    result: Any = COMPARED if compares else COLLECTIVES
    if compares:
        compared = compare_collectives(
            lambda n: with_tables(load_system(system, n), (), log), tables
        )
        data = result.data((compared, load_system(system, None).name))
    else:
        machine = with_tables(load_system(system, ranks), tables, log)
        data = result.data((estimate_collectives(machine, collective, sizes), machine.name))
    if output:
        write_collectives(data, output)
    result.tell(data, output, as_json=as_json)


def _check_size(
    size: str, ranks: int | None, measured: list[Path] | None, *, compares: bool
) -> None:  # fmt: skip
    """Raise UsageError if a size is missing, or is given where files have the sizes."""
    if not compares and not size:
        raise UsageError("SIZE", "it is missing", "such as 1KiB..8GiB")
    if compares and (size or ranks):
        raise UsageError(
            _MEASURED, "sizes and ranks are those of the measured files", "leave out the others"
        )
    if compares and not measured:
        raise UsageError(
            Parameter("measured"), "no file is given to compare with",
            "name outputs of nccl-tests, or what NCCL's Inspector has written",
        )  # fmt: skip


def _sizes(text: str) -> list[int]:
    """Read one size, a list, or a range whose sizes double."""
    sizes = []
    for part in text.split(","):
        first, dots, last = part.partition("..")
        low = _bytes(first)
        high = _bytes(last) if dots else low
        if high < low:
            raise UsageError(part, "the range ends before it begins", "such as 1KiB..8GiB")
        while low <= high:
            sizes.append(low)
            low *= 2
    if len(sizes) > _MOST_SIZES:
        raise UsageError(f"{len(sizes)} sizes", f"at most {_MOST_SIZES} are estimated")
    return sizes


def _bytes(text: str) -> int:
    from nadi.units import parse_bytes

    try:
        size = parse_bytes(text)
    except ValueError as error:
        raise UsageError("SIZE", str(error)) from None
    if size < 1:
        raise UsageError("SIZE", f"{text!r} is not a byte or more", "such as 8B or 256MB")
    return size
