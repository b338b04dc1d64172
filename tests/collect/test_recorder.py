"""Recording: with a stand-in for torch, which few have here, and with torch where it is."""

from __future__ import annotations

import contextlib
import errno
import gc
import gzip
import importlib.util
import json
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import nadi
from nadi.pytorch.collecting.hook import recorded_steps


class Profiler:
    """Does of ``torch.profiler.profile`` what a recording needs."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def start(self) -> None:
        self.steps = 0

    def step(self) -> None:
        self.steps += 1

    def export_chrome_trace(self, path: str) -> None:
        Path(path).write_text(f'{{\n"steps": {self.steps}}}')

    def stop(self) -> None:
        if self.steps > self.options["schedule"]["warmup"]:
            self.options["on_trace_ready"](self)


class Observer:
    """Does of ``torch.profiler.ExecutionTraceObserver`` what a recording needs."""

    registered = 0

    def register_callback(self, path: str) -> None:
        self.path = path
        Observer.registered += 1

    def start(self) -> None:
        assert Observer.registered == 1

    def stop(self) -> None:
        Path(self.path).write_text("host")

    def unregister_callback(self) -> None:
        Observer.registered -= 1


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    made: list[Profiler] = []

    def profile(**options: Any) -> Profiler:
        made.append(Profiler(**options))
        return made[-1]

    module, profiler = ModuleType("torch"), ModuleType("torch.profiler")
    vars(profiler).update(
        profile=profile, schedule=dict, supported_activities=lambda: {"cpu"},
        ExecutionTraceObserver=Observer, record_function=contextlib.nullcontext,
    )  # fmt: skip
    vars(module).update(profiler=profiler, made=made, __version__="2.8.0a0+git")
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setitem(sys.modules, "torch.profiler", profiler)
    monkeypatch.delenv("RANK", raising=False)
    yield module
    assert not Observer.registered


def compute_in_a_fork(compute: Callable[[], Any]) -> None:
    """Do as the processes of a data loader, which inherit what records."""
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        child = os.fork()
    if not child:
        compute()
        os._exit(0)
    os.waitpid(child, 0)


def recorded(folder: Path, calls: int, **options: Any) -> nadi.pytorch.Recording:
    with nadi.record(folder, **options) as recording:
        for _ in range(calls):
            recording.step()
            assert not recording.host.exists() or options.get("overwrite")
    return recording


def test_files_bear_the_rank_and_appear_together(
    torch: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "made" / "here"
    recorded(folder, 8)
    monkeypatch.setenv("RANK", "7")
    torch.distributed = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: False)
    recorded(folder, 8)
    torch.distributed.is_initialized, torch.distributed.get_rank = (lambda: True), (lambda: 12)
    recording = recorded(folder, 8)
    assert recording.rank == 12
    assert repr(recording) == "<Recording rank=12 steps=8>"
    expected = [f"{kind}_{rank}" for kind in ("device", "host") for rank in (0, 12, 7)]
    assert sorted(file.name.partition(".")[0] for file in folder.iterdir()) == expected
    assert (folder / "host_7.json").read_text() == "host"


def test_what_is_asked_for_reaches_the_profiler(torch: ModuleType, tmp_path: Path) -> None:
    recorded(tmp_path, 11, steps=4, warmup=3, stacks=True)
    (profiler,) = torch.made
    given = profiler.options
    assert given["schedule"] == {"wait": 0, "warmup": 1, "active": 4, "repeat": 1}
    assert given["with_stack"]
    assert not given["record_shapes"]
    assert not given["profile_memory"]
    assert "experimental_config" not in given  # this torch has none


@pytest.mark.parametrize(("version", "of_all"), [("2.8.0", False), ("2.13.0+cpu", True)])
def test_all_threads_are_profiled_where_that_is_safe(
    torch: ModuleType, tmp_path: Path, version: str, of_all: bool
) -> None:
    torch.__version__ = version
    torch.profiler._ExperimentalConfig = dict
    recorded(tmp_path, 8)
    (profiler,) = torch.made
    assert profiler.options["experimental_config"].get("profile_all_threads", False) is of_all


def test_an_earlier_recording_is_kept_unless_asked(torch: ModuleType, tmp_path: Path) -> None:
    recording = recorded(tmp_path, 8)
    recording.device.write_text("earlier")
    with pytest.raises(nadi.errors.UsageError, match=r"device_0|host_0"):
        recorded(tmp_path, 8)
    assert len(torch.made) == 1
    assert recording.device.read_text() == "earlier"
    recorded(tmp_path, 8, overwrite=True)
    assert device_of(recording)["steps"] == 4


def test_an_exception_leaves_nothing(torch: ModuleType, tmp_path: Path) -> None:
    def fails() -> None:
        with nadi.record(tmp_path) as recording:
            for _ in range(9):
                recording.step()
            raise KeyError("of the program")

    with pytest.raises(KeyError, match="of the program"):
        fails()
    assert list(tmp_path.iterdir()) == []


def device_of(recording: nadi.pytorch.Recording) -> Any:
    return json.loads(gzip.decompress(recording.device.read_bytes()))


@pytest.mark.parametrize("warmup", [1, 2, 4])
def test_times_are_of_steps_before_the_observer(
    torch: ModuleType, tmp_path: Path, warmup: int
) -> None:
    recording = recorded(tmp_path, warmup + 6 + 3, warmup=warmup)
    written = device_of(recording)
    assert written["steps"] == 4
    about = written["nadi"]
    assert about["host_trace"] == "of later steps"
    counts = [len(about[f"{kind}_ns"]) for kind in ("timed", "observed", "unrecorded")]
    # without a recorder are the warm-up but for its last step, and what came after
    assert counts == [3, 3, warmup - 1 + 3]


def test_a_block_without_observed_steps_is_warned_of(torch: ModuleType, tmp_path: Path) -> None:
    earlier = recorded(tmp_path, 8)
    with pytest.warns(UserWarning, match=r"no host trace.*called 5 times.*first 5 steps"):
        recorded(tmp_path, 5, overwrite=True)
    assert not earlier.host.exists()
    assert device_of(earlier)["nadi"]["host_trace"] == "none"


@pytest.mark.parametrize("called", [0, 2])
def test_too_few_steps_are_warned_of(torch: ModuleType, tmp_path: Path, called: int) -> None:
    what = rf"step\(\) was called {called} times.*first 2 steps.*call step\(\).*8 times or more"
    with pytest.warns(UserWarning, match=what):
        recorded(tmp_path, called)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_an_error(
    torch: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There PyTorch ends neither with an exception nor with a whole file."""

    def full(path: str, mode: str) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(recorded_steps, "open", full, raising=False)
    with pytest.raises(nadi.errors.InputError, match="cannot be written: No space left on device"):
        recorded(tmp_path, 8)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["steps", "warmup"])
def test_numbers_are_checked_first(torch: ModuleType, tmp_path: Path, name: str) -> None:
    with pytest.raises(nadi.errors.UsageError, match=f"{name}=0: is too small"):
        recorded(tmp_path / "new", 5, **{name: 0})
    assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_made(torch: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(nadi.errors.InputError, match="choose a folder"):
        recorded(tmp_path / "file" / "below", 5)


def test_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(nadi.errors.UsageError, match="install PyTorch"):
        recorded(tmp_path / "new", 5)
    assert not (tmp_path / "new").exists()


class Observed(Observer):
    """An observer that is registered already, as a profiler is given it."""

    def __init__(self, path: str) -> None:
        self.register_callback(path)

    def get_output_file_path(self) -> str:
        return self.path

    def unregister_callback(self) -> None:
        super().unregister_callback()
        Path(self.path).write_text("host")


def handed_over(folder: Path, observer: Any = None, **options: Any) -> None:
    """Let a profiler hand its trace to a handler."""
    profiler = Profiler()
    profiler.start()
    if observer is not None:
        vars(profiler)["execution_trace_observer"] = observer
    nadi.trace_handler(folder, **options)(profiler)


@pytest.mark.parametrize("place", ["elsewhere.json", "elsewhere.json.gz", "made/host_3.json"])
def test_a_handler_writes_what_record_does(
    torch: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("RANK", "3")
    (tmp_path / "made").mkdir()
    handed_over(tmp_path / "made", Observed(str(tmp_path / place)))
    host = "host_3.json.gz" if place.endswith(".gz") else "host_3.json"
    assert sorted(file.name for file in (tmp_path / "made").iterdir()) == ["device_3.json.gz", host]
    assert (tmp_path / "made" / host).read_text() == "host"


def test_a_handler_keeps_earlier_files_and_the_first_cycle(
    torch: ModuleType, tmp_path: Path
) -> None:
    handle = nadi.trace_handler(tmp_path / "new")
    profiler = Profiler()
    profiler.start()
    handle(profiler)
    device = tmp_path / "new" / "device_0.json.gz"
    device.write_text("first")
    with pytest.warns(UserWarning, match="has the first cycle"):
        handle(profiler)
    assert device.read_text() == "first"
    with pytest.raises(nadi.errors.UsageError, match="overwrite"):
        nadi.trace_handler(tmp_path / "new")
    earlier = device.with_name("host_0.json")
    earlier.write_text("of the first")
    os.utime(earlier, (0, 0))
    handed_over(tmp_path / "new", overwrite=True)
    assert device.read_text() != "first"
    assert not earlier.exists()


def test_what_a_handler_cannot_write_is_a_warning(torch: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="nothing was recorded: .*choose a folder"):
        handed_over(tmp_path / "file" / "below")
    handle = nadi.trace_handler(tmp_path)
    (tmp_path / "device_0.json.gz").write_text("of another rank 0")
    with pytest.warns(UserWarning, match="nothing was recorded: .*device_0.json.gz: exists"):
        handle(Profiler())
    assert len(list(tmp_path.iterdir())) == 2


def _initialized_late(folder: Path, state: Any) -> None:
    with nadi.record(folder) as recording:
        state.is_initialized = lambda: True
        recording.step()


def test_the_rank_is_that_of_the_first_step(torch: ModuleType, tmp_path: Path) -> None:
    """Lightning initializes torch.distributed in ``fit``, and has ended it when the block ends."""
    state = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: False)
    torch.distributed = state
    with nadi.record(tmp_path) as recording:
        state.is_initialized, state.get_rank = (lambda: True), (lambda: 5)
        for _ in range(8):
            recording.step()
        state.is_initialized = lambda: False
    assert recording.rank == 5
    assert sorted(file.name for file in tmp_path.iterdir()) == ["device_5.json.gz", "host_5.json"]
    with pytest.raises(nadi.errors.UsageError, match=r"device_5|host_5"):
        _initialized_late(tmp_path, state)
    given = recorded(tmp_path, 8, rank=3)
    assert given.rank == 3


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize(
    ("framework", "base", "hook"),
    [("lightning.pytorch", "Callback", "on_train_batch_end"),
     ("transformers", "TrainerCallback", "on_step_end")],
)  # fmt: skip
def test_callbacks_in_the_docs_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, framework: str, base: str, hook: str
) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "record.md").read_text()
    (block,) = re.findall(rf"```py\n(class MarkSteps\({framework}\.{base}.*?)```", page, re.DOTALL)
    assert len([line for line in block.splitlines() if line.strip()]) == 5

    class Trainer:
        def __init__(self, *_: Any, callbacks: list[Any], **__: Any) -> None:
            self.callbacks = callbacks

        def train(self, *_: Any) -> None:
            for _step in range(8):
                getattr(self.callbacks[0], hook)("trainer", "module", "outputs")

        fit = train

    module = SimpleNamespace(Trainer=Trainer, **{base: object})
    names = {"nadi": nadi, "transformers": module, "lightning": SimpleNamespace(pytorch=module),
             "model": None, "data": None, "arguments": None}  # fmt: skip
    monkeypatch.chdir(tmp_path)
    exec(block, names)
    assert (tmp_path / "traces" / "device_0.json.gz").exists()
    assert (tmp_path / "traces" / "host_0.json").exists()


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_a_true_program(tmp_path: Path) -> None:
    import torch as true

    layer = true.nn.Linear(8, 8)

    def read() -> Any:
        time.sleep(0.02)
        return true.ones(2, 8)

    with nadi.record(tmp_path / "traces") as recording:
        for _ in range(9):
            answer = layer(read())
            compute_in_a_fork(lambda: true.ones(2) + 1)
            total = answer.sum()
            gc.collect()
            total.backward()
            recording.step()
    run = nadi.run(tmp_path / "traces", by="module")
    assert len(run.steps) == 3
    assert run.measured_ns == run.replayed_ns
    assert run.modules is not None
    linear = run.modules.table.filter(module="Linear_0")
    assert linear["calls"].to_list() == [3]
    assert linear["backward_host"][0] > 0
    names = run.path.by_operation()["name"].to_list()
    assert "aten::addmm" in names
    assert any(re.match(r"wait in test_recorder\.py\(\d+\): .*read$", name) for name in names)
    assert "garbage collection" in names


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_a_true_profiler(tmp_path: Path) -> None:
    from torch import nn, ones
    from torch.profiler import ExecutionTraceObserver, profile, schedule

    layer = nn.Linear(8, 8)
    with profile(
        schedule=schedule(wait=1, warmup=1, active=3, repeat=1),
        on_trace_ready=nadi.trace_handler(tmp_path / "traces"), profile_memory=True,
        execution_trace_observer=ExecutionTraceObserver().register_callback(
            str(tmp_path / "observed.json")
        ),
    ) as profiler:  # fmt: skip
        for _ in range(6):
            layer(ones(2, 8)).sum().backward()
            profiler.step()
    run = nadi.run(tmp_path / "traces")
    assert len(run.steps) == 3
    assert run.measured_ns == run.replayed_ns
    assert run.verdict.has_host_trace
    assert not nadi.bottlenecks.check(
        tmp_path / "traces", tmp_path / "traces", ["step 0 %", "memory peak 0 %"]
    ).is_exceeded


def test_nothing_is_imported_in_a_timed_step(
    torch: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = "nadi.pytorch.collecting.hook.sampled_gaps"
    monkeypatch.delitem(sys.modules, sampler, raising=False)
    options = {
        "steps": 1, "shapes": False, "stacks": True, "memory": False, "sync": False,
    }  # fmt: skip
    recorder = recorded_steps.StepRecorder(torch, str(tmp_path), options)
    recorder.start()
    known = set(sys.modules)
    assert sampler in known
    recorder.step()
    recorder.step()
    assert recorder.timed.lengths
    assert set(sys.modules) == known
    recorder.stop()
