"""``nadi record``: with a small package that stands for torch, and with torch where it is."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nadi
from nadi.cli import main
from nadi.pytorch import Collected, CollectOptions, collect
from tests.collect.small_torch import write_small_torch

HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is absent: NOTHING WAS RECORDED")
STEP = "\nfor n in range(14):\n    autograd.backward()\n    o.step()\n"
START = (
    "import os, sys, torch\nfrom torch import autograd, profiler\n"
    "from torch.optim.optimizer import Optimizer\no = Optimizer()\n"
)


MODEL = (
    "class Model(torch.nn.Module):\n"
    "    def __init__(self):\n"
    "        for n in range(20):\n"
    "            with torch.no_grad(): pass\n"
    "    def forward(self): return torch.nn.Module.__call__(Part())\n"
    "class Part(torch.nn.Module):\n"
    "    def forward(self): return 1\n"
    "model = Model()\n"
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder for programs that import the small torch."""
    write_small_torch(tmp_path / "packages")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def collected(place: Path, program: str, *, start: str = START, **options: int) -> Collected:
    place.mkdir(exist_ok=True)
    file = place / "program.py"
    file.write_text(start + program)
    return collect([sys.executable, str(file)], place / "traces", CollectOptions(**options))


def test_steps_of_an_optimizer(place: Path) -> None:
    found = collected(place, STEP + "print('ended')\nsys.exit(7)")
    assert found.exit_code == 7
    assert found.steps_by == "steps of its first optimizer"
    assert (found.num_steps, found.ranks, found.missing) == (3, (0,), ())
    assert found.overhead is not None
    assert sorted(found.files) == sorted(file.name for file in found.folder.iterdir())
    assert all("rank0_" in name for name in found.files)
    (host,), (device,) = found.folder.glob("host_*"), found.folder.glob("device_*")
    timed = json.loads(gzip.decompress(device.read_bytes()))
    assert timed["steps"] == 4  # the first of them warms up
    # no step ends in the range of an optimizer
    assert timed["log"] == 4 * ["optimizer", "optimizer ended", "step"]
    marks = [f"ProfilerStep#{number}" for number in (4, 5, 6)]
    assert json.loads(host.read_text()) == [
        text for mark in marks for text in (mark, "optimizer", "optimizer ended", f"{mark} ended")
    ]
    about = timed["nadi"]
    assert about["host_trace"] == "of later steps"
    lengths = [len(about[kind]) for kind in ("timed_ns", "observed_ns", "unrecorded_ns")]
    assert lengths == [3, 3, 6]
    ready = [len(about[kind]) for kind in ("ready_ns", "unrecorded_ready_ns")]
    assert ready == ([3, 6] if Path("/proc/self/schedstat").exists() else [0, 0])


@pytest.mark.parametrize(("program", "steps_by"), [
    ("for n in range(14): autograd.backward()", "calls of backward"),
    (MODEL + "for n in range(14):\n    with torch.inference_mode():\n        model()\n"
     "        with torch.no_grad(): pass",
     "outermost blocks of no_grad or inference_mode that call a module"),
    (MODEL + "with torch.no_grad():\n    for n in range(14): model()",
     "outermost calls of modules"),
    ("p = profiler.profile()\nfor n in range(14):\n    o.step()\n    p.step()",
     "profiler.step() of the program"),
    ("other = type(o)()\nfor n in range(42):\n    o.step()\n    if n % 3 == 2: other.step()",
     "steps of the optimizer that steps once in several steps of the first"),
    ("other = type(o)()\nfor n in range(14):\n    o.step()\n    other.step()",
     "steps of its first optimizer"),
    (MODEL + "for n in range(14):\n    with torch.no_grad(): model()\n" + STEP,
     "steps of its first optimizer"),
])  # fmt: skip
def test_what_marks_steps(place: Path, program: str, steps_by: str) -> None:
    if "p.step" in program:
        program = program.replace("p = profiler.profile()", "p = profiler.profile(); p.steps = 0")
    found = collected(place, program)
    assert (found.steps_by, found.num_steps, found.exit_code) == (steps_by, 3, 0)


def test_the_construction_of_a_model_is_no_step(place: Path) -> None:
    found = collected(place, MODEL)
    assert (found.files, found.num_steps) == ((), 0)
    assert "steps: none was found" in found.missing[0]


@pytest.mark.parametrize(("end", "code"), [
    ("raise RuntimeError('boom')", 1), ("os._exit(5)", 5),
    # as from a terminal: what a shell runs in the background ignores it
    ("import signal; signal.signal(2, signal.default_int_handler); signal.raise_signal(2)", 130),
])  # fmt: skip
def test_a_program_that_ends_early_keeps_its_exit_code(place: Path, end: str, code: int) -> None:
    found = collected(place, f"{STEP}    if n == 5:\n        {end}")
    assert (found.exit_code, found.num_steps, len(found.files)) == (code, 3, 2)
    found = collected(place / "early", f"{STEP}    if n == 3:\n        {end}")
    assert (found.exit_code, found.num_steps, len(found.files)) == (code, 2, 1)
    assert "host traces of ranks 0" in found.missing[0]


def test_the_profiler_of_the_program_goes_first(place: Path) -> None:
    own = "    if n == 1: p = profiler.profile(); p.start()\n    if n == 6: p.stop()"
    found = collected(place, STEP + own)
    assert (found.exit_code, found.num_steps) == (0, 3)


def test_ranks_of_several_processes(place: Path) -> None:
    program = (
        "import subprocess\n"
        "if 'RANK' not in os.environ:\n"
        "    more = [dict(os.environ, RANK=str(r), WORLD_SIZE='3') for r in (0, 1)]\n"
        "    sys.exit(max(subprocess.call([sys.executable, __file__], env=e) for e in more))\n"
    )
    found = collected(place, program + STEP)
    assert (found.ranks, found.world_size, found.exit_code) == ((0, 1), 3, 0)
    assert found.missing == ("ranks 2: not recorded on this machine",)


def test_waits_for_locks_are_ranges(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = (
        "import threading, time\nlock = threading.Lock()\n"
        "def hold():\n    with lock: time.sleep(0.3)\n"
        "for n in range(9):\n    o.step()\n    if n == 3:\n"
        "        t = threading.Thread(target=hold); t.start(); time.sleep(0.1)\n"
        "        with lock: pass\n        t.join(); print('thread', t.native_id)\n"
    )
    found = collected(place, program, locks=True)
    assert found.exit_code == 0
    lines = capfd.readouterr().out.split("\n")
    thread = next(line for line in lines if line.startswith("thread")).split()[1]
    assert lines[:2] == ["range nadi::wait program.py:6", f"range nadi::woken by {thread}"]


def test_no_torch_and_an_own_sitecustomize(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = place / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import builtins; builtins.met = 3")
    monkeypatch.setenv("PYTHONPATH", str(own))
    found = collected(place, "import sys; sys.exit(met)", start="")
    assert found.exit_code == 3
    assert "no Python process of the program imported torch" in found.missing[0]
    assert list(found.folder.iterdir()) == []


def test_a_torch_that_is_otherwise_does_not_break_the_program(place: Path) -> None:
    (place / "packages" / "torch" / "optim" / "optimizer.py").unlink()
    found = collected(place, "print('fine')", start="import torch\n")
    assert found.exit_code == 0
    assert "optimizer" in found.missing[0]


def test_errors_before_the_program(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(nadi.errors.UsageError, match="warmup=1"):
        collect(["true"], place / "x", CollectOptions(warmup=1))
    with pytest.raises(nadi.errors.UsageError, match="no program"):
        collect([], place / "x")
    with pytest.raises(nadi.errors.UsageError, match="no-such-program"):
        collect(["no-such-program"], place / "x")
    (place / "y").mkdir()
    (place / "y" / "host_rank0_a.json").write_text("")
    assert main(["record", "-o", str(place / "y"), "--", "true"]) == 2
    assert "has a recording" in capsys.readouterr().err
    assert main(["record", "--overwrite", "-o", str(place / "y"), "--", "false", "--x"]) == 1
    assert "nothing was recorded" in capsys.readouterr().err
    assert not list((place / "y").glob("*"))


TRUE = """
import torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for n in range(8):
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
"""


@needs_torch
def test_a_true_program(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(TRUE)
    ran = subprocess.run(
        [sys.executable, "-m", "nadi", "record", "-o", tmp_path / "traces", "--", sys.executable,
         file], env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True, capture_output=True,
    )  # fmt: skip
    assert b"recorded 3 steps of rank 0" in ran.stderr
    found = nadi.run(tmp_path / "traces")
    assert len(found.steps) == 3
    assert found.measured_ns == found.replayed_ns


COMPILED = """
import torch
from torch._dynamo.utils import counters
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
stepped = torch.compile(lambda: optimizer.step(), backend="eager")
for n in range(12):
    model(torch.ones(2, 8)).sum().backward()
    stepped()
print("compiled", dict(counters["frames"]), dict(counters["stats"]))
"""


@needs_torch
def test_a_compiled_optimizer_is_compiled_as_without_a_recorder(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(COMPILED)
    plain = [sys.executable, str(file)]
    collecting = [sys.executable, "-m", "nadi", "record", "-o", str(tmp_path / "traces"), "--"]
    alone, recorded = (
        subprocess.run(
            command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True, capture_output=True,
            text=True,
        )
        for command in (plain, [*collecting, *plain])
    )  # fmt: skip
    compiled = [line for line in alone.stdout.splitlines() if line.startswith("compiled")]
    assert compiled[0] in recorded.stdout
    assert "steps of its first optimizer" in recorded.stderr
