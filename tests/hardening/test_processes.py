"""Forks, Ctrl-C, and errors that go from one process to another."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import nadi
from nadi.graph.event_graph import CycleError

posix_only = pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")

# what a forked child is asked for, each of which would wait for polars' threads for ever
_FORKING = """
import os, sys, warnings
import nadi
warnings.simplefilter("ignore")  # newer Pythons warn of forks where there are threads
demo = sys.argv[1]
run = nadi.run(demo)
for ask in (
    lambda: nadi.read(demo + "/host_0.json.gz"),
    lambda: nadi.build_graph(run.graph.job),
    lambda: nadi.what_if(run.graph, "scale aten::mm 0.5"),
    lambda: nadi.simulate(run.graph.job, nadi.load_system("dgx-h100", 4)),
):
    child = os.fork()
    if not child:
        try:
            ask()
        except nadi.NadiError as error:
            os.write(1, f"{error}\\n".encode())
        os._exit(0)
    os.waitpid(child, 0)
"""


@posix_only
def test_a_fork_is_refused_and_does_not_hang(demo_folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FORKING, str(demo_folder)],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    assert all("is a fork of one in which Nadi has worked" in line for line in lines)
    assert all('multiprocessing.get_context("spawn")' in line for line in lines)


@posix_only
@pytest.mark.parametrize("module", ["typer", "rich", "nadi.cli.app", "polars", "numba"])
def test_an_interrupt_while_modules_are_imported_is_one_line(
    module: str, demo_folder: Path
) -> None:
    program = f"""
import sys, time, os
class Wait:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.write(1, b"here")
            time.sleep(60)
sys.meta_path.insert(0, Wait())
sys.argv = ["nadi", "run", {str(demo_folder)!r}]
from nadi.cli import run
run()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.read(4) == b"here"
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (130, b"nadi: interrupted\n")


@posix_only
def test_an_interrupt_that_the_caller_ignores_is_ignored(demo_folder: Path) -> None:
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); import nadi.cli;"
        "sys.argv = ['nadi', '--version']; nadi.cli.main();"
        "assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_a_cycle_comes_back_from_another_process() -> None:
    error = CycleError(["start of a", "end of b"], [3, 4])
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.moments, again.vertices) == (str(error), error.moments, [3, 4])


def test_messages_are_one_line_whatever_is_in_names() -> None:
    error = nadi.NadiError("a\nb", "met \x1b[2J\u2028 and \ud800", "see\r\ttab")
    assert str(error) == r"a\nb: met \x1b[2J\u2028 and \ud800; see\r\ttab"
    assert str(CycleError(["start of a\nb"], [1])).isprintable()
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@posix_only
def test_writing_leaves_the_umask_as_it_is(tmp_path: Path, demo_folder: Path) -> None:
    before = os.umask(0o027)
    try:
        nadi.write(nadi.read(demo_folder / "host_0.json.gz"), tmp_path / "a.nadi")
        assert os.umask(0o027) == 0o027
        assert (tmp_path / "a.nadi").stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(before)


def test_temporary_files_of_a_killed_writer_are_removed(tmp_path: Path, demo_folder: Path) -> None:
    trace = nadi.read(demo_folder / "host_0.json.gz")
    folder = tmp_path / "out"
    folder.mkdir()
    old, new, other = (folder / f".nadi-{k}.part" for k in "012")
    for path in (old, new, other):
        path.write_bytes(b"half")
    an_hour_ago = time.time() - 3600
    os.utime(old, (an_hour_ago, an_hour_ago))
    os.utime(other, (an_hour_ago, an_hour_ago))
    (folder / "mine.part").write_bytes(b"")
    held = None
    if hasattr(os, "fork"):
        import fcntl

        held = other.open("r+b")  # somebody still writes it
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    nadi.write(trace, folder / "a.nadi")
    left = {path.name for path in folder.iterdir()}
    assert left == {"a.nadi", "mine.part", new.name} | ({other.name} if held else set())
    if held:
        held.close()


_POOL = """
import os
from nadi.results.terminal.workers import worker_processes
with worker_processes(1) as pool:
    assert pool.submit(os.getpid).result() != os.getpid()
assert "PYTHONSAFEPATH" not in os.environ
"""
_KILLED = """
import os, signal
from nadi.results.terminal.workers import worker_processes
with worker_processes(2) as pool:
    for one in [pool.submit(os.getpid) for _ in range(9)]:
        one.result()
    waits = [pool.submit(bytes, 1 << 24) for _ in range(9)]  # more than a pipe holds
    os.kill(os.getpid(), signal.SIGKILL)
"""


@posix_only
def test_workers_of_a_killed_program_end() -> None:
    """They waited for ever: to write a result that nobody reads, or for work."""
    process = subprocess.Popen([sys.executable, "-c", _KILLED], stderr=subprocess.PIPE)
    process.communicate(timeout=120)  # until no process has the pipe
    assert process.returncode == -signal.SIGKILL


_COMPILER = """
from nadi.kernels.compile_ahead import _Beside
process = _Beside([], print)._process
process.stdin.close()
assert process.wait() == 0
"""


@pytest.mark.parametrize("program", [_POOL, _COMPILER])
def test_processes_run_nothing_of_the_working_folder(program: str, tmp_path: Path) -> None:
    """Who looks at downloaded traces stands in their folder, and it may hold a numpy.py."""
    ran = tmp_path / "ran"
    for name in ("json", "multiprocessing", "nadi", "numpy", "signal", "struct"):
        (tmp_path / f"{name}.py").write_text(f"open({str(ran)!r}, 'w')")
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not ran.exists()
