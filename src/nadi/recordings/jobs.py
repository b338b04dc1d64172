"""Read the traces of a job to simulate, from a folder or by the prefix of their names."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from nadi.errors import InputError, PairError, Parameter, UsageError
from nadi.files.astra_sim_text import is_text_workload, job_of_text
from nadi.files.files import read_head
from nadi.files.native.nadi_file import holds_fold
from nadi.files.trace_files import read_files
from nadi.files.whole_folders import refuse_partial
from nadi.recordings.discover import list_files
from nadi.recordings.rank_map import job_of_ranks, read_rank_map
from nadi.trace.trace import Job, Trace

_WANTED = "an .et for each rank, or recordings: a device trace per rank, and the host traces"
_NUMBERS = re.compile(r"\d+")
_NAME = re.compile(r"(.*?)\.?(\d+)\.et(?:\.gz)?")


def find_ranks(path: Path | str) -> list[Path]:
    """Find the .et files of a job, in order of rank.

    - ``path``: A folder with files such as ``workload.0.et``, or their prefix ``folder/workload``,
      as ASTRA-sim takes it.
    - Raises InputError if no file matches.
    - Raises PairError if the ranks in their names are not 0, 1, 2, ..., each once.
    """
    path = Path(path)
    folder, prefix = (path, "") if path.is_dir() else (path.parent, path.name)
    refuse_partial(folder)
    found: dict[int, Path] = {}
    for file in sorted(folder.iterdir()) if folder.is_dir() else []:
        match = _NAME.fullmatch(file.name)
        if not match or (prefix and match[1] != prefix):
            continue
        rank = int(match[2])
        if rank in found:
            raise PairError(
                str(path), f"{found[rank].name} and {file.name} both have rank {rank}",
                "pass the prefix of the traces' names",
            )  # fmt: skip
        found[rank] = file
    if not found:
        raise InputError(
            str(path), "no file has a name such as workload.0.et",
            "pass the folder of the traces, or the prefix of their names",
        )  # fmt: skip
    for rank in range(len(found)):
        if rank not in found:
            raise PairError(
                str(path), f"rank {rank} has no file, but rank {max(found)} has one",
                "provide the traces of all ranks, numbered from 0",
            )  # fmt: skip
    return [found[rank] for rank in range(len(found))]


def read_ranks(path: Path | str) -> list[Trace]:
    """Read the traces of a job, in order of rank.

    Raises
    ------
    InputError
        If the traces cannot be found or read.
    """
    return read_files(find_ranks(path))


def read_job(
    path: Path | str, progress: Callable[[str], None] = lambda _: None, num_ranks: int = 0
) -> Job | list[Trace]:
    """Read a job to simulate, recorded or synthetic.

    Parameters
    ----------
    path
        A folder, or the prefix of its files' names: an .et, a Chakra trace in JSON or a
        ``.nadi`` file for each rank, with the rank in its name; or PyTorch's recordings, a host
        and a device trace for each rank, or device traces alone. A file, for a job of one rank.
        If there are .et files, only they are the job, because JSON files beside them can be
        their process groups. A folder with ``ranks.json``, as ``nadi record --fake`` writes it. The
        file of a folded job, as ``nadi fold`` writes it.
    progress
        Called with a line of text before each longer stage.
    num_ranks
        How many ranks run a text workload, which describes any of them; 0 for those that it states,
        else one. Other files are of one rank each.

    Returns
    -------
    Job or list of Trace
        A linked job for a recording in PyTorch's files; else the traces in order of rank.

    Raises
    ------
    InputError
        If the job cannot be found or read, or the files do not belong together.
    UsageError
        If ``num_ranks`` is given for other files, or does not fit those of a text workload.
    """
    found = _read(path, progress)
    if not isinstance(found, Job) and len(found) == 1 and is_text_workload(found[0]):
        return job_of_text(found[0], num_ranks)
    if num_ranks:
        raise UsageError(
            Parameter("ranks", num_ranks), f"the files of {path} state its ranks", "leave it out"
        )
    return found


def _read(path: Path | str, progress: Callable[[str], None]) -> Job | list[Trace]:
    place = Path(path)
    files = _with_prefix(place)
    if not files and not place.exists() and place.parent.is_dir():
        raise InputError(
            str(path), "no file or folder has this name, and no file name begins with it",
            "pass a folder, a file, or the prefix of the names of a job's files",
        )  # fmt: skip
    if place.is_file() and holds_fold(read_head(place)):
        from nadi.recordings.folded.files import read_folded

        return read_folded(place)
    if place.is_dir() and (shared := read_rank_map(place)) is not None:
        return job_of_ranks(place, shared, progress)
    inside = place.iterdir() if place.is_dir() else files
    names = [match for file in inside if (match := _NAME.fullmatch(file.name))]
    if (place.is_dir() and names) or any(match[1] == place.name for match in names):
        progress("reading traces")
        return read_ranks(place)
    from nadi.recordings.job_of_files import load_job  # which links recordings
    from nadi.recordings.rank_tasks import read_all

    found = list_files(files or [path], _WANTED)
    if found.hosts or found.devices:
        if found.others:
            raise PairError(
                str(path), f"{found.others[0].name} holds a complete rank, but there are also host "
                "or device traces", "pass the prefix of the names of one set of files",
            )  # fmt: skip
        return load_job(*found.traces, progress=progress)
    return read_all(_by_rank(found.others, str(path)), progress)


def given_job(
    job: Job | Sequence[Trace] | Path | str, progress: Callable[[str], None] = lambda _: None
) -> Job | Sequence[Trace]:
    """Return a job as it is, or read it if it is given by its path.

    - Raises InputError as :func:`read_job`.
    - Raises UsageError if it is neither a job, nor traces, nor a path.
    """
    if isinstance(job, str | Path):
        return read_job(job, progress)
    traces = job if isinstance(job, Sequence) else [None]
    if isinstance(job, Job) or all(isinstance(trace, Trace) for trace in traces):
        return job
    raise UsageError(
        Parameter("job"), f"it is of type {type(job).__name__}, not Job",
        "give a job (nadi.load_job), a list with the trace of each rank, or a path",
    )  # fmt: skip


def _with_prefix(place: Path) -> list[Path]:
    """Return the files whose names begin with that of a path that does not exist."""
    if place.exists() or not place.parent.is_dir():
        return []
    inside = sorted(place.parent.iterdir())
    return [file for file in inside if file.name.startswith(place.name) and file.is_file()]


def _by_rank(files: list[Path], where: str) -> list[Path]:
    """Sort traces of whole ranks by the ranks in their names."""
    if len(files) == 1:
        return files
    found: dict[int, Path] = {}
    for file in files:
        numbers = _NUMBERS.findall(file.name)
        if not numbers:
            raise PairError(where, f"{file.name} does not state its rank",
                            "name the traces such as workload.0.json")  # fmt: skip
        if (rank := int(numbers[-1])) in found:
            raise PairError(
                where, f"{found[rank].name} and {file.name} both have rank {rank}",
                "pass the prefix of the traces' names",
            )  # fmt: skip
        found[rank] = file
    return [found[rank] for rank in sorted(found)]
