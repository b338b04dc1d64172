"""Options that several commands share, and the console for their output.

Options that are lists: names, and numbers with or without units.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nadi.errors import Parameter, UsageError, Wording

if TYPE_CHECKING:
    from rich.console import Console


Step = Annotated[
    str, typer.Option("--step", metavar="N|all", help="The step (ProfilerStep#N) to analyse.")
]
TimeRange = Annotated[
    str,
    typer.Option(
        "--window", metavar="FROM:TO",
        help="Analyse a time range instead of steps: two times since the first event, such as "
        "120ms:180ms.",
        show_default=False,
    ),
]  # fmt: skip
Capture = Annotated[
    str,
    typer.Option(
        "--capture", metavar="FILE|FOLDER",
        help="Recordings of the capture of CUDA or HIP graphs, or of the same kernels without "
        "graphs: they say which operators and modules launched the kernels that graphs replay. "
        "Those beside the traces, with capture in their name, are found without this option.",
        show_default=False,
    ),
]  # fmt: skip
ExecutorName = Annotated[
    str,
    typer.Option(
        "--executor", metavar="processes[:N]|dask://HOST:PORT|MODULE:NAME", show_default=False,
        help="Where ranks are read and linked, or parts of a search worked out: in N processes, "
        "or one on each core; by a Dask cluster; or by any concurrent.futures.Executor of Python.",
    ),
]  # fmt: skip
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON only.")]
JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help="A folder of files such as workload.0.et, the "
                        "prefix of their names, a folder of recordings, or a folded job.",
                        show_default=False),
]  # fmt: skip
JobOutput = Annotated[
    str, typer.Option("-o", "--output", metavar="OUT", show_default=False,
                      help="Write a Chakra trace per rank and comm_group.json to this folder, "
                      "or all ranks folded to this file (.nadi)."),
]  # fmt: skip
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace output files that exist already.")
]
ForceLink = Annotated[
    bool,
    typer.Option(
        "--force", help="Link a host and a device trace even if few of their operations match."
    ),
]
SystemName = Annotated[
    str, typer.Option("--system", metavar="NAME|FILE", show_default=False,
                      help="A system that ships with Nadi, or a file in TOML, YAML or JSON."),
]  # fmt: skip
SimulatedOn = Annotated[
    str, typer.Option("--system", metavar="NAME|FILE", show_default=False,
                      help="Simulate the job on this system, without writing it."),
]  # fmt: skip
Format = Annotated[
    str, typer.Option("--to", metavar="FORMAT", help="Output format; default for a folder: "
                      "chakra.", show_default=False),
]  # fmt: skip
ChakraSchema = Annotated[
    str, typer.Option("--schema", metavar="VERSION", help="Chakra schema: 0.0.4 or 1.0.0.",
                      show_default=False),
]  # fmt: skip
Measured = Annotated[
    list[Path] | None,
    typer.Option(
        "--measured", metavar="FILE",
        help="The output of nccl-tests for one collective, as it is printed, or a file or folder "
        "of NCCL's Inspector: collectives of its type, ranks and nodes take its times; repeatable.",
        show_default=False,
    ),
]  # fmt: skip
Calibrate = Annotated[
    list[Path] | None,
    typer.Option(
        "--calibrate", metavar="RECORDING|MEASUREMENTS", show_default=False,
        help="What was measured on the system: a recording, whose operations' times come before "
        "the device's curves, or the output of nccl-tests or of NCCL's Inspector, whose times "
        "collectives take; repeatable. The answer has the interval that prices leave.",
    ),
]  # fmt: skip
ResultsFolder = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output",
        metavar="FOLDER",
        help="Write summary.json, critical_path.csv and timeline.json.gz (for ui.perfetto.dev) "
        "to this folder.",
        show_default=False,
    ),
]  # fmt: skip


ReportFile = Annotated[
    Path | None,
    typer.Option(
        "--report", metavar="FILE", show_default=False,
        help="Also write the results as one HTML page, with a timeline.",
    ),
]  # fmt: skip

SweepOver = Annotated[
    list[str] | None,
    typer.Option(
        "--sweep", metavar="FIELD=VALUES", show_default=False,
        help="Vary a field of the model, the system or how it is run by its path in their "
        "files, such as memory.tier2.bandwidth=32,64,128GB/s or tp=1:8:x2 (from, to, and a step "
        "or a factor); repeatable once, for a second axis.",
    ),
]  # fmt: skip

SweepFile = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", show_default=False,
                 help="Write the sweep: a table (.csv, .json, .parquet) or a chart (.html, .svg, "
                 ".png)."),
]  # fmt: skip


def output_console(*, wraps: bool = True) -> Console:
    """Return the console of standard output, which wraps lines only in a terminal."""
    from nadi.results.text import PrintableConsole

    soft_wrap = not wraps or not sys.stdout.isatty()
    return PrintableConsole(highlight=False, emoji=False, soft_wrap=soft_wrap)


def refuse(met: str, remedy: Wording, **given: object) -> None:
    """Refuse options that do not apply to what is asked for: those that have a value.

    - Raises UsageError if any has one.
    """
    for name, value in given.items():
        if value:
            raise UsageError(Parameter(name, value), met, remedy)


def names_in(text: str) -> list[str]:
    """Read a list of names."""
    return [one.strip() for one in text.split(",") if one.strip()]


def amounts(name: str, text: str, parse: Callable[[str], float]) -> tuple[float, ...]:
    """Read a list of numbers, with or without units."""
    found = []
    for one in names_in(text):
        try:
            found.append(float(one) if one.replace(".", "", 1).isdecimal() else parse(one))
        except ValueError as error:
            raise UsageError(
                Parameter(name, one), str(error), "give numbers with commas between them"
            ) from None
    return tuple(found)
