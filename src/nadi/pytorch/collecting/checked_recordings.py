"""What a folder of recordings lacks: files, ranks, steps, and what analyses need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from nadi.analyses.analyses import analyze_all
from nadi.errors import InputError
from nadi.files.trace_files import read
from nadi.recordings.discover import (
    TraceFiles,
    list_files,
    pair_recordings,
    recording_of,
    with_ranks,
)
from nadi.recordings.job_of_files import one_per_rank
from nadi.recordings.step_marks import num_marked_steps
from nadi.results.text import rank_ranges
from nadi.trace.schema import DEVICE_WORK
from nadi.trace.trace import Trace
from nadi.units import format_count, format_counted

_OPTIONS = {"profile_memory": "--memory", "with_stack": "--stacks", "record_shapes": "--shapes"}
_TOLD = 4


class NotRecorded(NamedTuple):
    """What analyses need and no rank has."""

    what: str  # it, and how to record it
    option: str  # the option of ``nadi record`` that does; empty if none does
    analyses: tuple[str, ...]  # which need it


class CheckedRecordings(NamedTuple):
    """What a folder of recordings has and lacks.

    Attributes
    ----------
    ranks
        Those that have a device trace.
    world_size
        How many ranks the traces say that the job has; at least those that there are.
    num_hosts
        How many host traces there are.
    num_steps
        Steps that the profiler marked, of the rank with the fewest.
    missing
        What keeps a part of the job from being analysed, a sentence each.
    not_recorded
        What some analyses need.
    """

    ranks: tuple[int, ...]
    world_size: int
    num_hosts: int
    num_steps: int
    missing: tuple[str, ...]
    not_recorded: tuple[NotRecorded, ...]


def check_recordings(
    *paths: Path | str, progress: Callable[[str], None] = lambda _: None
) -> CheckedRecordings:
    """Read recordings, and say what is missing.

    Parameters
    ----------
    paths
        Folders or files, as of :func:`nadi.run`.
    progress
        Called with a line of text before each longer stage.

    Raises
    ------
    InputError
        If there is no trace at all.
    """
    files = list_files(paths)
    missing = [f"{path.name} is no trace that Nadi reads" for path in files.ignored]
    hosts, bad_hosts = _read(files.hosts, progress)
    devices, bad_devices = _read(files.devices, progress)
    missing += bad_hosts + bad_devices
    devices, _ = one_per_rank(devices)
    ranks = sorted({one.rank for one in with_ranks([recording_of(one) for one in devices])})
    sizes = [trace.world_size for trace in (*hosts, *devices)]
    world = max([len(ranks), *(rank + 1 for rank in ranks), *sizes])
    steps = [num_marked_steps(trace) for trace in devices]
    if not (bad_hosts or bad_devices):
        missing += _of_pairs(hosts, devices)
    missing += _of_ranks(ranks, world, steps, devices)
    is_whole = bool(devices) and not (bad_hosts or bad_devices)
    lacked = _not_recorded(paths, files, progress) if is_whole else ()
    return CheckedRecordings(
        tuple(ranks), world, len(hosts), min(steps, default=0), tuple(missing), lacked
    )


def _read(
    files: Sequence[Path], progress: Callable[[str], None]
) -> tuple[list[Trace], list[str]]:  # fmt: skip
    """Return traces, and what is wrong with others."""
    traces, wrong = [], []
    for file in files:
        progress(f"reading {file.name}")
        try:
            traces.append(read(file))
        except InputError as error:
            wrong.append(str(error))
    return traces, wrong


def _of_pairs(hosts: Sequence[Trace], devices: Sequence[Trace]) -> list[str]:
    if not devices:
        return ["device traces: host traces alone have no times; record with torch.profiler too"]
    if not hosts:
        what = "without them nothing has operands, and dependencies are inferred"
        return [f"host traces: {what}; record with ExecutionTraceObserver, as nadi record does"]
    try:
        pair_recordings(*([recording_of(one) for one in side] for side in (hosts, devices)))
    except InputError as error:
        return [str(error)]
    return []


def _of_ranks(
    ranks: Sequence[int], world: int, steps: Sequence[int], devices: Sequence[Trace]
) -> list[str]:
    """Say which ranks are absent, or have less than others."""
    found = []
    absent = sorted(set(range(world)) - set(ranks))
    if absent and ranks:
        more = f" and {len(absent) - _TOLD} more" if len(absent) > _TOLD else ""
        told = ", ".join(map(str, absent[:_TOLD]))
        s = "s" if len(absent) > 1 else ""
        found.append(f"rank{s} {told}{more} of {world}: no device trace")
    if len(set(steps)) > 1:
        found.append(f"ranks have {min(steps)} to {max(steps)} marked steps: record the same ones")
    works = [bool(trace.category_mask(*DEVICE_WORK).any()) for trace in devices]
    if any(works) and not all(works):
        found.append(f"device work: {works.count(False)} of {len(works)} ranks have none")
    return found


def _not_recorded(
    paths: Sequence[Path | str], files: TraceFiles, progress: Callable[[str], None]
) -> tuple[NotRecorded, ...]:
    """Run all analyses, and return what those lack that cannot be made, each once."""
    try:
        found = analyze_all(*paths, progress=progress)
    except InputError:  # ranks that do not belong together, which was said already
        return ()
    places = [str(one) for one in (*files.devices, *files.hosts, ", ".join(map(str, paths)))]
    lacked: dict[str, list[str]] = {}
    for name, told in found.items():
        if isinstance(told, str):
            for place in places:
                told = told.removeprefix(f"{place}: ")
            lacked.setdefault(told, []).append(name)
    return tuple(
        NotRecorded(
            what, next((_OPTIONS[key] for key in _OPTIONS if key in what), ""), tuple(names)
        )
        for what, names in lacked.items()
    )


def recording_lines(found: CheckedRecordings, folder: str) -> Iterator[str]:
    """Say what there is, what is missing, and what some analyses would need."""
    there = "no rank"
    if found.ranks:
        ranks = f"rank{'s' if len(found.ranks) != 1 else ''} {rank_ranges(found.ranks)}"
        there = f"{ranks} of {format_count(found.world_size)}"
    marked = format_counted(found.num_steps, "marked step") if found.num_steps else "no marked step"
    yield f"{folder}: {there}, {format_counted(found.num_hosts, 'host trace')}, {marked}"
    for text in found.missing:
        yield f"missing: {text}"
    for one in found.not_recorded:
        option = f" (nadi record {one.option})" if one.option else ""
        yield f"for {', '.join(one.analyses)}: {one.what}{option}"
    if not found.missing:
        yield "nothing is missing for nadi run"
