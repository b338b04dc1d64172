"""What many tests need: the recordings, and small traces written by hand."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

if "PYTEST_XDIST_WORKER" in os.environ:  # beside others: both would start a thread for each core
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # those of PyTorch, which spin while they wait

import nadi
from nadi.kernels import build_kernels, compile_ahead, jit, kernel_cache
from nadi.recordings import job_of_files as recordings
from nadi.results.terminal import progress as progress_lines
from tests.amounts import examples, names_by_amounts
from tests.report.headless_browser import NO_BROWSER

# the same examples in every run, however long they take: a first call may compile a kernel, and
# the machine may be busy
settings.register_profile(
    "nadi", derandomize=True, deadline=None, max_examples=examples(100),
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
settings.load_profile("nadi")

if "PYTEST_XDIST_WORKER" in os.environ:  # the other has the second core: no process beside this

    def compile_nothing_ahead(*_: object) -> nullcontext[None]:
        return nullcontext()

    compile_ahead.compiling_ahead = compile_nothing_ahead

progress_lines.BETWEEN = 3600.0  # a busy machine changes nothing of what commands print

DEMO = (Path(nadi.__file__).parent / "data" / "demo").resolve()
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


NOT_HERE = "the recordings beside the checkout (../shared/data) are not here"


def pytest_configure(config: pytest.Config) -> None:
    """Compile kernels for all processes of a run of all tests: each would compile most of them."""
    is_parallel = getattr(config.option, "numprocesses", 0) and not hasattr(config, "workerinput")
    folder = kernel_cache.cache_folder()
    if is_parallel and config.args == config.getini("testpaths") and jit.IS_KNOWN and folder:
        build_kernels.compile_on_all_cores(folder)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name files and paths by their position: what they hold may differ from run to run.

    The processes of a parallel run have to collect the same ids. The content of a gzip file, for
    one, begins with the time.
    """
    return argname if isinstance(val, (bytes, bytearray, Path)) else None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what ``.ci/run`` asks for where it tries more than its first run of all tests."""
    parser.addoption(
        "--varied", action="store_true", help="Run only tests that try more or fewer cases."
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the longest test: begun last, it would keep one process of two alone."""
    items.sort(key=lambda item: item.name != "test_commands_print_what_is_kept")
    if config.getoption("varied"):
        others = [item for item in items if not _is_varied(item)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if _is_varied(item)]


def _is_varied(item: pytest.Item) -> bool:
    """Tell whether it depends on ``tests.amounts`` how much a test tries."""
    if is_hypothesis_test(getattr(item, "obj", None)):
        return True
    own = {getattr(one, "originalname", None) or one.name for one in item.listchain()}
    return not own.isdisjoint(names_by_amounts(item.path))


def pytest_collection_finish() -> None:
    """Look through what thousands of collected tests consist of no more: a tenth of all time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line how many tests could not run without the recordings."""
    skipped = terminalreporter.stats.get("skipped", [])
    count = sum(NOT_HERE in str(report.longrepr) for report in skipped)
    if count:
        terminalreporter.write_line(f"{count} tests were skipped: {NOT_HERE}")
    reasons = {str(report.longrepr[2]) for report in skipped}
    for reason in sorted(reason for reason in reasons if NO_BROWSER in reason):
        terminalreporter.write_line(reason.removeprefix("Skipped: "))


@pytest.fixture(scope="session")
def demo_folder() -> Path:
    return DEMO


@pytest.fixture(scope="session")
def demo_run(demo_folder: Path) -> nadi.bottlenecks.Run:
    return nadi.run(demo_folder)


_DEMOS_READ: dict[tuple[str, str, bool, bool], tuple[nadi.Job, list[Any]]] = {}


@pytest.fixture
def demo_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the demo read and linked once for all tests that ask for this, as it never changes.

    They are of what is done with it; others read it each time.
    """
    from nadi.analyses import recorded_parts
    from nadi.graph import load_graph
    from nadi.sharing.parts import extract as extracted_jobs

    def once(name: str) -> Callable[..., tuple[nadi.Job, list[Any]]]:
        read: Callable[..., tuple[nadi.Job, list[Any]]] = getattr(recordings, name)

        def read_once(
            *paths: Path | str, force: bool = False, tensors: bool = False, **others: Any
        ) -> tuple[nadi.Job, list[Any]]:
            if [Path(path).resolve() for path in paths] != [DEMO] or others.get("executor"):
                return read(*paths, force=force, tensors=tensors, **others)
            key = name, str(paths[0]), force, tensors  # messages name files as they were given
            if key not in _DEMOS_READ:
                _DEMOS_READ[key] = read(*paths, force=force, tensors=tensors, **others)
            return _DEMOS_READ[key]

        return read_once

    for name, users in (
        ("load_recordings", (recordings, extracted_jobs, recorded_parts)),
        ("load_ranks", (recordings, load_graph)),
    ):
        reading = once(name)
        for user in users:
            monkeypatch.setattr(user, name, reading)


@pytest.fixture(scope="session")
def shared_traces() -> Path:
    if not SHARED.is_dir():
        pytest.skip(NOT_HERE)
    return SHARED / "traces"


@pytest.fixture(scope="session")
def shared_programs() -> Path:
    if not (SHARED / "programs").is_dir():
        pytest.skip(NOT_HERE)
    return SHARED / "programs"


class PairWriter:
    """Writes a host and a device file of a few operations."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[dict[str, Any]] = []
        self.nodes: list[dict[str, Any]] = [
            {"id": 1, "name": "[pytorch|profiler|execution_trace|process]", "ctrl_deps": 1}
        ]
        self.device_keys: dict[str, Any] = {"schemaVersion": 1}

    def event(self, name: str, ts: float, dur: float, cat: str = "cpu_op", **args: Any) -> None:
        """Add an event to the device file; times in us, tid 1 unless given as ``tid=``."""
        tid, pid = args.pop("tid", 1), args.pop("pid", 7)
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur,
             "args": args}
        )  # fmt: skip

    def op(self, name: str, ts: float, dur: float, *, parent: int = 1, **args: Any) -> int:
        """Add a host operation to both files; gives its id."""
        number = len(self.nodes) + 1
        cat = args.pop("cat", "cpu_op")
        self.event(name, ts, dur, cat, **{"Record function id": number}, **args)
        attrs = [{"name": "rf_id", "type": "uint64", "value": number}]
        self.nodes.append({"id": number, "name": name, "ctrl_deps": parent, "attrs": attrs})
        return number

    def write(self, number: str = "") -> tuple[Path, Path]:
        """Write both files."""
        host = self.folder / f"host{number}.json"
        device = self.folder / f"device{number}.json"
        host.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 7, "nodes": self.nodes}))
        device.write_text(json.dumps({**self.device_keys, "traceEvents": self.events}))
        return host, device


@pytest.fixture
def pair(tmp_path: Path) -> PairWriter:
    return PairWriter(tmp_path)
