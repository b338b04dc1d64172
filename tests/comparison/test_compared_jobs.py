"""Jobs compared: a job equals itself, and what is changed is what differs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nadi
from nadi.cli import main
from nadi.sharing import columns_of_job, independent_sample, job_of_columns
from nadi.sharing.similarity.verbatim import verbatim_shares
from nadi.sharing.synthesis.job_columns import JobColumns, RankColumns
from nadi.sharing.synthesis.storage_lives import StorageLives
from nadi.trace import validate_trace


@pytest.fixture(scope="module")
def job() -> nadi.Job:
    made = nadi.llm_job("gpt3-125m", tp=2, pp=2, global_batch=2)
    assert isinstance(made, nadi.Job)
    return made


def test_a_job_equals_itself(job: nadi.Job) -> None:
    found = nadi.compare(job, job, systems="dgx-h100", same=job)
    assert len(found.measures) > 8
    assert {(one.distance, one.floor) for one in found.measures} == {(0.0, 0.0)}
    assert all(one.is_near for one in found.measures)
    assert found["operation sequences"].ceiling > 0.5


def test_columns_written_as_traces_are_the_job(job: nadi.Job) -> None:
    again = job_of_columns(columns_of_job(job))
    found = nadi.compare(job, again, systems="dgx-h100")
    assert max(one.distance for one in found.measures) == 0
    assert not any(validate_trace(trace).height for trace in again.traces)


def test_twice_the_durations_are_another_step_time(demo_folder: Path) -> None:
    job = nadi.load_job(demo_folder)
    columns = columns_of_job(job)
    slow = tuple(rank._replace(duration=2 * rank.duration) for rank in columns.ranks)
    found = nadi.compare(job, job_of_columns(columns._replace(ranks=slow)), systems="dgx-h100")
    assert found["operation mix"].distance == 0
    assert found["durations"].distance == pytest.approx(1 / 3, abs=0.02)
    ((a, b),) = [times for key, times in found.makespan_ns.items() if key == ("dgx-h100", "")]
    assert b > 1.5 * a
    with pytest.warns(DeprecationWarning, match="makespan_ns"):
        assert found.step_ns == found.makespan_ns


def test_the_naive_guess_runs_and_is_the_same_each_time(job: nadi.Job) -> None:
    columns = columns_of_job(job)
    guess = independent_sample(columns, seed=3)
    assert nadi.simulate(job_of_columns(guess), nadi.load_system("dgx-h100", 4)).makespan > 0
    again = independent_sample(columns, seed=3)
    for one, other in zip(guess.ranks, again.ranks, strict=True):
        assert (one.label == other.label).all()
        assert (one.src < one.dst).all()


def test_systems_that_do_not_fit_are_refused(job: nadi.Job) -> None:
    large = nadi.llm_job("gpt3-125m", dp=12, global_batch=12)
    with pytest.raises(nadi.NadiError, match="12 ranks"):
        nadi.compare(job, large, systems="dgx-h100")


def test_the_command_prints_and_refuses(
    job: nadi.Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nadi.models.write_job(job, tmp_path / "a")
    place = str(tmp_path / "a")
    assert main(["similarity", place, place, "--system", "dgx-h100"]) == 0
    assert "operation mix" in capsys.readouterr().out
    assert main(["similarity", place, str(tmp_path / "none"), "--system", "dgx-h100"]) == 2
    assert "none" in capsys.readouterr().err


def test_what_stands_in_another_job_is_counted() -> None:
    """Runs of a lane are found where they stand, and an operation that differs ends them."""
    labels = [f"op {number}" for number in range(60)]
    one = _lane(list(range(60)), labels)
    other = _lane([*range(40), 59, *range(41, 60)], labels)
    assert verbatim_shares(one, one) == {
        "longest run": 1.0, "unseen runs of 8": 0.0, "unseen runs of 32": 0.0,
        "nearest sequence": 0.0,
    }  # fmt: skip
    found = verbatim_shares(one, other)
    assert found["longest run"] == 40 / 60
    assert found["unseen runs of 8"] == 8 / 53
    assert found["unseen runs of 32"] == 20 / 29
    assert found["nearest sequence"] == 1 - 45 / 61
    larger = other._replace(ranks=(other.ranks[0]._replace(bytes=np.full(60, 7)),))
    assert verbatim_shares(one, larger)["longest run"] == 0


def _lane(label: list[int], labels: list[str]) -> JobColumns:
    size, minus = len(label), np.full(len(label), -1)
    numbers = {
        name: minus for name in RankColumns._fields
        if name not in ("label", "shape", "is_cpu", "src", "dst", "lives")
    }  # fmt: skip
    nothing = np.zeros(0, dtype=np.int64)
    rank = RankColumns(
        label=np.array(label), shape=np.full((size, 4), -1), is_cpu=minus < 0, src=nothing,
        dst=nothing, lives=StorageLives.none(), **numbers,
    )  # fmt: skip
    return JobColumns((rank,), tuple(labels), ())
