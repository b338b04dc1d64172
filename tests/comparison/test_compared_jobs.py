"""Jobs compared: a job equals itself, and what is changed is what differs."""

from __future__ import annotations

from pathlib import Path

import pytest

import nadi
from nadi.cli import main
from nadi.sharing import columns_of_job, independent_sample, job_of_columns
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
    ((a, b),) = [times for key, times in found.step_ns.items() if key == ("dgx-h100", "")]
    assert b > 1.5 * a


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
