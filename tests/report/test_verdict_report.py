"""The first lines of ``nadi run``: what bounds the window, and what would gain most."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nadi
from nadi.cli import main
from tests.analyze.test_verdict import ALL_REDUCE, run_of, write_kernels
from tests.conftest import PairWriter


def first_lines(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> list[str]:
    assert main(["run", *map(str, arguments)]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_late_rank_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    extra = [("linalg_svd", 10.0)] * 60
    run = run_of(tmp_path / "job", [[("mm", 1000.0)], [("mm", 1000.0), *extra]])
    lines = first_lines(capsys, tmp_path / "job")
    gain = 100 * (run.measured_ns - run.verdict.balanced_ns) / run.measured_ns
    assert lines[0] == (
        "Rank 1 is late by 600.0 us in step 3: it runs 60 linalg_svd that the others do not "
        f"(600.0 us). Balanced ranks would gain {gain:.1f} %."
    )
    assert lines[1].startswith("changes that gain most")
    changes = {line.split("  ")[0]: line.rstrip().rpartition("  ")[2] for line in lines[3:6]}
    assert changes["linalg_svd spread evenly over ranks"] == "balance ^linalg_svd$"


def test_a_late_rank_that_begins_late(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_of(tmp_path / "job", [[("mm", 100.0)]] * 2, since=[0.0, 400.0])
    first = first_lines(capsys, tmp_path / "job")[0]
    assert "Rank 1 is late by 400.0 us in step 3: it begins 400.0 us after the others." in first


def test_kernels(pair: PairWriter, capsys: pytest.CaptureFixture[str]) -> None:
    kernels = [("ampere_sgemm_32x32", 60.0), ("gemv2T", 50.0), ("fmha_forward", 90.0)]
    lines = first_lines(capsys, write_kernels(pair, kernels))
    assert lines[0].startswith("The device bounds the whole trace: kernels are 86.")
    assert "matrix multiplication leads with 47." in lines[0]
    assert lines[0].endswith("most in ampere_sgemm_32x32 (60.00 us).")
    assert lines[3].startswith("matrix multiplication kernels twice as fast")


def test_communication(pair: PairWriter, capsys: pytest.CaptureFixture[str]) -> None:
    lines = first_lines(capsys, write_kernels(pair, [("gemm", 20.0), (ALL_REDUCE, 200.0)]))
    assert lines[0].startswith("Communication bounds the whole trace: ")
    assert lines[1].startswith("200.0 us (")
    assert lines[1].endswith("is exposed: no computation overlaps it.")
    assert any(line.startswith("communication twice as fast") for line in lines)


def test_what_is_not_explained_and_what_to_record(
    pair: PairWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    device = write_kernels(pair, [("gemm", 20.0), ("gemm", 20.0)], delay=5000)
    lines = first_lines(capsys, device, "--window", "0ms:5.1ms")
    assert lines[0].startswith("The recording does not explain 9")
    assert "most at gemm (" in lines[0]
    assert lines[0].endswith("cause: device busy with work begun before the recording.")
    assert lines[1].startswith("To know more: call torch.cuda.synchronize() before the recording")
    window = lines[1].rpartition("--window ")[2].removesuffix(".")
    assert first_lines(capsys, device, "--window", window)[0].startswith("The device bounds")


def test_what_follows_work_begun_before_the_recording(
    pair: PairWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    device = write_kernels(pair, [("gemm", 20.0), ("gemm", 20.0)], delay=5000)
    lines = first_lines(capsys, device)
    assert lines[0].startswith("The device bounds what follows 5.030 ms: kernels are 97.")
    assert lines[1].startswith(
        "The device's work is recorded from 5.030 ms on, though calls launch it"
    )
    window = lines[1].rpartition("--window ")[2].removesuffix(" analyses all.")
    assert first_lines(capsys, device, "--window", window)[0].startswith("The recording does not")


def unexplained_host(pair: PairWriter, *kernels: tuple[str, float], gap: float = 10_000) -> Path:
    """Write a host that launches kernels of some length (us), and goes on after a long gap."""
    for number in range(12):
        pair.op("aten::view", 20 * number, 18)
    ended = 240.0
    for number, (name, dur) in enumerate(kernels, 1):
        pair.op("aten::mm", 220 + 20 * number, 18)
        pair.event("cudaLaunchKernel", 222 + 20 * number, 5, "cuda_runtime", correlation=number)
        ended = max(ended, 230.0 + 20 * number)
        pair.event(name, ended, dur, "kernel", pid=0, tid=7, stream=7, device=0,
                   correlation=number)  # fmt: skip
        ended += dur
    pair.op("aten::last", 300 + gap, 20)
    return pair.write()[1]


def test_a_device_that_is_busy_is_named_where_the_host_is_not_explained(
    pair: PairWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    device = unexplained_host(pair, ("ampere_sgemm", 6_000.0), ("fmha_forward", 3_900.0))
    lines = first_lines(capsys, device)
    assert lines[0] == (
        "The device bounds the whole trace: it is busy for 95.9 %, matrix multiplication leads "
        "with 58.1 %, most in ampere_sgemm (6.000 ms)."
    )
    assert lines[1] == (
        "The recording does not explain another 97.1 %, most before aten::last (10.02 ms); cause: "
        "unknown; meanwhile the device runs ampere_sgemm (5.972 ms)."
    )


def test_a_compiled_graph_is_named_shortly(
    pair: PairWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(4):
        pair.op(f"## Call CompiledFxGraph {'fabcdefgh' * 5} ##", 100 * number, 90)
    (first, *_) = first_lines(capsys, pair.write()[1])
    assert "most in compiled graph fabcdefg (360.0 us)" in first


def test_exposed_communication_is_named_where_the_host_is_not_explained(
    pair: PairWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    device = unexplained_host(pair, (ALL_REDUCE, 6_000.0), ("gemm", 3_900.0))
    first = first_lines(capsys, device)[0]
    assert first == (
        f"Communication bounds the whole trace: 58.1 % is exposed, most in {ALL_REDUCE} (6.000 ms)."
    )


def test_less_than_half_that_is_not_explained_does_not_come_first(
    pair: PairWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(12):
        pair.op(f"aten::op{number % 3}", 20 * number, 18)
    for number in range(2):  # two parts that are explained, each smaller than the gap
        pair.op("aten::long", 240 + 382 * number, 380)
    pair.op("aten::last", 2_300, 700)
    lines = first_lines(capsys, pair.write()[1])
    assert lines[0].startswith("The host bounds the whole trace: 56.7 %")
    assert lines[1] == (
        "The recording does not explain another 43.3 %, most before aten::last (1.298 ms); "
        "cause: unknown."
    )


def test_long_gaps_that_repeat_are_of_the_host(
    pair: PairWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in range(3):
        for number in range(12):
            pair.op("aten::view", 8_000 * step + 20 * number, 18)
        pair.op("aten::last", 8_000 * step + 5_240, 700)
    lines = first_lines(capsys, pair.write()[1])
    assert lines[0] == (
        "The host bounds the whole trace: 12.8 % of the critical path, in operators on the CPU, "
        "and 87.2 % in long gaps between operations; most before aten::last (15.01 ms), in Python "
        "or a wait that the recording does not name."
    )
    assert lines[1].startswith("To know more: record with with_stack=True")
    verdict = nadi.run(pair.write()[1]).verdict
    assert verdict.unnamed_ns == verdict.unexplained_ns == 3 * 5_002_000 + 2 * 2_060_000


@pytest.mark.parametrize(("wait", "said"), [(800, ""), (300, ", in operators on the CPU")])
def test_a_host_that_mostly_waits_is_not_in_operators(
    pair: PairWriter, capsys: pytest.CaptureFixture[str], wait: int, said: str
) -> None:
    pair.op("aten::mm", 0, (1_000 - wait) / 4)
    pair.op("aten::a", (1_000 - wait) / 4, (1_000 - wait) / 4)
    pair.op("aten::b", (1_000 - wait) / 2, (1_000 - wait) / 4)
    pair.op("aten::c", 3 * (1_000 - wait) / 4, (1_000 - wait) / 4)
    pair.op("wait in queue.py(154): Queue.get", 1_000 - wait, wait)
    first = first_lines(capsys, pair.write()[1])[0]
    assert first.startswith(
        f"The host bounds the whole trace: 100.0 % of the critical path{said}; "
        "most in a wait in queue.py(154): Queue.get ("
    )


def test_what_follows_is_named_where_most_lies_in_steps_themselves(
    pair: PairWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in range(3):
        at = 10_000.0 * step
        pair.event(f"ProfilerStep#{step + 1}", at, 10_000, "user_annotation")
        for number in range(10):
            pair.op("aten::b" if number % 2 else "aten::a", at + 1_000 * number + 400, 300)
    lines = first_lines(capsys, pair.write()[1])
    assert lines[0] == (
        "The host bounds steps 1 to 3: 100.0 % of the critical path, most of it between operators "
        "on the CPU; most before aten::b (10.50 ms), in Python or a wait that the recording does "
        "not name."
    )


def test_what_follows_is_named_where_most_lies_in_no_range(
    pair: PairWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(20):
        pair.op("aten::b" if number % 2 else "aten::a", 1_000 * number, 200 + number % 3)
    lines = first_lines(capsys, pair.write()[1])
    assert "; most before aten::b (" in lines[0]
    assert "no operator" not in lines[0]


@pytest.mark.parametrize(("ready", "is_first"), [([600, 50], True), ([500, 0], False)])
def test_other_threads_bound_steps_whose_thread_is_ready_for_most_of_them(
    pair: PairWriter, capsys: pytest.CaptureFixture[str], ready: list[int], *, is_first: bool
) -> None:
    pair.device_keys["nadi"] = {"timed_ns": [500, 500], "ready_ns": ready}
    for step in range(2):
        pair.event(f"ProfilerStep#{step + 1}", 100 * step, 100, "user_annotation")
        pair.op("aten::mm", 100 * step + 10, 80)
    first, second, *_ = first_lines(capsys, pair.write()[1])
    others = (
        "Other threads bound steps 1 to 2: they have the processors for 65.0 % of the time, while "
        "the thread of the steps is ready to run; record where nothing else runs."
    )
    assert (first == others) == is_first
    assert (second if is_first else first).startswith("The host bounds steps 1 to 2: 100.0 %")


def test_what_another_thread_does_meanwhile(
    pair: PairWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(12):
        pair.op("aten::view", 20 * number, 18)
    pair.event("aten::decode", 50, 8_000, tid=5)
    pair.op("aten::last", 9_000, 700)
    lines = first_lines(capsys, pair.write()[1])
    assert lines[0].startswith("The recording does not explain 9")
    assert lines[0].endswith("; meanwhile another thread runs aten::decode (7.812 ms).")


def test_an_operation_is_named_that_takes_longer_than_each_place_between_operations(
    pair: PairWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(10):
        pair.op(f"aten::op{number}", 10 * number, 8 if number else 9)
    first = first_lines(capsys, pair.write()[1])[0]
    assert first.endswith(
        "; most in aten::op0 (9.000 us); 17.3 % of the path lies between operations."
    )


def test_work_that_runs_twice_at_once_counts_once(
    pair: PairWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    pair.op("ProfilerStep#3", 0, 9_000, cat="user_annotation")
    for thread in (5, 6):
        pair.event("gloo:all_reduce", 1_000, 7_000, "user_annotation", tid=thread)
    for number in range(9):
        pair.op("aten::view", 10 * number, 8)
    pair.op("aten::last", 8_900, 50)
    line = next(one for one in first_lines(capsys, pair.write()[1]) if "meanwhile" in one)
    assert line.endswith("; meanwhile another thread runs gloo:all_reduce (7.000 ms).")


def test_rows_that_are_zero_are_left_out(
    pair: PairWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    pair.op("aten::mm", 0, 10)
    pair.op("aten::add", 10, 10)
    printed = "\n".join(first_lines(capsys, *pair.write()))
    assert "The host bounds the whole trace: 100.0 % of the critical path" in printed
    for absent in ("kernel ", "launch ", "exposed communication", "unexplained", " 0 ns"):
        assert absent not in printed


def test_json_holds_the_verdict_as_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(tmp_path / "job", [[("mm", 100.0)], [("mm", 100.0), ("svd", 50.0)]])
    assert main(["run", str(tmp_path / "job"), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert next(iter(summary)) == "verdict"
    verdict = summary["verdict"]
    assert (verdict["bound_by"], verdict["late"]["rank"]) == ("straggler", 1)
    excess = verdict["late"]["excess"]
    assert (excess["reason"], excess["time_ns"]) == ("more operations", 50_000)
    assert excess["operation"] == {
        "name": "svd", "count": 1, "others_count": 0, "time_ns": 50_000, "others_ns": 0
    }  # fmt: skip
    assert verdict["late"]["repeated"] == {
        "repeats": 1, "times": 1, "of_steps": False, "chance": 1.0
    }  # fmt: skip
    assert [row["change"] for row in summary["best_changes"]] == [
        str(one.change) for one in run.best_changes
    ]
