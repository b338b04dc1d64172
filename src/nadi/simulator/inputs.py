"""The traces of a job to simulate: a folder of them, or the prefix that their names begin with."""

from __future__ import annotations

import re
from pathlib import Path

from nadi import formats
from nadi.errors import InputError, PairError
from nadi.trace import Trace

__all__ = ["find_ranks", "read_ranks"]

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
            raise PairError(str(path), f"rank {rank} has no file, and rank {max(found)} has")
    return [found[rank] for rank in range(len(found))]


def read_ranks(path: Path | str) -> list[Trace]:
    """Read the traces of a job, in order of rank.

    Raises
    ------
    InputError
        If they cannot be found or read.
    """
    return [formats.read(file) for file in find_ranks(path)]
