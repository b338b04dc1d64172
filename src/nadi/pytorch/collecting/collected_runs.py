"""Run a program under a recorder, and say what it left and what it lacks: ``nadi record``."""

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from nadi.analyses.analyses import analyze_all
from nadi.errors import InputError, Parameter, UsageError
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
from nadi.trace.trace import StepLengths, Trace
from nadi.units import format_count, format_counted

_HOOK = Path(__file__).parent / "hook"
_NAMES = {
    "profiler": "profiler.step() of the program",
    "optimizer": "steps of its first optimizer",
    "rare_optimizer": "steps of the optimizer that steps once in several steps of the first",
    "backward": "calls of backward",
    "no_grad": "outermost blocks of no_grad or inference_mode that call a module",
    "forward": "outermost calls of modules",
}
_INTERRUPTED = 128  # and the number of the signal: the exit code as a shell gives it


@dataclass(frozen=True)
class CollectOptions:
    """What is recorded.

    Attributes
    ----------
    steps, warmup
        Number of steps to record, and of steps before them, at least 2: at the end of the first
        step a program shows what its steps are, and during the last the profiler starts.
    stacks, memory, shapes
        As of :func:`nadi.record`.
    sync
        Whether synchronization events of the device are recorded, where PyTorch has them.
    locks
        Whether waits for ``threading.Lock`` are recorded.
    """

    steps: int = 3
    warmup: int = 2
    stacks: bool = False
    memory: bool = False
    shapes: bool = False
    sync: bool = True
    locks: bool = False


@dataclass(frozen=True)
class Collected:
    """What a recorded program left.

    Attributes
    ----------
    folder
        Where the files are; :func:`nadi.run` takes it.
    exit_code
        That of the program.
    files
        Names of the files, a host and a device trace per rank.
    ranks
        Those that were recorded.
    world_size
        How many ranks the program said it has.
    steps_by
        What marked the end of a step, in words; empty if nothing was recorded.
    num_steps
        How many steps were recorded, of the rank with the fewest.
    overhead
        By how much longer the steps took that times are of than steps without a recorder, as a
        share: of the medians of each process, mean over ranks; None if there were no others.
    missing
        What is missing, in words.
    """

    folder: Path
    exit_code: int
    files: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    world_size: int = 1
    steps_by: str = ""
    num_steps: int = 0
    overhead: float | None = None
    missing: tuple[str, ...] = field(default=())


def collect(
    command: Sequence[str],
    folder: Path | str,
    options: CollectOptions | None = None,
    *,
    overwrite: bool = False,
) -> Collected:
    """Run a program and record a few steps of each of its Python processes that train or infer.

    The program is not changed: a module that Python imports first (``sitecustomize``) watches
    torch. Steps end at ``profiler.step()`` of the program, else when an optimizer has stepped that
    steps once in several steps of the first, else when the first has stepped, else after each
    backward call, else at the end of an outermost block of ``no_grad`` or ``inference_mode`` that
    calls a module, else after a call of a module that no module makes.

    Parameters
    ----------
    command
        The program and its arguments; a ``.py`` file runs in this Python.
    folder
        Where the files go; it is made if it does not exist.
    overwrite
        Whether files of an earlier recording are replaced.

    Raises
    ------
    UsageError
        If there is no command, it cannot be started, a number is too small, or the folder has
        recordings.
    InputError
        If the folder cannot be written to.
    """
    asked = _checked(options or CollectOptions(), command)
    target = Path(folder)
    earlier = _earlier(target, overwrite=overwrite)
    work = _made(target)
    try:
        code = _run(list(command), (target, work), asked, earlier)
        return _collected(target, work, code)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _checked(options: CollectOptions, command: Sequence[str]) -> CollectOptions:
    for name, value, least in (("steps", options.steps, 1), ("warmup", options.warmup, 2)):
        if value < least:
            raise UsageError(Parameter(name, value), "is too small", f"give {least} or more")
    if not command:
        raise UsageError("", "there is no program to run", "give the program and its arguments")
    return options


def _earlier(folder: Path, *, overwrite: bool) -> list[Path]:
    """Return the files of an earlier recording, which are to be replaced."""
    earlier = [*folder.glob("host_rank*.json"), *folder.glob("device_rank*.json.gz")]
    if earlier and not overwrite:
        what = f"has a recording ({earlier[0].name})"
        remedy: Any = ["choose another folder, or pass ", Parameter("overwrite", True)]
        raise UsageError(str(folder), what, remedy)
    return earlier


def _made(folder: Path) -> Path:
    """Make the folder, and one in it for what is not whole yet."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=".nadi-collect-", dir=folder)).resolve()
    except OSError as error:
        remedy = "choose a folder in which files can be made"
        raise InputError(str(folder), error.strerror or str(error), remedy) from None


def _run(
    command: list[str], folders: tuple[Path, Path], options: CollectOptions, earlier: list[Path]
) -> int:
    """Run the program with the hook on its path; Ctrl-C is the program's.

    Files of an earlier recording are removed when the program has started, long before it has
    recorded anything: of a program that does not start they stay.
    """
    folder, work = folders
    if command[0].endswith(".py"):
        command = [sys.executable, *command]
    paths = [str(_HOOK), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    asked = {**vars(options), "output": str(folder.resolve()), "work": str(work)}
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(paths), "NADI_COLLECT": json.dumps(asked),
    }  # fmt: skip
    before = signal.getsignal(signal.SIGINT)
    try:
        with subprocess.Popen(command, env=environment) as process:  # noqa: S603
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            for file in earlier:
                file.unlink(missing_ok=True)
            code = process.wait()
    except OSError as error:
        remedy = "check the name of the program"
        raise UsageError(command[0], error.strerror or str(error), remedy) from None
    finally:
        signal.signal(signal.SIGINT, before)
    return code if code >= 0 else _INTERRUPTED - code


def _collected(folder: Path, work: Path, code: int) -> Collected:
    """Put together what the processes left."""
    states = [json.loads(file.read_text()) for file in sorted(work.glob("*.json"))]
    done = sorted((one for one in states if one["files"]), key=lambda one: int(one["rank"]))
    unwritten = [one["unwritten"] for one in states if "unwritten" in one]
    if not done and not code and (unwritten or not states):
        _refuse_full(folder, work, unwritten)
    missing = _missing(states, done)
    if not done:
        return Collected(folder, code, missing=missing)
    lengths = [msgspec.convert(one["lengths"], StepLengths) for one in done]
    costs = [one.cost for one in lengths if one.cost is not None]
    return Collected(
        folder, code,
        files=tuple(name for one in done for name in one["files"]),
        ranks=tuple(one["rank"] for one in done),
        world_size=max(one["world_size"] for one in done),
        steps_by=_NAMES[done[0]["source"]],
        num_steps=min(len(one.timed_ns) for one in lengths),
        overhead=statistics.mean(costs) if costs else None,
        missing=missing,
    )  # fmt: skip


def _refuse_full(folder: Path, work: Path, told: list[str]) -> None:
    """Raise InputError if processes could not write, or had no room to say so."""
    try:
        (work / "room").write_bytes(bytes(1 << 16))
    except OSError as error:
        told = [*told, error.strerror or str(error)]
    if told:
        raise InputError(str(folder), f"cannot be written: {told[0]}", "choose another path")


def _missing(states: list[dict[str, Any]], done: list[dict[str, Any]]) -> tuple[str, ...]:
    """Say what is missing, and why."""
    if not states:
        what = "no Python process of the program imported torch and ended by itself"
        return (f"{what} (python -I and -E ignore what nadi record sets)",)
    found = []
    if done:
        ranks = {one["rank"] for one in done}
        absent = sorted(set(range(max(one["world_size"] for one in done))) - ranks)
        if absent:
            found.append(f"ranks {', '.join(map(str, absent))}: not recorded on this machine")
        steps = {len(one["lengths"]["timed_ns"]) for one in done}
        if len(steps) > 1:
            found.append(f"ranks have {min(steps)} to {max(steps)} steps: the program ended early")
        bare = [str(one["rank"]) for one in done if not one["lengths"]["observed_ns"]]
        if bare:
            found.append(
                f"host traces of ranks {', '.join(bare)} (shapes, tensors, process groups): the "
                "program ended before a step ran with the execution trace observer"
            )
    found += [f"process {one['process']}: {one['why']}" for one in states if one["why"]]
    if not done and not found:
        most = max(states, key=lambda one: int(one["count"]))
        found.append(
            f"steps: {most['count']} were seen ({_NAMES[most['source']]}), too few to record; use "
            "nadi.record in the program, or fewer steps of warm-up"
            if most["source"]
            else "steps: none was found: no optimizer stepped, no gradient was computed, and no "
            "module was called again and again; mark steps by nadi.record in the program"
        )
    return tuple(found)


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
