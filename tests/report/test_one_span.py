"""What a run says of spans and causes: which time a table is of, and what is inferred."""

from __future__ import annotations

from pathlib import Path

import pytest

import nadi
from nadi.bottlenecks.steps.result import verdict_in_words
from nadi.cli import main
from tests.conftest import PairWriter


def served(pair: PairWriter, kernel_us: float) -> Path:
    """Write a step of a serving engine whose kernel starts some time after its launch."""
    pair.op("step[DECODE bs=32]", 0, 100, cat="user_annotation")
    pair.event("cudaLaunchKernel", 10, 5, "cuda_runtime", correlation=1)
    pair.event("gemm", kernel_us, 500, "kernel", pid=0, tid=7, stream=7, device=0, correlation=1)
    return pair.write()[1]


def test_steps_of_engines_say_how_long_they_are_where_the_rest_is_about_a_part(
    pair: PairWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(served(pair, 4_000))]) == 0
    said = capsys.readouterr().out
    assert (
        "by kind, from their marks on (4.500 ms); all else is about what follows 4.000 ms"
    ) in said
    assert "The device's work is recorded from 4.000 ms on" in said
    assert "probably" in said


def test_steps_of_engines_need_no_such_words_where_all_is_about_them(
    pair: PairWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(served(pair, 20))]) == 0
    assert "steps of the serving engine by kind\n" in capsys.readouterr().out


def test_no_change_that_gains_is_said_with_what_bounds_the_window(
    pair: PairWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    """The kernel starts after 20 ms for no recorded reason, whatever else is faster."""
    pair.op("aten::mm", 0, 100)
    pair.event("cudaLaunchKernel", 10, 5, "cuda_runtime", correlation=1)
    pair.event("gemm", 20_000, 5, "kernel", pid=0, tid=7, stream=7, device=0, correlation=1)
    device = pair.write()[1]
    assert main(["run", "--window", "0ms:20.005ms", str(device)]) == 0
    said = capsys.readouterr().out
    assert "no change of those tried gains 0.5 % or more; with all operations twice as fast: " in (
        said
    )
    assert "twice as fast: time of the window 2" in said
    assert "bound by gemm (unexplained)" in said


@pytest.mark.parametrize("name", ["void strange_work()", "ampere_sgemm_128"])
def test_the_leading_class_of_kernels_is_a_sentence(pair: PairWriter, name: str) -> None:
    pair.op("aten::mm", 0, 10)
    pair.event("cudaLaunchKernel", 1, 5, "cuda_runtime", correlation=1)
    pair.event(name, 8, 500, "kernel", pid=0, tid=7, stream=7, device=0, correlation=1)
    said = verdict_in_words(nadi.run(*pair.write()))[0]
    leads = "matrix multiplication leads" if "gemm" in name else "kernels of no known class lead"
    assert f"critical path, {leads} with 9" in said


def test_what_outlasts_a_call_of_communication_does_not_communicate_nor_do_its_copies(
    pair: PairWriter,
) -> None:
    """An asynchronous range begins in the call, and the forward runs before that ends."""
    call = pair.op("c10d::alltoall_base_", 0, 50)
    pair.op("aten::_copy_from", 5, 20, parent=call)
    pair.op("c10d::backend", 26, 4, parent=call)
    pair.event("hccl:all_to_all", 30, 900, "user_annotation")
    pair.op("aten::mm", 100, 300)
    pair.event("cudaLaunchKernel", 110, 5, "cuda_runtime", correlation=1)
    pair.event("gemm", 120, 50, "kernel", pid=0, tid=7, stream=7, device=0, correlation=1)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    found = dict(zip(graph.op_names, graph.communicates.tolist(), strict=True))
    assert found == {
        "c10d::alltoall_base_": True, "aten::_copy_from": False, "c10d::backend": True,
        "hccl:all_to_all": False, "aten::mm": False, "cudaLaunchKernel": False, "gemm": False,
    }  # fmt: skip


def test_a_scale_of_what_is_in_a_range_says_what_it_leaves_out(
    pair: PairWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    """The loader takes 100 us, of which 10 are of an operation that it calls."""
    loader = pair.op("enumerate(DataLoader)", 0, 100, cat="user_annotation")
    pair.op("aten::stack", 20, 10, parent=loader)
    pair.op("aten::mm", 100, 100)
    recording = str(pair.write()[1])
    assert main(["what-if", recording, "scale in=DataLoader 0.5"]) == 0
    said = capsys.readouterr().out
    assert "in=DataLoader selects what is called there (10.00 us of 100.0 us on threads)" in said
    assert "'scale DataLoader' scales all of it, 'remove wait in=DataLoader' removes its" in said
    assert (
        main(["what-if", recording, "scale DataLoader 0.5", "scale aten::stack in=Data 0.5"]) == 0
    )
    assert "selects what is called there" not in capsys.readouterr().out
