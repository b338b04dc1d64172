"""Run a program under a recorder, and say what it left: ``nadi record``."""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nadi.errors import InputError, Parameter, UsageError

_HOOK = Path(__file__).parent / "hook"
_NAMES = {
    "profiler": "profiler.step() of the program",
    "optimizer": "steps of its first optimizer",
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
    torch. Steps end at ``profiler.step()`` of the program, else when its first optimizer has
    stepped, else after each backward call, else at the end of an outermost block of ``no_grad`` or
    ``inference_mode`` that calls a module, else after a call of a module that no module makes.

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
    costs = [
        statistics.median(one["timed_ns"]) / statistics.median(one["unrecorded_ns"]) - 1
        for one in done
        if one["unrecorded_ns"]
    ]
    return Collected(
        folder, code,
        files=tuple(name for one in done for name in one["files"]),
        ranks=tuple(one["rank"] for one in done),
        world_size=max(one["world_size"] for one in done),
        steps_by=_NAMES[done[0]["source"]],
        num_steps=min(len(one["timed_ns"]) for one in done),
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
        steps = {len(one["timed_ns"]) for one in done}
        if len(steps) > 1:
            found.append(f"ranks have {min(steps)} to {max(steps)} steps: the program ended early")
        bare = [str(one["rank"]) for one in done if not one["observed_ns"]]
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
