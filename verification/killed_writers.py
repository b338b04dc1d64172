"""Writing commands that are killed, interrupted, or meet a full disk: whole or nothing.

Each command is stopped at random moments by SIGKILL, by SIGINT, and by a limit of the size of
files, which ends a write as a full disk does. What it leaves must be whole, or nothing: no file of
its name, or a folder that is refused. ``python verification/killed_writers.py [MOMENTS] [SEED]``.
"""

from __future__ import annotations

import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import nadi
from nadi.errors import NadiError
from nadi.formats.whole_folders import refuse_partial

_DEMO = Path(nadi.__file__).parent / "data" / "demo"
# what is written, and by which command
_COMMANDS = {
    "out.nadi": f"convert {_DEMO}/device_0.json.gz @",
    "out.json": f"convert {_DEMO}/device_1.json.gz @ --to kineto",
    "converted": f"convert {_DEMO} @ --to nadi",
    "linked": f"link {_DEMO} -o @",
    "part": f"extract {_DEMO} --step 1 -o @",
    "job": "generate llm --model gpt3-125m --tp 2 --dp 2 --seq 256 -o @",
    "folded.nadi": "generate llm --model gpt3-125m --tp 2 --dp 2 --seq 256 -o @",
    "simulated.nadi": f"simulate {_DEMO} --system dgx-h100 -o @",
    "model.nadi": f"learn {_DEMO} -o @",
    "hidden": f"obfuscate {_DEMO} --key #key -o @",
    "results": f"run {_DEMO} -o @",
    "page.html": f"report {_DEMO} -o @",
}
_NOTHING, _WHOLE = "nothing", "whole"
_BEGUN = b"begun"
_RUN = f"import os; from nadi.cli import run; os.write(2, {_BEGUN}); run()"
_CODES = (0, 2, 130, -signal.SIGKILL)


def _start(words: list[str], limit: int | None = None) -> subprocess.Popen[bytes]:
    def bounded() -> None:
        if limit is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails, as on a full disk
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.Popen(
        [sys.executable, "-c", _RUN, *words], stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, preexec_fn=bounded,
    )  # fmt: skip


def _state(place: Path, whole: dict[str, int]) -> str:
    """Say what a command left: nothing, all of it, or what else."""
    if not place.exists():
        return _NOTHING
    if place.is_file():
        return _WHOLE if place.stat().st_size > 0.5 * whole[""] else f"{place.name} is short"
    found = {path.name: path.stat().st_size for path in place.glob("[!.]*")}
    if not found:
        return _NOTHING
    if found.keys() == whole.keys():
        return _WHOLE
    try:
        refuse_partial(place)
    except NadiError:
        return _NOTHING  # which says what is missing
    return f"{len(found)} of {len(whole)} files"


def _stop(name: str, words: list[str], seconds: float, how: str, chance: random.Random) -> str:
    """Run a command until it is stopped; gives how it ended."""
    size = int(10 ** chance.uniform(2, 6)) if how == "full" else None
    process = _start(words, size)
    try:
        if how != "full":
            process.wait(seconds * chance.random())
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL if how == "killed" else signal.SIGINT)
    _, said = process.communicate(timeout=300)
    code = process.returncode
    # Python itself writes a traceback where it is interrupted before it has read Nadi's first line
    early = how == "interrupted" and not said.startswith(_BEGUN)
    if not early and (code not in _CODES or b"Traceback" in said):
        return f"{name} {how}: exit code {code}, {said[-300:]!r}"
    return ""


def _main(moments: int, seed: int) -> int:
    chance, faults, states = random.Random(seed), [], Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder) / "key"
        key.write_bytes(bytes(range(64)))
        for name, line in _COMMANDS.items():
            place = Path(folder) / name
            words = line.replace("#key", str(key)).replace("@", str(place)).split()
            begin = time.monotonic()
            process = _start(words)
            _, said = process.communicate()
            assert process.returncode == 0, said
            seconds = time.monotonic() - begin
            paths = list(place.glob("[!.]*")) if place.is_dir() else []
            whole = {path.name: 0 for path in paths} or {"": place.stat().st_size}
            for number in range(moments):
                shutil.rmtree(place, ignore_errors=True)
                place.unlink(missing_ok=True)
                how = ("killed", "interrupted", "full")[number % 3]
                fault = _stop(name, words, seconds, how, chance)
                state = _state(place, whole)
                states[state if state in (_NOTHING, _WHOLE) else "other"] += 1
                if fault or state not in (_NOTHING, _WHOLE):
                    faults.append(fault or f"{name} {how}: {state}")
            print(f"{name:<16} {moments} moments of {seconds:.1f} s", flush=True)
    print(
        f"{states.total()} stopped writers: {dict(states)}, {len(faults)} neither whole nor nothing"
    )
    for fault in faults:
        print(fault)
    print(f"{states.total() - len(faults)} of {states.total()} exact")
    return 1 if faults else 0


if __name__ == "__main__":
    moments = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    raise SystemExit(_main(moments, int(sys.argv[2]) if len(sys.argv) > 2 else 1))
