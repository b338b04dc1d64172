"""Recording: with a stand-in for torch, which few have here, and with torch where it is."""

from __future__ import annotations

import contextlib
import errno
import gzip
import importlib.util
import json
import sys
from collections.abc import Iterator
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


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_a_true_program(tmp_path: Path) -> None:
    import torch as true

    layer = true.nn.Linear(8, 8)
    with nadi.record(tmp_path / "traces") as recording:
        for _ in range(9):
            layer(true.ones(2, 8)).sum().backward()
            recording.step()
    run = nadi.run(tmp_path / "traces")
    assert len(run.steps) == 3
    assert run.measured_ns == run.replayed_ns
    assert "aten::addmm" in run.path.by_operation()["name"].to_list()
