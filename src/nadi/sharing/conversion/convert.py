"""Conversion between formats: one file, or a folder of ranks."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from nadi.errors import InputError
from nadi.files.csv_tables import file_of_table
from nadi.files.files import check_target, locate
from nadi.files.goal import is_goal, write_goal
from nadi.files.registry import READABLE_SUFFIXES, Format, format_for_writing, format_named
from nadi.files.trace_files import read, write
from nadi.files.whole_folders import whole_folder
from nadi.recordings.discover import list_files
from nadi.trace.issues import IssueLog

_GOAL = "goal"
_IN_FOLDERS = "chakra"  # what a folder is converted to unless another format is named


@dataclass(frozen=True)
class Conversion:
    """One converted file.

    Attributes
    ----------
    source, target
        The file read and the one written.
    format
        Name of the format written.
    nodes
        Number of operations.
    issues
        ``schema.ISSUES``: issues found while reading, and data that the new format cannot
        hold.
    """

    source: Path
    target: Path
    format: str
    nodes: int
    issues: pl.DataFrame


def convert(
    source: Path | str,
    target: Path | str,
    *,
    to: str = "",
    schema: str = "",
    overwrite: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Conversion]:
    """Convert a trace, or each trace of a folder; or all traces of a job to one GOAL file.

    Parameters
    ----------
    source
        A file, a folder, or a URL of either.
    target
        A file; or a folder, if the source is one, or if it exists already.
    to
        Name of a format; default: from the target's suffix, and Chakra for a folder. ``goal``
        takes the traces of a job, which :func:`nadi.recordings.read_job` accepts.
    schema
        Of Chakra traces: ``0.0.4`` or ``1.0.0``.
    overwrite
        Whether to replace existing files.
    progress
        Called with a line of text before each longer stage.

    Raises
    ------
    InputError
        If a file cannot be read or written, exists already, or two files get the same name.
    UsageError
        If the format is unknown or cannot be written.
    """
    if to == _GOAL or (not to and is_goal(target)):
        return [_convert_job(locate(source), locate(target), overwrite, progress)]
    read_from, write_to = locate(source), locate(target)
    if read_from.is_dir() or write_to.is_dir():
        chosen = format_named(to or _IN_FOLDERS)
        pairs = _files_of_folder(list_files([source]).traces, write_to, chosen)
    else:
        chosen = format_for_writing(write_to, to)
        pairs = [(read_from, write_to)]
    format_for_writing(write_to, chosen.name)
    for origin, goal in pairs:
        # a CSV is several files, of which the nodes' is always one
        written = file_of_table(goal, "nodes") if chosen.name == "csv" else goal
        check_target(written, [origin], overwrite=overwrite)
    is_folder = read_from.is_dir() or write_to.is_dir()
    with (
        whole_folder(write_to, overwrite=overwrite)
        if is_folder
        else nullcontext(write_to.parent) as inside
    ):
        return [
            _convert_file(origin, goal, inside, (chosen, schema), progress)
            for origin, goal in pairs
        ]


def _files_of_folder(files: list[Path], folder: Path, to: Format) -> list[tuple[Path, Path]]:
    pairs: dict[Path, Path] = {}
    for file in files:
        target = folder / f"{_stem(file)}{to.suffixes[0]}"
        if target in pairs:
            raise InputError(
                str(file), f"would be written to {target}, as {pairs[target].name} would",
                "convert one of them on its own",
            )  # fmt: skip
        pairs[target] = file
    return [(file, target) for target, file in pairs.items()]


def _stem(file: Path) -> str:
    fitting = [suffix for suffix in READABLE_SUFFIXES if file.name.endswith(suffix)]
    return file.name.removesuffix(max(fitting, key=len, default=file.suffix))


def _convert_file(
    source: Path,
    target: Path,
    inside: Path,
    how: tuple[Format, str],
    progress: Callable[[str], None],
) -> Conversion:
    to, schema = how
    progress(f"reading {source.name}")
    trace = read(source)
    progress(f"writing {target.name}")
    left_out = write(trace, inside / target.name, to=to.name, schema=schema)
    issues = pl.concat([trace.issues, left_out])
    return Conversion(source, target, to.name, trace.nodes.height, issues)


def _convert_job(
    source: Path, target: Path, overwrite: bool, progress: Callable[[str], None]
) -> Conversion:
    """Write a job as one program of messages."""
    from nadi.simulation.loggp.message_jobs import read_messages  # which other formats do without

    check_target(target, [source], overwrite=overwrite)
    log = IssueLog()
    program = read_messages(source, log=log, progress=progress)
    progress(f"writing {target.name}")
    write_goal(program, target, overwrite=overwrite)
    return Conversion(source, target, _GOAL, program.num_operations, log.table())
