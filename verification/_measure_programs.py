"""Measure what true changes of the programs do to their step, and record the programs.

Usage: python verification/_measure_programs.py measure|record PYTHON [NAME...]
       python verification/_measure_programs.py pack

PYTHON runs the programs of ``verification/programs``: one with torch, and for ``record`` with nadi.
``measure`` starts a program and each of its changed variants together, and lets them run in turns,
one second each, the others stopped. It appends the ratio of the medians of the steps' times (after
/ before) to ``truth.json``: of CPU time, or, if there are several ranks or ``truth.json``
says that the program waits, of wall time. ``record`` writes ``NAME/rec/torch_VERSION`` by ``nadi
collect``, and ``pack`` puts all of these into ``recordings.tar.xz``.
Measure and record on an idle machine.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path
from statistics import median

FOLDER = Path(__file__).with_name("programs")
TURNS = 5
SECONDS = 1.0
RECORDED = 6  # steps, unless truth.json says how many


class Variant:
    """Running processes of a program, and the steps that its first rank has printed."""

    def __init__(self, python: str, program: Path, ranks: int, change: str) -> None:
        self.steps: list[tuple[float, float]] = []
        self.processes = []
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = str(free.getsockname()[1])
        for rank in range(ranks):
            where = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_PORT": port}
            environment = os.environ | {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "localhost"}
            command = [python, program, *change.split(), "--steps", "100000"]
            self.processes.append(
                subprocess.Popen(
                    command, env=environment | (where if ranks > 1 else {}),
                    stdout=subprocess.DEVNULL if rank else subprocess.PIPE,
                    stderr=subprocess.DEVNULL, start_new_session=True, text=True,
                )
            )  # fmt: skip
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.processes[0].stdout or []:
            if line.startswith("STEP "):
                _, wall, cpu = line.split()
                self.steps.append((float(wall), float(cpu)))

    def signal(self, which: int) -> None:
        """Send a signal to all processes, workers of loaders included."""
        for process in self.processes:
            os.killpg(process.pid, which)

    def turn(self) -> list[tuple[float, float]]:
        """Run for a while; gives the steps that lie in it wholly."""
        self.signal(signal.SIGCONT)
        time.sleep(SECONDS / 10)  # what was printed before the stop has been read, and the first
        before = len(self.steps) + 1
        time.sleep(SECONDS)
        found = self.steps[before:]
        self.signal(signal.SIGSTOP)
        return found


def measured(python: str, program: Path, ranks: int, changes: list[str]) -> list[list]:
    """Run a program and its variants in turns; gives the steps of each."""
    variants = [Variant(python, program, ranks, change) for change in ["", *changes]]
    try:
        while any(len(one.steps) < 5 for one in variants):
            if any(one.processes[0].poll() is not None for one in variants):
                sys.exit(f"{program.name}: a process ended; run it alone to see why")
            time.sleep(0.1)
        for one in variants:
            one.signal(signal.SIGSTOP)
        steps: list[list] = [[] for _ in variants]
        for _ in range(TURNS):
            for one, found in zip(variants, steps, strict=True):
                found += one.turn()
    finally:
        for one in variants:
            one.signal(signal.SIGKILL)
    return steps


def measure(python: str, folder: Path) -> None:
    """Append one measurement to the truth of a program."""
    truth = json.loads((folder / "truth.json").read_text())
    changes = [one["change"] for one in truth["changes"]]
    program = folder.parent / truth["program"]
    steps = measured(python, program, truth["ranks"], changes)
    wall, cpu = ([median(step[kind] for step in found) for found in steps] for kind in (0, 1))
    waits = truth["ranks"] > 1 or truth.get("waits", False)
    kind, times = ("ratio_wall", wall) if waits else ("ratio_cpu", cpu)
    for change, after in zip(truth["changes"], times[1:], strict=True):
        change.setdefault(kind, []).append(round(after / times[0], 4))
    truth.setdefault("step_ms", []).append(round(times[0], 2))
    truth["torch"] = [*truth.get("torch", []), version(python)]
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    print(folder.name, kind, [round(one, 2) for one in times], [len(found) for found in steps],
          f"wall {wall[0]:.1f} cpu {cpu[0]:.1f}", flush=True)  # fmt: skip


def version(python: str) -> str:
    """Ask which torch a Python has."""
    asked = [python, "-c", "import torch; print(torch.__version__.split('+')[0])"]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()


def record(python: str, folder: Path) -> None:
    """Record a program as the documentation of ``nadi record`` says."""
    truth = json.loads((folder / "truth.json").read_text())
    short = "_".join(version(python).split(".")[:2])
    target = folder / "rec" / f"torch_{short}"
    shutil.rmtree(target, ignore_errors=True)
    program = str(folder.parent / truth["program"])
    torchrun = [python, "-m", "torch.distributed.run", "--nproc-per-node", str(truth["ranks"])]
    launcher = torchrun if truth["ranks"] > 1 else [python]
    steps = str(truth.get("recorded_steps", RECORDED))
    done = subprocess.run(
        [python, "-m", "nadi", "record", "--steps", steps, "--warmup", "6", "-o", target, "--",
         *launcher, program, "--steps", "40"],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    said = [line for line in done.stderr.splitlines() if line.startswith("nadi record")]
    print(folder.name, *said, sep="\n  ", flush=True)
    size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
    print(f"  {size / 1e3:.0f} kB", flush=True)


def pack() -> None:
    """Pack the recordings of all programs; those of both versions of torch are much alike."""
    with (
        lzma.open(FOLDER / "recordings.tar.xz", "wb", preset=7) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for file in sorted(FOLDER.glob("*/rec/*/*")):
            raw = file.read_bytes()
            plain = gzip.decompress(raw) if file.suffix == ".gz" else raw
            name = file.relative_to(FOLDER).with_suffix("").with_suffix(".json")
            entry = tarfile.TarInfo(name.as_posix())
            entry.size = len(plain)
            archive.addfile(entry, io.BytesIO(plain))


def main() -> None:
    """Measure or record the programs that are named, or all."""
    if sys.argv[1:] == ["pack"]:
        pack()
        return
    what, python, *names = sys.argv[1:]
    folders = sorted(file.parent for file in FOLDER.glob("*/truth.json"))
    for folder in folders:
        if not names or folder.name in names:
            {"measure": measure, "record": record}[what](python, folder)


if __name__ == "__main__":
    main()
