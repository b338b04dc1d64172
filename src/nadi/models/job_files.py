"""Write a job: a Chakra trace per rank, and the members of its process groups."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from nadi.errors import InputError, UsageError, checked
from nadi.files import files as container
from nadi.files.files import check_target, locate
from nadi.files.trace_files import write
from nadi.files.whole_folders import whole_folder
from nadi.trace.trace import Job

COMM_GROUPS = "comm_group.json"
_NAME = re.compile(r"[^/\\\x00-\x1f]*[^/\\\x00-\x1f0-9.]")


@dataclass(frozen=True)
class JobFiles:
    """The files of a job.

    Attributes
    ----------
    traces
        The .et of each rank, in order of rank.
    comm_groups
        The file with the members of each process group.
    nodes
        Number of nodes of all ranks.
    """

    traces: tuple[Path, ...]
    comm_groups: Path
    nodes: int


@checked
def write_job(
    job: Job, folder: Path | str, *, name: str = "trace", schema: str = "", overwrite: bool = False
) -> JobFiles:
    """Write ``NAME.<rank>.et`` for each rank, and ``comm_group.json``.

    ``nadi simulate FOLDER``, ASTRA-sim and :func:`nadi.recordings.read_job` read them.

    Parameters
    ----------
    job
        As a :class:`JobBuilder` makes it. Ranks are numbered from 0 in their order.
    folder
        A folder or address; it is made if necessary.
    name
        What the names of the traces begin with.
    schema
        Of Chakra: ``0.0.4`` (default) or ``1.0.0``.
    overwrite
        Whether existing files are replaced; traces of further ranks with this name are removed.

    Raises
    ------
    UsageError
        If the name cannot be one, or groups of the same name have different members.
    InputError
        If a file exists already, or cannot be written.
    """
    if not _NAME.fullmatch(name):
        what = "cannot begin the name of a trace: it must not end with a digit or a dot"
        raise UsageError(repr(name), what, "choose a name such as 'trace'")
    place = locate(folder)
    paths = _paths(place, name, len(job.traces))
    beyond = check_place(place, name, len(job.traces), overwrite=overwrite)
    groups = _groups(job)
    with whole_folder(place, overwrite=overwrite, instead_of=beyond) as inside:
        for rank, path in enumerate(paths):
            own = replace(job.own_trace(rank, numbered=True), rank=rank, world_size=len(paths))
            write(own, inside / path.name, to="chakra", schema=schema)
        container.write_pieces(inside / COMM_GROUPS, [msgspec.json.encode(groups)])
    return JobFiles(tuple(paths), place / COMM_GROUPS, job.num_nodes)


def check_place(folder: Path, name: str, num_ranks: int, *, overwrite: bool) -> Sequence[Path]:
    """Check that a job may be written to a folder; writes nothing.

    - Returns sequence of Path: Traces of further ranks with this name, which would become part of
      the job.
    - Raises InputError if a file exists already and ``overwrite`` is not given, or the folder is a
      file.
    """
    if folder.is_file():
        what = "is a file, but the traces of ranks are written into a folder"
        raise InputError(str(folder), what, "name a folder")
    pattern = re.compile(re.escape(name) + r"\.?(\d+)\.et(?:\.gz)?")
    existing = sorted(folder.iterdir()) if folder.is_dir() else []
    wanted = {*_paths(folder, name, num_ranks), folder / COMM_GROUPS}
    beyond = [path for path in existing if pattern.fullmatch(path.name) and path not in wanted]
    for path in (*(path for path in existing if path in wanted), *beyond):
        check_target(path, (), overwrite=overwrite)
    return beyond


def _paths(folder: Path, name: str, num_ranks: int) -> list[Path]:
    return [folder / f"{name}.{rank}.et" for rank in range(num_ranks)]


def _groups(job: Job) -> dict[str, list[int]]:
    """Return the members of each process group of a job, by name."""
    found: dict[str, list[int]] = {}
    if job.rank_groups is not None:
        for role, ranks in job.rank_groups.members.items():
            first = job.rank_groups.first_number[role]
            found |= {str(first + n): sorted(one) for n, one in enumerate(ranks.tolist())}
        return found
    for trace in dict.fromkeys(job.traces):
        for name, ranks in trace.groups.select("name", "ranks").iter_rows():
            if found.setdefault(name, ranks) != ranks:
                raise UsageError(
                    f"group {name!r}", f"its ranks are {found[name]} in one trace, and {ranks} in "
                    "another", "give each group its own name",
                )  # fmt: skip
    return found
