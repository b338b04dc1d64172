"""First use and start of every command: ``python benchmarks/start.py [--cold] [--wheel FILE]``.

Without ``--cold`` it is ``nadi --help`` (under 0.15 s), and ``nadi run`` and ``nadi simulate`` of
a small pair (under 0.5 s), with kernels compiled and kept. With ``--cold`` each command runs with
an empty folder for compiled kernels, from this source and from a wheel that carries them. Both
are installed in environments of their own; a wheel is built if none is given (``make wheel``).

Wall time, and time of the processors, which others that use the machine change less.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from pathlib import Path
from typing import NamedTuple

from _measure import SHARED

ROOT = Path(__file__).resolve().parents[1]
DEMO = ROOT / "src" / "nadi" / "data" / "demo"
PAIR = SHARED / "traces" / "cpu_mlp"
GPU = SHARED / "traces" / "gpu_simple_add_pair"  # HTA's rules are for work on devices
COMMANDS = """
--help
demo
run {demo}
simulate {demo} --system=dgx-h100
critical-path {demo}
critical-path {gpu} --rules=hta --rank=0
what-if {demo}
what-if {demo} --reorder
info {demo}
info {demo} --check
link {demo} -o {made}/linked
simulate {made}/linked --system=dgx-h100
convert {made}/linked {made}/json --to=chakra-json
convert {demo} {made}/perfetto --to=perfetto
"""


class Spent(NamedTuple):
    """Seconds of one run."""

    wall: float
    cpu: float


def run_once(command: list[str], cache: Path) -> Spent:
    """Run a command with a folder for compiled kernels, and nothing else of this process."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    for name in ("NUMBA_CACHE_DIR", "PYTHONDONTWRITEBYTECODE"):
        environment.pop(name, None)
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Spent(wall, cpu)


def report(what: str, runs: list[Spent]) -> None:
    """Print least and median."""
    walls, cpus = [one.wall for one in runs], [one.cpu for one in runs]
    print(
        f"  {what:76} {min(walls):6.2f} {statistics.median(walls):6.2f} s,"
        f" processors {min(cpus):6.2f} {statistics.median(cpus):6.2f} s",
        flush=True,
    )


def report_warm(python: Path, runs: int) -> None:
    """Print how long commands take whose kernels are kept."""
    print(f"warm, {runs} runs: least and median")
    pair = str(PAIR if PAIR.is_dir() else DEMO)
    with tempfile.TemporaryDirectory() as cache:
        for arguments in (["--help"], ["run", pair], ["simulate", pair, "--system=dgx-h100"]):
            command = [str(python), "-m", "nadi", *arguments]
            run_once(command, Path(cache))
            report(" ".join(arguments), [run_once(command, Path(cache)) for _ in range(runs)])


def report_cold(python: Path, what: str, runs: int) -> None:
    """Print how long every command takes when it is the first that is used."""
    print(f"first use, from {what}, {runs} runs: least and median")
    with tempfile.TemporaryDirectory() as made:
        for line in COMMANDS.strip().splitlines():
            if "{gpu}" in line and not GPU.is_dir():
                print(f"  {line}: not measured, {GPU} is not here")
                continue
            found = []
            for number in range(runs):
                words = line.format(demo=DEMO, gpu=GPU, made=f"{made}/{number}").split()
                with tempfile.TemporaryDirectory() as cache:
                    found.append(run_once([str(python), "-m", "nadi", *words], Path(cache)))
            report(line.format(demo="DEMO", gpu="GPU", made="MADE"), found)


def installed(what: Path, folder: Path) -> Path:
    """Install a wheel or a source in an environment of its own; gives its Python.

    What Nadi depends on is that of this environment.
    """
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    site = folder / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site)]
    subprocess.run([*pip, str(what)], check=True)
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    # Python keeps what it compiles of its sources when it first imports them
    subprocess.run([str(python), "-m", "compileall", "-q", str(site / "nadi")], check=True)
    return python


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--wheel", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    os.environ.pop("PYTHONPATH", None)  # what is measured is what is installed
    with tempfile.TemporaryDirectory() as folder:
        source = installed(ROOT, Path(folder) / "source")
        report_warm(source, max(given.runs, 5))
        if not given.cold:
            return
        report_cold(source, "source", given.runs)
        wheel = given.wheel
        if wheel is None:
            made = Path(folder) / "made"
            subprocess.run(
                [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation",
                 "--wheel-dir", str(made), str(ROOT)],
                env={**os.environ, "NADI_BUILD_KERNELS": "1"}, check=True,
            )  # fmt: skip
            (wheel,) = made.glob("*.whl")
        report_cold(installed(wheel, Path(folder) / "wheel"), "wheel", given.runs)


if __name__ == "__main__":
    main()
