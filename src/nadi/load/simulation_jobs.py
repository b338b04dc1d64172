"""The traces of a job to simulate: a folder of them, or the prefix that their names begin with."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from nadi.errors import InputError, PairError
from nadi.formats.trace_files import read_files
from nadi.load.discover import list_files
from nadi.model.trace import Job, Trace

__all__ = ["find_ranks", "read_job", "read_ranks"]

_WANTED = "an .et for each rank, or recordings: a device trace per rank, and the host traces"
_NUMBERS = re.compile(r"\d+")
_NAME = re.compile(r"(.*?)\.?(\d+)\.et(?:\.gz)?")


def find_ranks(path: Path | str) -> list[Path]:
    """Find the .et files of a job, in order of rank.

    Parameters
    ----------
    path
        A folder with files such as ``workload.0.et``, or ``folder/workload``, as ASTRA-sim
        is told of them.

    Raises
    ------
    InputError
        If there are none.
    PairError
        If the ranks in their names are not 0, 1, 2, ..., each once.
    """
    path = Path(path)
    folder, prefix = (path, "") if path.is_dir() else (path.parent, path.name)
    found: dict[int, Path] = {}
    for file in sorted(folder.iterdir()) if folder.is_dir() else []:
        match = _NAME.fullmatch(file.name)
        if not match or (prefix and match[1] != prefix):
            continue
        rank = int(match[2])
        if rank in found:
            raise PairError(
                str(path), f"{found[rank].name} and {file.name} are both of rank {rank}",
                "name the traces by their prefix",
            )  # fmt: skip
        found[rank] = file
    if not found:
        raise InputError(
            str(path), "there are no files such as workload.0.et",
            "name their folder, or what their names begin with",
        )  # fmt: skip
    for rank in range(len(found)):
        if rank not in found:
            raise PairError(
                str(path), f"rank {rank} has no file, and rank {max(found)} has",
                "give the traces of all ranks, numbered from 0",
            )  # fmt: skip
    return [found[rank] for rank in range(len(found))]


def read_ranks(path: Path | str) -> list[Trace]:
    """Read the traces of a job, in order of rank.

    Raises
    ------
    InputError
        If they cannot be found or read.
    """
    return read_files(find_ranks(path))


def read_job(
    path: Path | str, progress: Callable[[str], None] = lambda _: None
) -> Job | list[Trace]:
    """Read a job to simulate, recorded or made.

    Parameters
    ----------
    path
        A folder, or what its files' names begin with: an .et, a Chakra trace in JSON or a
        ``.nadi`` file for each rank, with the rank in its name; or PyTorch's recordings, a host
        and a device trace for each rank, or device traces alone. A file, for a job of one rank.
        Where there are .et files, they are the job: what lies beside them may be their groups.
    progress
        Called with a line of text before each longer stage.

    Returns
    -------
    Job or list of Trace
        Linked, if it is a recording in PyTorch's files; else the traces in order of rank.

    Raises
    ------
    InputError
        If it cannot be found or read, or if files do not belong together.
    """
    place = Path(path)
    files = _with_prefix(place)
    if not files and not place.exists() and place.parent.is_dir():
        raise InputError(
            str(path), "there is no such file or folder, and no file whose name begins so",
            "name a folder, a file, or what the names of a job's files begin with",
        )  # fmt: skip
    inside = place.iterdir() if place.is_dir() else files
    names = [match for file in inside if (match := _NAME.fullmatch(file.name))]
    if (place.is_dir() and names) or any(match[1] == place.name for match in names):
        progress("reading traces")
        return read_ranks(place)
    from nadi.load.recordings import load_job, read_all  # which link recordings

    found = list_files(files or [path], _WANTED)
    if found.hosts or found.devices:
        if found.others:
            raise PairError(
                str(path), f"{found.others[0].name} is a rank by itself, and beside it are a host "
                "and a device trace for each", "name the files by what their names begin with",
            )  # fmt: skip
        return load_job(*found.traces, progress=progress)
    return read_all(_by_rank(found.others, str(path)), progress)


def _with_prefix(place: Path) -> list[Path]:
    """Give the files whose names begin as a path that is no file itself."""
    if place.exists() or not place.parent.is_dir():
        return []
    inside = sorted(place.parent.iterdir())
    return [file for file in inside if file.name.startswith(place.name) and file.is_file()]


def _by_rank(files: list[Path], where: str) -> list[Path]:
    """Put traces that are a rank each in the order of the ranks in their names."""
    if len(files) == 1:
        return files
    found: dict[int, Path] = {}
    for file in files:
        numbers = _NUMBERS.findall(file.name)
        if not numbers:
            raise PairError(where, f"{file.name} does not say of which rank it is",
                            "name the traces such as workload.0.json")  # fmt: skip
        if (rank := int(numbers[-1])) in found:
            raise PairError(
                where, f"{found[rank].name} and {file.name} are both of rank {rank}",
                "name the traces by their prefix",
            )  # fmt: skip
        found[rank] = file
    return [found[rank] for rank in sorted(found)]
