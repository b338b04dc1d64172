"""The range that the verdict names: the largest, if it is more than any operation."""

from __future__ import annotations

from pathlib import Path

import pytest

import nadi
from nadi.bottlenecks.steps.result import verdict_in_words
from tests.conftest import PairWriter

Ranges = list[tuple[str, list[tuple[str, float]]]]


def step_of(
    folder: Path, ranges: Ranges, category: str = "user_annotation"
) -> nadi.bottlenecks.Run:
    """Record a step of ranges with operations in them, in us, one after the other."""
    writer = PairWriter(folder)
    whole = sum(length for _, ops in ranges for _, length in ops)
    step = writer.op("ProfilerStep#1", 0, whole, cat="user_annotation")
    at = 0.0
    for name, ops in ranges:
        length = sum(one for _, one in ops)
        around = writer.op(name, at, length, cat=category, parent=step)
        for operation, one in ops:
            if operation:
                writer.op(operation, at, one, parent=around)
            at += one
    return nadi.run(*writer.write())


def test_a_range_with_more_time_than_any_operation_is_named(tmp_path: Path) -> None:
    run = step_of(tmp_path, [
        ("forward", [("aten::mm", 300)]),
        ("Optimizer.step#Adam.step", [("aten::lerp_", 200), ("aten::sqrt", 150), ("", 50)]),
    ])  # fmt: skip
    assert (
        "most in Optimizer.step#Adam.step (57.1 %), of that most in aten::lerp_ (200.0 us)"
        in (verdict_in_words(run)[0])
    )
    assert run.verdict.leading.range_ns == 400_000


def test_an_operation_with_more_time_is_named_alone(tmp_path: Path) -> None:
    run = step_of(tmp_path, [
        ("a", [("aten::mm", 300)]), ("b", [("aten::mm", 300)]), ("c", [("aten::add", 350)]),
    ])  # fmt: skip
    assert "most in aten::mm (600.0 us)" in verdict_in_words(run)[0]
    assert run.verdict.leading.range_name == ""


@pytest.mark.parametrize("own", [320, 500])
def test_a_range_that_is_mostly_its_own_time_is_an_operation(tmp_path: Path, own: float) -> None:
    run = step_of(tmp_path, [
        ("upload", [("", own), *[("aten::copy_", 75)] * 4]), ("train", [("aten::mm", 290)]),
    ])  # fmt: skip
    assert run.verdict.leading.name == "upload"
    assert run.verdict.leading.range_name == ""


def test_the_whole_step_is_no_answer_and_what_fills_a_range_is_a_better_one(
    tmp_path: Path,
) -> None:
    """``train`` is all of the step; ``forward`` is 96 % ``blocks``, which has three parts."""
    writer = PairWriter(tmp_path)
    step = writer.op("ProfilerStep#1", 0, 1000, cat="user_annotation")
    train = writer.op("train", 0, 1000, cat="user_annotation", parent=step)
    forward = writer.op("forward", 0, 500, cat="user_annotation", parent=train)
    blocks = writer.op("blocks", 0, 480, cat="user_annotation", parent=forward)
    for number, name in enumerate(("aten::mm", "aten::add", "aten::mul")):
        writer.op(name, 160 * number, 160, parent=blocks)
    writer.op("aten::sum", 480, 20, parent=forward)
    for number in range(5):
        writer.op(f"aten::op_{number}", 500 + 100 * number, 100, parent=train)
    leading = nadi.run(*writer.write()).verdict.leading
    assert (leading.range_name, leading.range_ns, leading.name) == ("blocks", 480_000, "aten::add")


def test_modules_of_a_class_are_named_together_instead_of_the_whole_model(tmp_path: Path) -> None:
    """The model is 80 % of the step, its layers 60 %, and attention in these 45 %."""
    writer = PairWriter(tmp_path)
    step = writer.op("ProfilerStep#1", 0, 1000, cat="user_annotation")
    model = writer.op("nn.Module: Model_0", 0, 800, cat="python_function", parent=step)
    for layer in range(6):
        at = 100 * layer
        around = writer.op(f"nn.Module: Layer_{layer}", at, 100, cat="python_function",
                           parent=model)  # fmt: skip
        attention = writer.op(f"nn.Module: Attention_{layer}", at, 75, cat="python_function",
                              parent=around)  # fmt: skip
        for number, name in enumerate(("aten::bmm", "aten::mm", "aten::softmax")):
            writer.op(name, at + 25 * number, 25, parent=attention)
        writer.op("aten::add", at + 75, 25, parent=around)
    writer.op("aten::embedding", 600, 200, parent=model)
    run = nadi.run(*writer.write())
    leading = run.verdict.leading
    assert (leading.range_name, leading.range_ns) == ("nn.Module: Attention", 450_000)
    assert (
        "most in nn.Module: Attention (45.0 %), of that most in aten::"
        in (verdict_in_words(run)[0])
    )


@pytest.mark.parametrize("earlier", [False, True])
def test_one_launch_with_most_of_the_time_is_named(tmp_path: Path, *, earlier: bool) -> None:
    writer = PairWriter(tmp_path)
    writer.op("ProfilerStep#1", 0, 1000, cat="user_annotation")
    for number in range(12):
        start, lasts = (600, 340) if number == 11 else (50 * number, 10)
        kernel = "gemm" if number == 11 or (earlier and number == 3) else "add"
        writer.event("cudaLaunchKernel", start, lasts, "cuda_runtime", correlation=number + 1)
        writer.event(kernel, start + lasts + 5, 10, "kernel", pid=0, tid=7, stream=7, device=0,
                     correlation=number + 1)  # fmt: skip
    run = nadi.run(*writer.write())
    assert run.verdict.leading.name == "cudaLaunchKernel"
    first = "One cudaLaunchKernel of 12 takes 340.0 us of that (75.6 %)"
    said = verdict_in_words(run)[1]
    if earlier:
        assert said == f"{first}; record more steps to see whether that repeats."
    else:
        assert said.startswith(f"{first}: the first launch of gemm in the recording.")


def test_equal_launches_have_no_one_that_stands_out(tmp_path: Path) -> None:
    writer = PairWriter(tmp_path)
    for number in range(12):
        writer.op("aten::mm", 100 * number, 90)
    assert nadi.run(*writer.write()).verdict.leading.one_off is None


def test_the_backward_of_a_range_counts_and_is_told_apart(tmp_path: Path) -> None:
    """``score`` has more time in its calls, and ``penalty`` with its backward."""
    writer = PairWriter(tmp_path)
    step = writer.op("ProfilerStep#1", 0, 1000, cat="user_annotation")
    for number, (name, at, calls, later) in enumerate((
        ("train.py(3): score", 0, 300, 30), ("train.py(9): penalty", 300, 200, 400),
    )):  # fmt: skip
        writer.event(name, at, calls, "python_function")
        number_of = {"Sequence number": 2 * number}
        writer.op("aten::mm", at, calls / 2, parent=step, **number_of)
        writer.op("aten::sum", at + calls / 2, calls / 2, parent=step,
                  **{"Sequence number": 2 * number + 1})  # fmt: skip
        writer.op("MmBackward0", 500 + 50 * number, later, parent=step, **number_of,
                  **{"Fwd thread id": 1})  # fmt: skip
    run = nadi.run(*writer.write(), by="module")
    leading = run.verdict.leading
    named = leading.range_name, leading.range_ns, leading.called_ns
    assert named == ("train.py(9): penalty", 600_000, 200_000)
    assert run.modules is not None
    times = dict(run.modules.table.select("module", "critical").iter_rows())
    assert times["train.py(9): penalty"] == leading.range_ns
    first = verdict_in_words(run)[0]
    assert "most in train.py(9): penalty (60.0 % with its backward, 20.0 % without)" in first
