"""Recording: with a stand-in for torch, which few have here, and with torch where it is."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import nadi


class Profiler:
    """Does of ``torch.profiler.profile`` what a recording needs."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.steps = 0

    def __enter__(self) -> Profiler:
        return self

    def step(self) -> None:
        self.steps += 1

    def export_chrome_trace(self, path: str) -> None:
        Path(path).write_text("device")

    def __exit__(self, *_: object) -> None:
        before = self.options["schedule"]["wait"] + self.options["schedule"]["warmup"]
        if self.steps > before:
            Path(self.options["execution_trace_observer"]).write_text("host")
            self.options["on_trace_ready"](self)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    made: list[Profiler] = []

    def profile(**options: Any) -> Profiler:
        made.append(Profiler(**options))
        return made[-1]

    module, profiler = ModuleType("torch"), ModuleType("torch.profiler")
    vars(profiler).update(
        profile=profile, schedule=dict, supported_activities=lambda: {"cpu"},
        ExecutionTraceObserver=lambda: SimpleNamespace(register_callback=lambda path: path),
    )  # fmt: skip
    vars(module).update(profiler=profiler, made=made, __version__="2.8.0a0+git")
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setitem(sys.modules, "torch.profiler", profiler)
    monkeypatch.delenv("RANK", raising=False)
    return module


def recorded(folder: Path, calls: int, **options: Any) -> nadi.collect.Recording:
    with nadi.record(folder, **options) as recording:
        for _ in range(calls):
            recording.step()
            assert not recording.host.exists() or options.get("overwrite")
    return recording


def test_files_bear_the_rank_and_appear_together(
    torch: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "made" / "here"
    recorded(folder, 5)
    monkeypatch.setenv("RANK", "7")
    torch.distributed = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: False)
    recorded(folder, 5)
    torch.distributed.is_initialized, torch.distributed.get_rank = (lambda: True), (lambda: 12)
    recording = recorded(folder, 5)
    assert recording.rank == 12
    assert repr(recording) == "<Recording rank=12 steps=5>"
    expected = [f"{kind}_{rank}" for kind in ("device", "host") for rank in (0, 12, 7)]
    assert sorted(file.name.partition(".")[0] for file in folder.iterdir()) == expected
    assert (folder / "host_7.json").read_text() == "host"


def test_what_is_asked_for_reaches_the_profiler(torch: ModuleType, tmp_path: Path) -> None:
    recorded(tmp_path, 9, steps=4, warmup=3, stacks=True)
    (profiler,) = torch.made
    given = profiler.options
    assert given["schedule"] == {"wait": 2, "warmup": 1, "active": 4, "repeat": 1}
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
    recorded(tmp_path, 5)
    (profiler,) = torch.made
    assert profiler.options["experimental_config"].get("profile_all_threads", False) is of_all


def test_an_earlier_recording_is_kept_unless_asked(torch: ModuleType, tmp_path: Path) -> None:
    recording = recorded(tmp_path, 5)
    recording.device.write_text("earlier")
    with pytest.raises(nadi.errors.UsageError, match=r"device_0|host_0"):
        recorded(tmp_path, 5)
    assert len(torch.made) == 1
    assert recording.device.read_text() == "earlier"
    recorded(tmp_path, 5, overwrite=True)
    assert recording.device.read_text() == "device"


def test_an_exception_leaves_nothing(torch: ModuleType, tmp_path: Path) -> None:
    def fails() -> None:
        with nadi.record(tmp_path) as recording:
            for _ in range(9):
                recording.step()
            raise KeyError("of the program")

    with pytest.raises(KeyError, match="of the program"):
        fails()
    assert list(tmp_path.iterdir()) == []


def test_too_few_steps_are_warned_of(torch: ModuleType, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"step\(\) was called 2 times.*first 2 steps"):
        recorded(tmp_path, 2)
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
        for _ in range(6):
            layer(true.ones(2, 8)).sum().backward()
            recording.step()
    run = nadi.run(tmp_path / "traces")
    assert len(run.steps) == 3
    assert run.measured_ns == run.replayed_ns
    assert "aten::addmm" in run.path.by_operation()["name"].to_list()
