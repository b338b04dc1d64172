"""Two recordings compared: what changed, and that it adds up."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import nadi
from nadi.cli import main
from tests.conftest import PairWriter


def recording(folder: Path, *, kernel: float = 50, host: float = 20, extra: bool = False) -> Path:
    """Write two steps: an operator launches a kernel and waits for it; perhaps another one too."""
    folder.mkdir()
    pair = PairWriter(folder)
    begin = 0.0
    for number in (1, 2):
        end = begin + 10 + host + kernel + 20 + (60 if extra else 0)
        pair.op(f"ProfilerStep#{number + 3}", begin, end - begin, cat="user_annotation")
        pair.op("aten::mm", begin + 5, host)
        pair.event("cudaLaunchKernel", begin + 5 + host - 5, 4, "cuda_runtime", correlation=number)
        start = begin + 5 + host
        pair.event("gemm", start, kernel, "kernel", pid=0, tid=7, stream=7, device=0,
                   correlation=number)  # fmt: skip
        pair.event("cudaDeviceSynchronize", start, kernel + 5, "cuda_runtime",
                   correlation=1000 + number)  # fmt: skip
        if extra:
            pair.op("aten::sort", start + kernel + 6, 60)
        begin = end
    pair.write()
    return folder


def test_a_recording_and_itself_are_the_same(demo_folder: Path) -> None:
    found = nadi.bottlenecks.diff(demo_folder, demo_folder)
    assert found.before_ns == found.after_ns
    assert found.path["change_ns"].abs().sum() == 0
    for table in (found.kernels, found.calls):
        assert set(table["state"]) <= {"same"}
    assert (found.steps["change_ns"] == 0).all()


@pytest.mark.parametrize(("after", "name", "cause", "change"), [
    ({"kernel": 80}, "gemm", "slower", 30_000),
    ({"kernel": 20}, "gemm", "faster", -30_000),
    ({"host": 55}, "aten::mm", "slower", 35_000),
    ({"extra": True}, "aten::sort", "added", 60_000),
])  # fmt: skip
def test_the_change_that_was_made_is_the_first(
    tmp_path: Path, after: dict[str, float], name: str, cause: str, change: int
) -> None:
    found = nadi.bottlenecks.diff(recording(tmp_path / "a"), recording(tmp_path / "b", **after))  # type: ignore[arg-type]
    first = found.path.row(0, named=True)
    assert (first["name"], first["cause"], first["change_ns"]) == (name, cause, change)
    total = found.after_ns - found.before_ns
    assert total == change
    assert found.path["change_ns"].sum() == pytest.approx(total)
    assert found.steps["change_ns"].to_list() == [change, change]
    assert found.steps.select("before", "after").rows() == [(4, 4), (5, 5)]
    back = nadi.bottlenecks.diff(tmp_path / "b", tmp_path / "a")
    assert back.path["change_ns"].sum() == pytest.approx(-total)


def test_calls_are_aligned_by_what_is_around_them(tmp_path: Path) -> None:
    found = nadi.bottlenecks.diff(recording(tmp_path / "a"), recording(tmp_path / "b", kernel=80))
    slower = found.calls.filter(pl.col("path") == "aten::mm").row(0, named=True)
    assert slower["state"] == "slower"
    assert slower["device_after_ns"] - slower["device_before_ns"] == 30_000
    one = nadi.bottlenecks.diff(tmp_path / "a", tmp_path / "b", step=4)
    assert one.after_ns - one.before_ns == 30_000
    with pytest.raises(nadi.errors.UsageError, match="no such step"):
        nadi.bottlenecks.diff(tmp_path / "a", tmp_path / "b", step=9)


def test_modules_are_compared_without_those_in_them(tmp_path: Path) -> None:
    def written(folder: Path, linear: float) -> Path:
        folder.mkdir()
        pair = PairWriter(folder)
        pair.op("ProfilerStep#1", 0, 1_000, cat="user_annotation")
        frame = {"cat": "python_function"}
        pair.event("nn.Module: Net_0", 10, 500 + linear, **frame)  # type: ignore[arg-type]
        pair.event("nn.Module: Linear_0", 20, 100 + linear, **frame)  # type: ignore[arg-type]
        pair.op("aten::mm", 30, 50 + linear)
        pair.op("aten::relu", 200 + linear, 40)
        pair.write()
        return folder

    found = nadi.bottlenecks.diff(written(tmp_path / "a", 0), written(tmp_path / "b", 70))
    rows = {row["module"]: row for row in found.modules.iter_rows(named=True)}
    assert rows["Net_0.Linear_0"]["change_ns"] == 70_000
    assert rows["Net_0.Linear_0"]["state"] == "slower"
    assert rows["Net_0"]["change_ns"] == 0
    assert found.modules["change_ns"].sum() == 0  # the step is as long as before
    assert rows["Net_0"]["count_before"] == 1


NAMES = [f"aten::op{number}" for number in range(10)]


def test_all_of_a_recording_without_modules_is_outside_of_them(tmp_path: Path) -> None:
    def written(folder: Path, *modules: str) -> Path:
        folder.mkdir()
        pair = PairWriter(folder)
        for name in modules:
            pair.event(f"nn.Module: {name}_0", 0, 100, "python_function",
                       **{"Python id": 1, "Python module id": 0})  # fmt: skip
        pair.op("aten::mm", 10, 60)
        pair.op("aten::add", 200, 40)
        pair.write()
        return folder

    found = nadi.bottlenecks.diff(written(tmp_path / "a", "Net"), written(tmp_path / "b"))
    outside = found.modules.filter(module="(outside of modules)").row(0, named=True)
    assert outside["after_ns"] == 100_000 > outside["before_ns"]
    assert outside["state"] != "removed"
    none = nadi.bottlenecks.diff(tmp_path / "b", tmp_path / "b")
    assert none.modules.height == 0


def test_a_graph_that_was_launched_before_the_window_counts(tmp_path: Path) -> None:
    def written(folder: Path, first: float) -> Path:
        folder.mkdir()
        pair = PairWriter(folder)
        pair.op("aten::mm", 0, 30)
        pair.event("cudaGraphLaunch", 1, 5, "cuda_runtime", correlation=1)
        pair.op("aten::add", 3_050, 5)
        for start in (first, first + 300):
            pair.event("gemm", start, 300, "kernel", pid=0, tid=7, stream=7, device=0,
                       correlation=1)  # fmt: skip
        pair.write()
        return folder

    early, late = written(tmp_path / "a", 10), written(tmp_path / "b", 2_500)
    assert nadi.run(late).window.after_earlier_work
    assert nadi.bottlenecks.diff(early, late).forms.height == 0


def steps_of(folder: Path, ops: list[tuple[str, float]], **more: object) -> Path:
    """Write two steps that each run the same operators, in us, without gaps."""
    folder.mkdir()
    pair = PairWriter(folder)
    at = 0.0
    for number in (1, 2):
        whole = sum(length for _, length in ops)
        pair.event(f"ProfilerStep#{number}", at, whole + 2, "user_annotation")
        at += 1
        for name, length in ops:
            pair.op(name, at, length, **more)  # type: ignore[arg-type]
            at += length
        at += 1
    pair.write()
    return folder


def test_what_runs_more_often_is_called_more_in_every_table(tmp_path: Path) -> None:
    """Though each call is shorter, as copies of parts are."""
    base = [("aten::mm", 100.0)]
    few = steps_of(tmp_path / "a", [*base, *[("aten::copy_", 50.0)] * 3])
    many = steps_of(tmp_path / "b", [*base, *[("aten::copy_", 2.0)] * 60])
    for places, state in (
        ((few, many), "called more, each faster"), ((many, few), "called less, each slower"),
    ):  # fmt: skip
        found = nadi.bottlenecks.diff(*places)
        assert found.path.filter(name="aten::copy_")["cause"].to_list() == [state]
        assert found.calls.filter(path="aten::copy_")["state"].to_list() == [state]


def test_what_takes_much_longer_and_runs_a_little_more_often_is_slower(tmp_path: Path) -> None:
    before = steps_of(tmp_path / "a", [("aten::mm", 10.0)] * 20)
    after = steps_of(tmp_path / "b", [("aten::mm", 30.0)] * 21)
    found = nadi.bottlenecks.diff(before, after)
    assert found.path.filter(name="aten::mm")["cause"].to_list() == ["slower"]


@pytest.mark.parametrize("factor", [1.3, 0.8])
def test_a_factor_of_all_that_did_not_change_is_the_machine(tmp_path: Path, factor: float) -> None:
    lengths = [(name, 10.0 * (number + 1)) for number, name in enumerate(NAMES)]
    slow = [(name, length * factor) for name, length in lengths]
    slow[4] = (slow[4][0], 10 * slow[4][1])
    found = nadi.bottlenecks.diff(steps_of(tmp_path / "a", lengths), steps_of(tmp_path / "b", slow))
    assert found.speed.host == pytest.approx(factor)
    assert found.path["name"][0] == "aten::op4"
    own = (found.path["change_ns"] - found.path["machine_ns"]).to_list()
    assert own[0] == pytest.approx(9 * factor * 50_000)
    assert own[1:] == pytest.approx([0] * (len(own) - 1), abs=1_000)  # Python: 2 us in both
    assert found.path["change_ns"].sum() == pytest.approx(found.after_ns - found.before_ns)
    states = {
        path.split(" > ")[-1]: state for path, state in found.calls.select("path", "state").rows()
    }
    assert states.pop("aten::op4") == "slower"
    states.pop("ProfilerStep")
    assert set(states.values()) == {"same"}


def test_operands_of_other_shapes_are_no_slower_machine(tmp_path: Path) -> None:
    lengths = [(name, 10.0 * (number + 1)) for number, name in enumerate(NAMES)]
    before = steps_of(tmp_path / "a", lengths, **{"Input Dims": [[32, 8]]})
    half = [(name, length / 2) for name, length in lengths]
    after = steps_of(tmp_path / "b", half, **{"Input Dims": [[16, 8]]})
    found = nadi.bottlenecks.diff(before, after)
    assert found.speed.is_same
    assert set(found.calls.filter(pl.col("path").str.contains("aten"))["state"]) == {"faster"}


def test_few_operations_say_nothing_about_the_machine(tmp_path: Path) -> None:
    before = steps_of(tmp_path / "a", [(name, 10.0) for name in NAMES[:6]])
    after = steps_of(tmp_path / "b", [(name, 15.0) for name in NAMES[:6]])
    assert nadi.bottlenecks.diff(before, after).speed.is_same


def test_regions_that_are_compiled_now_come_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = steps_of(tmp_path / "a", [("aten::mm", 60.0), ("aten::add", 20.0)])
    region = "Torch-Compiled Region: 0/0"
    after = steps_of(tmp_path / "b", [("aten::mm", 50.0), (region, 10.0), (region, 10.0)])
    found = nadi.bottlenecks.diff(before, after)
    assert found.forms.select("form", "count_before", "count_after").rows() == [
        ("compiled regions", 0.0, 2.0)
    ]
    assert main(["diff", str(before), str(after)]) == 0
    assert capsys.readouterr().out.splitlines()[1] == (
        "  compiled regions: 0 -> 2 a step (20.00 us)"
    )


def kernels_of(folder: Path, launch: str, names: tuple[str, str], length: float) -> Path:
    folder.mkdir()
    pair = PairWriter(folder)
    for number, (operator, name) in enumerate(
        zip(("aten::linear", "aten::add"), names, strict=True)
    ):
        at = 100.0 * number
        pair.op(operator, at, 20)
        pair.event(launch, at + 5, 5, "cuda_runtime", correlation=number + 1)
        pair.event(name, at + 30, length, "kernel", pid=0, tid=7, stream=7, device=0,
                   correlation=number + 1)  # fmt: skip
    pair.write()
    return folder


def test_kernels_of_two_vendors_are_compared_by_operator_and_class(tmp_path: Path) -> None:
    nvidia = kernels_of(tmp_path / "a", "cudaLaunchKernel",
                        ("ampere_sgemm_32x32", "vectorized_elementwise"), 40)  # fmt: skip
    amd = kernels_of(tmp_path / "b", "hipLaunchKernel", ("Cijk_Alik_Bljk", "elementwise_4"), 20)
    found = nadi.bottlenecks.diff(nvidia, amd)
    assert found.vendors == (("NVIDIA",), ("AMD",))
    assert sorted(found.kernels.select("name", "state").rows()) == [
        ("aten::add: elementwise", "faster"), ("aten::linear: matrix multiplication", "faster"),
    ]  # fmt: skip
    assert "launch of a kernel" in found.path["name"].to_list()
    assert found.path["change_ns"].sum() == pytest.approx(found.after_ns - found.before_ns)
    same = nadi.bottlenecks.diff(nvidia, nvidia)
    assert "ampere_sgemm_32x32" in same.kernels["name"].to_list()
