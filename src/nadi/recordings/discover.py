"""Find the host and the device trace of each rank by the content of the files."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from nadi.errors import InputError, PairError, Parameter, UsageError
from nadi.files.files import is_local, locate, read_head
from nadi.files.registry import READABLE_SUFFIXES, SNAPSHOT, added_formats, suffixes_of
from nadi.files.trace_files import read, sniff
from nadi.files.whole_folders import refuse_partial
from nadi.recordings.join_ranks import refuse_other_sizes
from nadi.results.saved import RESULT_FILES
from nadi.trace.issues import IssueLog
from nadi.trace.trace import Trace

_Key = Callable[["TraceIdentity"], int | str | None]
_MAX_DIGITS = 9  # of a rank
_TOLD = 8  # folders
_RECORDINGS = "a device trace per rank, and the host traces if there are any"
RANK_IN_NAME = re.compile(r"(?i)rank[-_.]?(\d{1,9})(?!\d)")
_STEP_IN_NAME = re.compile(r"(?i)(?:step|iter|iteration)s?[-_.]?\d+")
_ITERATION = re.compile(r"(?i)(?:iteration|step|iter)[-_]?(\d{1,18})(?:_exit)?")
# below the folder of a job: of torchtitan's, also before 2026, and of Megatron's
_TRAINING = ("profiling/traces", "traces", "profile_traces", "profile_trace", "torch_profile")
_PARALLEL = re.compile(r"-TP-(\d{1,6})(?:-DP-\d+)?(?:-PP-(\d{1,6}))?(?:-EP-\d+)?(?=[-.]|$)")
_CAPTURE = re.compile(r"(?i)(?:^|[-_.])captures?(?:[-_.]|$)")
_PICKLES = (".pickle", ".pickle.gz", ".pkl", ".pkl.gz")
_TEXT = (".txt", ".txt.gz")  # of which few are traces
_SNAPSHOTS = ("profiling/memory_snapshot", "memory_snapshot")
# as PyTorch writes the beginning of its files; 18 digits are an int64
_HOST_PROCESS = re.compile(rb'\s*\{\s*"schema"\s*:\s*"[^"\\]*"\s*,\s*"pid"\s*:\s*(\d{1,18})\s*,')
_DEVICE_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d{1,9})\s*[,}]')
_WORLD_SIZE = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"world_size"\s*:\s*(\d{1,9})\s*[,}]')
_FIRST_OPERATOR = re.compile(
    rb'"cat"\s*:\s*"cpu_op"\s*,\s*"name"\s*:\s*"(?:[^"\\]|\\.)*+"\s*,\s*"pid"\s*:\s*(\d{1,18})\s*,'
)


@dataclass
class TraceFiles:
    """The files of a job, by kind, in order of name."""

    # hosts, devices: PyTorch execution traces and Kineto traces, which form one rank together
    hosts: list[Path] = field(default_factory=list)
    devices: list[Path] = field(default_factory=list)
    # traces that are a whole rank each: Chakra's, Nadi's own, text workloads
    others: list[Path] = field(default_factory=list)
    # Kineto traces of the capture of graphs, by their names or those of their folders, as serving
    # engines write them; found beside the device traces, too
    captures: list[Path] = field(default_factory=list)
    # whether the captures were named as such: they may hold the same kernels without graphs
    are_given: bool = False
    # files of a folder whose names look like traces, but that are not traces
    ignored: list[Path] = field(default_factory=list)
    # memory snapshots, or the folder with those of each step, beside device traces
    snapshots: list[Path] = field(default_factory=list)
    # earlier, cut_off: folders of earlier iterations than the one that is read, and that of the
    # last one if it has fewer files
    earlier: list[Path] = field(default_factory=list)
    cut_off: list[Path] = field(default_factory=list)

    @property
    def traces(self) -> list[Path]:
        """All traces."""
        return [*self.hosts, *self.devices, *self.others, *self.captures]

    @property
    def issues(self) -> pl.DataFrame:
        """The ignored files, as ``schema.ISSUES``."""
        log = IssueLog()
        log.add(
            "job.files-ignored", "warning", len(self.ignored),
            f"JSON files are not traces: {', '.join(path.name for path in self.ignored[:5])}",
            "they are ignored",
        )  # fmt: skip
        log.add(
            "job.snapshots", "info", len(self.snapshots),
            "memory snapshots lie beside the traces: "
            + ", ".join(map(str, self.snapshots[:5])),
            "nadi analyze memory, memory-holders and memory-segments read them",
        )  # fmt: skip
        log.add(
            "job.iterations", "info", len(self.earlier),
            "folders are of earlier iterations, each a recording of its own: "
            + ", ".join(path.name for path in self.earlier[-5:]),
            "a later one is read; pass the folder of another, or two of them to nadi diff",
        )  # fmt: skip
        log.add(
            "job.iterations-cut-off", "warning", len(self.cut_off),
            "folder of the last iteration has fewer traces than the one before, as if the job had "
            f"ended meanwhile: {', '.join(path.name for path in self.cut_off)}",
            "the one before is read; pass the folder of the last one to read that",
        )  # fmt: skip
        return log.table()


def find_files(paths: Sequence[Path | str], capture: Path | str = "") -> TraceFiles:
    """Find PyTorch's traces among files and folders, as :func:`list_files`.

    Device traces are required. Host traces may be absent for all ranks, but not for some. Captures
    of graphs are found beside the traces, or are all traces of ``capture``.

    - Raises InputError if a path does not exist, a file is no trace, or there is no device trace.
    """
    found = list_files(paths)
    if not found.devices:
        raise _no_device(paths, found)
    if capture:
        found.captures, found.are_given = list_files([capture]).traces, True
        return found
    for folder in dict.fromkeys(file.parent for file in found.devices):
        found.captures += [file for file in _captures_in(folder) if file not in found.traces]
    return found


def list_files(paths: Sequence[Path | str], wanted: str = _RECORDINGS) -> TraceFiles:
    """List the traces among files and folders.

    - ``paths``: Files, which must be traces; folders, of which every file with the suffix of a
      trace is examined, or of a folder for each rank those of all its subfolders; addresses such as
      ``s3://bucket/run``.
    - ``wanted``: What a folder should contain, for the error message if there is no trace.
    - Raises InputError if a path does not exist, a file is no trace, or there is no trace at all.
    """
    if not paths:
        raise UsageError(Parameter("paths"), "none is given", "name a folder or files")
    found = TraceFiles()
    places = [locate(path) for path in paths]
    for path in places:
        try:
            if path.is_dir():
                _sort_by_format(_files_of(path, found), found, required=False)
                continue
            if path.exists() and not path.is_file():
                raise InputError(
                    str(path), "is not a regular file", "save its content to a file first"
                )
        except OSError as error:
            raise InputError(str(path), f"cannot be read: {error.strerror}") from None
        _sort_by_format([path], found, required=True)
    if not found.traces:
        raise _no_traces(places, wanted)
    _put_snapshots_aside(found)
    found.captures = [file for file in found.devices if is_capture(file)]
    if len(found.captures) == len(found.devices):  # a recording with such a name
        found.captures = []
    found.devices = [file for file in found.devices if file not in found.captures]
    return found


def _put_snapshots_aside(found: TraceFiles) -> None:
    """Ignore memory snapshots beside device traces: they are of the same ranks, and say other."""
    is_snapshot = {file: (kind := sniff(file)) is not None and kind.name == SNAPSHOT
                   for file in found.devices if file.name.endswith(_PICKLES)}  # fmt: skip
    snapshots = [file for file, is_one in is_snapshot.items() if is_one]
    if len(snapshots) < len(found.devices):
        found.devices = [file for file in found.devices if file not in snapshots]
        found.snapshots += snapshots


def is_capture(file: Path) -> bool:
    """Return whether a file, or its folder, is named as the capture of graphs."""
    return any(_CAPTURE.search(name) for name in (file.name, file.parent.name))


def _captures_in(folder: Path) -> list[Path]:
    """Return the files of captures in a folder, and in those of its folders with such a name."""
    if not is_local(folder):
        return []
    named = [path for path in sorted(folder.iterdir()) if _CAPTURE.search(path.name)]
    files = [file for path in named for file in (_files_inside(path) if path.is_dir() else [path])]
    return [file for file in files if file.name.endswith(READABLE_SUFFIXES)]


def _files_inside(folder: Path) -> list[Path]:
    """Return the files of a folder that may be traces, in order of name.

    - Raises InputError if files that were written to it together are missing.
    """
    refuse_partial(folder)
    # Nadi's own results may lie beside the traces
    names = sorted(
        p for p in folder.iterdir() if p.name not in RESULT_FILES and not p.name.startswith(".")
    )
    found = [p for p in names if p.name.endswith(READABLE_SUFFIXES) and p.is_file()]
    if not found:
        suffixes = suffixes_of(added_formats())
        found = [p for p in names if p.name.endswith(suffixes) and p.is_file()]
    return found


def _files_of(folder: Path, found: TraceFiles) -> list[Path]:
    """Return the files of a folder that may be traces; without any trace, those below it."""
    inside = _files_inside(folder)
    if any(sniff(file) for file in inside):
        return inside
    # settings and logs lie where training was started, and its traces in a folder below
    return _of_iterations(folder, found) or _of_subfolders(folder) or inside


def _of_iterations(folder: Path, found: TraceFiles) -> list[Path]:
    """Return the files of the last iteration, if a folder has one for each, as torchtitan's.

    Megatron writes the files into a folder of a known name. A job may have ended while it wrote the
    last iteration: if that has fewer files than the one before, this is read. Memory snapshots are
    read where there are no traces.
    """
    traces, snapshots = (
        [folder / inner for inner in names
         if (folder / inner).is_dir() and any((folder / inner).iterdir())]
        for names in (_TRAINING, _SNAPSHOTS)
    )  # fmt: skip
    if traces:
        found.snapshots += snapshots
    below = traces or snapshots
    folder = below[0] if below else folder
    numbered = sorted((int(number[1]), one) for one in folder.iterdir()
                      if one.is_dir() and (number := _ITERATION.fullmatch(one.name)))  # fmt: skip
    if not numbered or len(numbered) < sum(one.is_dir() for one in folder.iterdir()):
        return _files_inside(folder) if below else []
    *earlier, last = [one for _, one in numbered]
    inside = _files_inside(last)
    if earlier and len(before := _files_inside(earlier[-1])) > len(inside):
        found.cut_off.append(last)
        *earlier, _ = earlier
        inside = before
    found.earlier += earlier
    return inside


def _of_subfolders(folder: Path) -> list[Path]:
    """Return the files of a folder for each rank: of equal names, except for numbers."""
    files = [file for below in sorted(folder.iterdir())
             if below.is_dir() and not below.name.startswith(".")
             for file in _files_inside(below)]  # fmt: skip
    folders_of: dict[str, set[str]] = defaultdict(set)
    for file in files:
        folders_of[re.sub(r"\d+", "", file.name)].add(str(file.parent))
    num_folders = len({str(file.parent) for file in files})
    is_job = all(len(folders) == num_folders for folders in folders_of.values())
    return files if is_job else []


def _sort_by_format(files: Iterable[Path], found: TraceFiles, *, required: bool) -> None:
    for file in files:
        kind = sniff(file)
        if kind is not None:
            lists = {"pytorch": found.hosts}
            others = found.devices if kind.is_device_trace else found.others
            lists.get(kind.name, others).append(file)
        elif required:
            read(file)  # raises the error that says what is wrong
        elif not file.name.endswith(_TEXT):
            found.ignored.append(file)


def _no_traces(paths: Sequence[Path], wanted: str) -> InputError:
    below = sorted({p.name for path in paths if path.is_dir() for p in path.iterdir()
                    if p.is_dir() and not p.name.startswith(".")})  # fmt: skip
    more = f" and {len(below) - _TOLD} more" if len(below) > _TOLD else ""
    hint = f"; its subfolders are {', '.join(below[:_TOLD])}{more}" if below else ""
    having = (p for path in paths if path.is_dir() for p in sorted(path.iterdir())
              if p.is_dir() and not p.name.startswith(".") and _files_inside(p))  # fmt: skip
    such = next((f", such as {one}" for one in having), "")
    return InputError(
        ", ".join(map(str, paths)),
        f"contains no trace that Nadi reads{hint}",
        f"pass a folder with {wanted}{such}",
    )


def _no_device(paths: Sequence[Path | str], found: TraceFiles) -> PairError:
    where = ", ".join(map(str, paths))
    if not found.hosts:
        return PairError(
            where,
            "found no host and no device trace of PyTorch, only linked or generated traces",
            "pass the recording they were made from; nadi simulate, info and convert take them, "
            "and simulate tries changes and writes reports",
        )
    return PairError(
        _list(found.hosts),
        "host traces without a device trace have no timestamps",
        "add the Kineto trace of the same run (torch.profiler's export_chrome_trace)",
    )


@dataclass(frozen=True)
class TraceIdentity:
    """What identifies a trace: path, process id, rank, world size; -1 if the file does not say."""

    path: str
    process: int
    rank: int
    world_size: int = -1


def recording_of(trace: Trace) -> TraceIdentity:
    """Return path, process id, rank and world size of a trace."""
    path = trace.provenance.sources[0].path
    return TraceIdentity(path, trace.process, trace.rank, trace.world_size)


def peek(path: Path) -> TraceIdentity:
    """Find process id and rank at the beginning of a file, else by reading all of it.

    - Raises InputError if it cannot be read.
    """
    return head_of(path) or recording_of(read(path))


def head_of(path: Path) -> TraceIdentity | None:
    """Find process id and rank at the beginning of a file; None if they do not stand there.

    - Raises InputError if it cannot be read.
    """
    head = read_head(path)
    if (host := _HOST_PROCESS.match(head)) is not None:
        return TraceIdentity(str(path), int(host[1]), -1)
    rank, operator = _DEVICE_RANK.search(head), _FIRST_OPERATOR.search(head)
    if rank is not None and operator is not None:
        return TraceIdentity(str(path), int(operator[1]), int(rank[1]), _world_size(head))
    return None


def glance(path: Path) -> TraceIdentity:
    """Return rank and world size of a device trace as they stand at its beginning; else -1.

    - Raises InputError if it cannot be read.
    """
    head = read_head(path)
    rank = _DEVICE_RANK.search(head)
    return TraceIdentity(str(path), -1, -1 if rank is None else int(rank[1]), _world_size(head))


def _world_size(head: bytes) -> int:
    found = _WORLD_SIZE.search(head)
    return -1 if found is None else int(found[1])


def pair_recordings(
    hosts: Sequence[TraceIdentity], devices: Sequence[TraceIdentity], *, force: bool = False
) -> list[tuple[int, int, int]]:
    """Pair the host and the device traces of a job.

    A single host and a single device trace are a pair, unless their process ids and the numbers in
    their names both differ, as of ``host_0`` and ``device_1``. Several traces are paired by a
    process id that only the pair has. Otherwise, if the process ids do not contradict it, they are
    paired by the last number in the file names, by a number that equals the rank of the device
    trace, or by a folder of their own. The rank is the one that the device trace states, else the
    number in its file name; for a single trace, else 0. Without any host trace, each device trace
    is one rank.

    - ``force``: Whether to pair a single host and a single device trace in any case.
    - Returns list of (host, device, rank): In order of rank; positions in the two lists, -1 for a
      missing host trace.
    - Raises PairError if a trace has no partner, two traces have the same rank, or they state
      different world sizes.
    """
    devices = with_ranks(devices)
    _refuse_same_rank(devices)
    refuse_other_sizes((one.path, one.rank, one.world_size) for one in devices)
    if not hosts:
        pairs = [(-1, device) for device in range(len(devices))]
    elif len(hosts) == len(devices) == 1:
        if not force:
            _refuse_other_rank(hosts[0], devices[0])
        pairs = [(0, 0)]
    else:
        pairs = _find_pairs(hosts, devices)
    return sorted(((host, device, devices[device].rank) for host, device in pairs),
                  key=lambda pair: pair[2])  # fmt: skip


def _refuse_other_rank(host: TraceIdentity, device: TraceIdentity) -> None:
    """Raise PairError if both the process ids and the numbers in the names differ.

    The number of a host trace may also be the rank that the device trace states.
    """
    processes, number = (host.process, device.process), _number(host)
    if min(processes) < 0 or None in (number, _number(device)):
        return
    if processes[0] != processes[1] and number not in (_number(device), device.rank):
        raise PairError(
            f"{host.path} with {device.path}",
            f"the traces are of different ranks: process {processes[0]} and {processes[1]}",
            ["pass the host and the device trace of the same rank, or link anyway: ",
             Parameter("force", True)],
        )  # fmt: skip


def _find_pairs(
    hosts: Sequence[TraceIdentity], devices: Sequence[TraceIdentity]
) -> list[tuple[int, int]]:
    if (pairs := _pair_by(_process, hosts, devices, _process)) is not None:
        return pairs
    # in containers every rank may have the same process id; names must not contradict ids
    common = {_process(one) for one in hosts} & {_process(one) for one in devices}
    for host_key, device_key in _NAME_KEYS:
        pairs = _pair_by(host_key, hosts, devices, device_key)
        if pairs is not None and (
            not common - {None}
            or all(_may_be_of_one_process(hosts[h], devices[d]) for h, d in pairs)
        ):
            return pairs
    raise PairError(
        "",
        f"{len(hosts)} host and {len(devices)} device traces do not pair up: "
        + _without_partner(hosts, devices),
        "pass one host and one device trace per rank",
    )


def with_ranks(devices: Sequence[TraceIdentity]) -> list[TraceIdentity]:
    """Assign each device trace a rank: the stated one, else by its name or folder.

    Several traces may get the same rank.
    """
    # files of one name are told apart by the numbers of their folders
    number_of = {parent: _last_number(parent.name) for parent in map(_parent, devices)}
    names = {Path(one.path).name for one in devices}
    by_folder = len(names) < len(devices) and len({*number_of.values(), None}) == len(number_of) + 1
    parallel = [_PARALLEL.search(Path(one.path).name) for one in devices]
    width = 1 + max((int(found[1]) for found in parallel if found), default=0)
    ranked = []
    for one, found in zip(devices, parallel, strict=True):
        rank = one.rank
        if rank < 0 and found:  # of SGLang, whose ranks count within a stage first
            rank = int(found[1]) + width * int(found[2] or 0)
        elif rank < 0:
            number = number_of[_parent(one)] if by_folder else _number(one)
            rank = 0 if number is None or len(devices) == 1 else number
        ranked.append(replace(one, rank=rank))
    return ranked


def _refuse_same_rank(ranked: Sequence[TraceIdentity]) -> None:
    """Raise PairError if two traces have the same rank."""
    by_rank: dict[int, list[TraceIdentity]] = defaultdict(list)
    for one in ranked:
        by_rank[one.rank].append(one)
    for rank, same in sorted(by_rank.items()):
        if len(same) > 1:
            folders = dict.fromkeys(_parent(one).name for one in same)
            apart = len(folders) == len(same)
            raise PairError(
                _list(one.path for one in same),
                f"{len(same)} device traces have rank {rank}"
                + (f", each in a folder of its own: {', '.join(folders)}" if apart else ""),
                "pass the folder or the files of one run; nadi diff compares two"
                if apart
                else "pass one device trace per rank; the name of a file that states no rank has "
                "to: rank0.json, rank1.json, ...",
            )


def _pair_by(
    host_key: _Key,
    hosts: Sequence[TraceIdentity],
    devices: Sequence[TraceIdentity],
    device_key: _Key,
) -> list[tuple[int, int]] | None:
    """Pair the traces that have the same key, if each key occurs once on either side."""
    by_key = {host_key(one): number for number, one in enumerate(hosts)}
    keys = [device_key(one) for one in devices]
    if (
        None in by_key
        or len(by_key) != len(hosts)
        or len(set(keys)) != len(keys)
        or set(keys) != set(by_key)
    ):
        return None
    return [(by_key[key], number) for number, key in enumerate(keys)]


def _without_partner(hosts: Sequence[TraceIdentity], devices: Sequence[TraceIdentity]) -> str:
    """Describe the traces without a partner, and those with the same process id."""
    reasons = []
    for kind, recordings, others in (("host", hosts, devices), ("device", devices, hosts)):
        processes = {_process(one) for one in others}
        alone = [one.path for one in recordings if _process(one) not in processes]
        if alone:
            partner = "device" if kind == "host" else "host"
            reasons.append(f"{_list(alone)}: a {kind} trace without its {partner} trace")
        seen: dict[int | None, list[str]] = defaultdict(list)
        for one in recordings:
            seen[_process(one)].append(one.path)
        reasons += [
            f"{_list(same)}: {kind} traces with the same process id, and names that do not "
            "distinguish them"
            for same in seen.values()
            if len(same) > 1
        ]
    return ", and ".join(reasons)


def _may_be_of_one_process(host: TraceIdentity, device: TraceIdentity) -> bool:
    return None in (_process(host), _process(device)) or _process(host) == _process(device)


def _process(one: TraceIdentity) -> int | None:
    return one.process if one.process >= 0 else None


def _last_number(name: str) -> int | None:
    numbers = re.findall(r"\d+", name)
    return int(numbers[-1]) if numbers and len(numbers[-1]) <= _MAX_DIGITS else None


def _numbers(one: TraceIdentity) -> list[int | None]:
    numbers = re.findall(r"\d+", Path(one.path).name)
    return [int(number) if len(number) <= _MAX_DIGITS else None for number in numbers] or [None]


def _number(one: TraceIdentity) -> int | None:
    """Return the number in a trace's file name that may be its rank.

    It is the one after ``rank``, or the last that does not follow ``step``, such as 3 in
    ``host_3.json.gz``.
    """
    name = Path(one.path).name
    if (stated := RANK_IN_NAME.search(name)) is not None:
        return int(stated[1])
    return _last_number(_STEP_IN_NAME.sub("", name))


def _first_number(one: TraceIdentity) -> int | None:
    return _numbers(one)[0]


def _rank(one: TraceIdentity) -> int | None:
    return one.rank


def _parent(one: TraceIdentity) -> Path:
    return Path(one.path).parent


def _folder(one: TraceIdentity) -> str:
    return str(Path(one.path).parent)


# what the names of a host and a device file may have in common, the likeliest first: the same
# last number; a number that is the rank; a folder for each rank
_NAME_KEYS: tuple[tuple[_Key, _Key], ...] = (
    (_number, _number),
    (_number, _rank),
    (_first_number, _rank),
    (_folder, _folder),
)


def _list(paths: Iterable[Path | str]) -> str:
    names = list(dict.fromkeys(str(path) for path in paths))
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
