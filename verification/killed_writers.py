"""Writing commands that are killed, interrupted, or meet a full disk: whole or nothing.

Each command is stopped at random moments by SIGKILL, by SIGINT, and by a limit of the size of
files, which ends a write as a full disk does. What it leaves must be whole, or nothing: no file of
its name, or a folder that is refused. ``tests/hardening`` stops them at each of some writes.
``python verification/killed_writers.py [MOMENTS] [SEED] [NAMES]``; by default each command is
stopped once, in one of the three ways in turn. NAMES, with commas between them, are some of what
``tests/hardening/writers.py`` lists.
"""

from __future__ import annotations

import io
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import redirect_stdout, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from nadi.kernels.kernel_cache import cache_folder
from tests.conftest import DEMO
from tests.fuzz.foreign import CALLS
from tests.hardening.writers import (
    BY_OTHERS,
    NOTHING,
    WHOLE,
    WRITERS,
    left,
    prepare,
    sizes_of,
    words_of,
)
from tests.replay.foreign_traces import write_calls

# a search goes on with the parts that are there
_LINES = {name: line for name, line in (WRITERS | BY_OTHERS).items() if name != "search"}
_WITH_TORCH = ("--fake", "record", "rerun")
_BEGUN = b"begun"
_RUN = f"import os; from nadi.cli import run; os.write(2, {_BEGUN}); run()"
_PATIENCE = 60  # seconds beside those that the command itself takes
_WAYS = ("killed", "interrupted", "full")
_CODES = (0, 2, 130, -signal.SIGKILL)


class _Command(NamedTuple):
    name: str
    words: list[str]
    line: str
    given: Path
    seconds: float  # that it takes


def _start(words: list[str], limit: int | None = None) -> subprocess.Popen[bytes]:
    def bounded() -> None:
        if limit is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails, as on a full disk
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.Popen(
        [sys.executable, "-c", _RUN, *words], stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, preexec_fn=bounded,
    )  # fmt: skip


def _whole_run(words: list[str]) -> float:
    """Run a command to its end; gives how many seconds it takes at the load of now."""
    begin = time.monotonic()
    process = _start(words)
    _, said = process.communicate()
    assert process.returncode == 0, said
    return time.monotonic() - begin


def _kept_kernels() -> int:
    """Count the kernels that commands so far have compiled and kept."""
    folder = cache_folder()
    return 0 if folder is None else sum(1 for _ in folder.glob("*/*.kernel"))


def _said(process: subprocess.Popen[bytes], one: _Command) -> bytes | None:
    """Wait until a stopped command ends, and give what it said of errors; None if it hangs.

    A machine may have become busy since the whole run was timed, which says nothing of the command.
    So one that takes long is given three times what a whole run takes now.
    """
    with suppress(subprocess.TimeoutExpired):
        return process.communicate(timeout=_PATIENCE + 10 * one.seconds)[1]
    with suppress(subprocess.TimeoutExpired), tempfile.TemporaryDirectory() as folder:
        now = _whole_run(words_of(one.line, Path(folder) / one.name, one.given, str(DEMO)))
        return process.communicate(timeout=_PATIENCE + 3 * now)[1]
    process.kill()
    process.communicate()
    return None


def _stop(one: _Command, how: str, chance: random.Random) -> str:
    """Run a command until it is stopped; gives what is wrong with how it ended."""
    size = int(10 ** chance.uniform(2, 6)) if how == "full" else None
    process = _start(one.words, size)
    try:
        if how != "full":
            process.wait(one.seconds * chance.random())
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL if how == "killed" else signal.SIGINT)
    said = _said(process, one)
    code = process.returncode
    if said is None:
        return f"{one.name} {how}: does not end"
    # Python itself writes a traceback where it is interrupted before it has read Nadi's first line,
    # and where a process that starts as a worker loses the one that was killed.
    early = how == "interrupted" and not said.startswith(_BEGUN)
    if not early and (code not in _CODES or (b"Traceback" in said and code != -signal.SIGKILL)):
        return f"{one.name} {how}: exit code {code}, {said[-300:]!r}"
    return ""


def _main(moments: int, seed: int, names: list[str]) -> int:
    chance, faults, states = random.Random(seed), [], Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "given"
        given.mkdir()
        with redirect_stdout(io.StringIO()):
            prepare(given)
        write_calls(given / "replayable", CALLS)
        for first, (name, line) in enumerate(_LINES.items()):
            if name not in names:
                continue
            place = Path(folder) / "to" / name
            words = words_of(line, place, given, str(DEMO))
            if not {*_WITH_TORCH}.isdisjoint(words) and find_spec("torch") is None:
                print(f"{name:<16} skipped: torch is missing")
                continue
            place.parent.mkdir()
            kernels = _kept_kernels()
            seconds = _whole_run(words)
            if _kept_kernels() != kernels:  # it compiled some, and its time says little of the next
                shutil.rmtree(place.parent)
                place.parent.mkdir()
                seconds = _whole_run(words)
            command = _Command(name, words, line, given, seconds)
            whole = sizes_of(place)
            found = Counter[str]()
            wrong = len(faults)
            for number in range(moments):
                shutil.rmtree(place.parent)
                place.parent.mkdir()
                how = _WAYS[(first + number) % len(_WAYS)]
                fault = _stop(command, how, chance)
                state = left(place, whole)
                found[state if state in (NOTHING, WHOLE) else "other"] += 1
                if fault or state not in (NOTHING, WHOLE):
                    faults.append(fault or f"{name} {how}: {state}")
            shutil.rmtree(place.parent)
            states += found
            print(f"{name:<16} {moments} moments of {command.seconds:.1f} s: {dict(found)}")
            print(*faults[wrong:], sep="\n", end="\n" * (len(faults) > wrong), flush=True)
    print(
        f"{states.total()} stopped writers: {dict(states)}, {len(faults)} neither whole nor nothing"
    )
    print(f"{states.total() - len(faults)} of {states.total()} exact")
    return 1 if faults else 0


if __name__ == "__main__":
    moments = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    names = sys.argv[3].split(",") if len(sys.argv) > 3 else [*_LINES]
    raise SystemExit(_main(moments, int(sys.argv[2]) if len(sys.argv) > 2 else 1, names))
