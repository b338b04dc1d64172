"""What does not belong together is refused: other world sizes, other times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nadi
from nadi.cli import main


def device(folder: Path, rank: int, size: int, since: float, collective: bool = True) -> Path:
    """Write a rank of 100 us that computes and, in the middle, takes part in an all_reduce."""
    folder.mkdir(exist_ok=True)
    names = ["gemm", "ncclDevKernel_AllReduce_Sum_f32_RING_LL" if collective else "relu", "gemm"]
    events = [
        {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": since + at, "dur": 20,
         "args": {"stream": 7, "device": 0, "Process Group Name": "0"}}
        for name, at in zip(names, (0, 40, 80), strict=True)
    ]  # fmt: skip
    path = folder / f"device_{rank}.json"
    told = {"distributedInfo": {"rank": rank, "world_size": size}} if size else {}
    path.write_text(json.dumps({"schemaVersion": 1, **told, "traceEvents": events}))
    return path


@pytest.mark.parametrize("command", ["run", "waits", "what-if", "analyze"])
def test_other_world_sizes_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    places = [str(device(tmp_path, rank, size, 0)) for rank, size in ((0, 2), (1, 4))]
    arguments = {
        "analyze": ["analyze", "annotations", *places],
        "what-if": ["what-if", str(tmp_path)],
    }
    if command == "info":  # describes each file by itself
        assert main(["info", *places]) == 0
        return
    assert main(arguments.get(command, [command, *places])) == 2
    error = capsys.readouterr().err
    assert "different world sizes" in error
    assert "rank 0 of 2, rank 1 of 4" in error


@pytest.mark.parametrize("sizes", [(2, 2), (0, 0), (2, 0)])
def test_ranks_that_are_apart_are_refused(tmp_path: Path, sizes: tuple[int, int]) -> None:
    for rank, size in enumerate(sizes):
        device(tmp_path, rank, size, 1e9 * rank, collective=False)
    with pytest.raises(nadi.errors.PairError, match=r"rank 1 begins 1000\.0 s after rank 0 ended"):
        nadi.run(tmp_path)


def test_clocks_that_disagree_are_aligned_where_ranks_meet(tmp_path: Path) -> None:
    for rank in range(2):
        device(tmp_path, rank, 2, 1e9 * rank)
    run = nadi.run(tmp_path)
    assert run.job.num_collectives == 1
    assert run.measured_ns <= 200_000


def test_ranks_that_overlap_without_meeting_are_one_job(tmp_path: Path) -> None:
    for rank in range(2):
        device(tmp_path, rank, 2, 100 * rank, collective=False)  # one begins as the other ends
    assert nadi.run(tmp_path).measured_ns == 200_000


def test_of_several_runs_the_folders_are_named(tmp_path: Path) -> None:
    for run in ("before", "after"):
        for rank in range(2):
            device(tmp_path / run, rank, 2, 0)
    with pytest.raises(nadi.errors.PairError) as caught:
        nadi.run(tmp_path)
    what = "2 device traces have rank 0, each in a folder of its own: after, before"
    assert what in str(caught.value)
    assert "nadi diff" in str(caught.value)


def test_of_a_folder_of_different_folders_one_is_named(tmp_path: Path) -> None:
    device(tmp_path / "after", 0, 1, 0)
    device(tmp_path / "before", 0, 1, 0).rename(tmp_path / "before" / "other.json")
    with pytest.raises(nadi.errors.InputError, match=r"such as .*after$"):
        nadi.run(tmp_path)
