"""``nadi memory place``: what it writes, and how it refuses what cannot be."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest

import nadi
from nadi.cli import main

PLAN = 'model = "gpt3-125m"\ntp = 2\nsequence = 512\nglobal_batch = 2\n'


def run(*arguments: str) -> int:
    return main(["memory", "place", "--system", "dgx-h100", *arguments])


@pytest.fixture
def plan(tmp_path: Path) -> str:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return str(path)


def test_a_plan_is_simulated_and_its_placement_can_be_given_again(
    plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    assert run(plan, "--place", "optimizer=cxl", "-o", str(folder), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["moves"] == ["optimizer"]
    assert found["with_tiers_ns"] > found["without_tiers_ns"]
    assert found == json.loads((folder / "summary.json").read_text())
    tensors = pl.read_csv(folder / "tensors.csv")
    assert set(tensors.filter(tier="cxl")["role"]) == {"optimizer"}
    assert run(plan, "--place", str(folder / "tensors.csv"), "--json") == 0
    assert json.loads(capsys.readouterr().out)["with_tiers_ns"] == found["with_tiers_ns"]
    assert run(plan, "-o", str(folder)) == 2
    assert "exists already" in capsys.readouterr().err


def test_shared_tiers_and_work_in_place(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    times = []
    for more in ([], ["--shared-by", "2"], ["--in-place"]):
        given = [plan, "--place", "weights=cxl", "--bandwidth", "8,64", *more]
        assert run(*given, "--json") == 0
        times.append(json.loads(capsys.readouterr().out))
    assert times[1]["with_tiers_ns"] > times[0]["with_tiers_ns"]
    low, high = times[2]["in_place_interval_ns"]
    assert low <= times[2]["with_tiers_ns"] <= high


def test_latency_and_how_many_ranks_share_a_tier_are_axes_of_the_sweep(
    plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [plan, "--place", "weights=cxl", "--bandwidth", "8,16", "--shared-by", "1,2",
             "--latency", "250ns,5us"]  # fmt: skip
    assert run(*given, "--json", "-o", str(tmp_path / "out")) == 0
    points = {
        (one["shared_by"], one["latency"], one["bandwidth"]): one["ns"]
        for one in json.loads(capsys.readouterr().out)["points"]
    }
    assert len(points) == 8
    for latency in (250.0, 5000.0):
        assert points[2, latency, 16.0] == points[1, latency, 8.0]
        assert points[1, latency, 16.0] < points[1, latency, 8.0] < points[2, latency, 8.0]
    assert all(points[one, 250.0, rate] < slower for (one, at, rate), slower in points.items()
               if at == 5000.0)  # fmt: skip
    assert "2 ranks, 5.000 us" in (tmp_path / "out" / "step.svg").read_text()
    assert run(*given) == 0
    assert "shared by" in capsys.readouterr().out


def test_a_generated_job_is_beside_an_estimate_where_there_is_one(
    plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(plan, "--bandwidth", "1000000", "--latency", "0ns", "--json") == 0
    found = json.loads(capsys.readouterr().out)["estimates"]
    assert found["missing"] is None
    assert [one["role"] for one in found["roles"]] == ["weights", "activations", "optimizer"]
    for one in found["roles"]:  # a tier without limit costs nothing either way
        assert one["simulated"] == pytest.approx(1, abs=1e-3)
        assert one["estimated"] == pytest.approx(1, abs=1e-3)
    assert run(plan, "--bandwidth", "8") == 0
    text = capsys.readouterr().out
    assert "beside an estimate: times as long as without tiers" in text
    Path(plan).write_text(f"{PLAN}dp = 2\nzero = 3\n")
    assert run(plan) == 0
    assert "with ZeRO 3, moves of weights and activations are simulated" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--bandwidth", "0"], "a tier needs a bandwidth"),
        (["--memory", "0"], "a tier needs room"),
        (["--place", "heads=cxl"], "there is no tensor 'heads' in this job"),
        (["--place", "weights=nvme"], "there is no tier 'nvme'; use one of hbm, cxl"),
        (["--place", "weights>cxl"], "it is no rule"),
        (["--place", "weights>much=cxl"], "is not a size"),
        (["--place", "weights.age>1MB=cxl"], "there is no age"),
        (["--place", "none.json"], "none.json"),
        (["--latency", "1us,fast"], "fast"),
        (["--shared-by", "0"], "'0' is no number of ranks"),
        (["--shared-by", "2,4"], "the job has 2 ranks"),
        (["--model", "13b"], "No such option: --model"),
        (["--system", ""], "a job needs one system"),
    ],
)
def test_one_line_says_what_would_do(
    plan: str, given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(plan, *given) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.strip().splitlines()) == 1


def test_a_job_without_operands_and_options_without_a_job_are_refused(
    plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job"
    assert main(["generate", "cases", "-o", str(tmp_path / "cases")]) == 0
    first = next(path for path in sorted((tmp_path / "cases").iterdir()) if path.is_dir())
    capsys.readouterr()
    assert run(str(first)) == 2
    assert not job.exists()
    error = capsys.readouterr().err
    assert str(first) in error
    assert "state no operands" in error
    assert run("--place", "weights=cxl") == 2
    assert "Missing argument 'JOB|PLAN'" in capsys.readouterr().err
    assert main(["memory", "plan", "--shared-by", "1,2"]) == 2
    assert "a search has one value of it" in capsys.readouterr().err


def test_a_system_with_collectives_and_prices_of_its_own(
    plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(plan).write_text(f"{PLAN}sequence_parallel = false\n")
    with nadi.JobBuilder(world_size=2) as swap:
        for number, rank in enumerate(swap.ranks):
            rank.send(1 - number, 1000)
            rank.recv(1 - number, 1000)
    nadi.models.write_job(swap.job, tmp_path / "swap", name="swap")
    system = tmp_path / "system.toml"
    system.write_text(
        f"""
        [network]
        dimensions = [{{topology = "switch", bandwidth = "50 GB/s"}}]
        [compute]
        peak = "300 TFLOP/s"
        time = "roofline"
        [memory]
        bandwidth = "2 TB/s"
        capacity = "80 GB"
        [collectives.custom]
        all_reduce = "{tmp_path}/swap/swap"
        """
    )
    given = ["memory", "place", plan, "--system", str(system), "--place", "weights=cxl",
             "--bandwidth", "8,16"]  # fmt: skip
    assert main([*given, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["points"][0]["ns"] == found["with_tiers_ns"]
    assert found["points"][1]["ns"] < found["with_tiers_ns"]
    assert main([*given, "--in-place"]) == 2
    assert "compute.time: is roofline" in capsys.readouterr().err


def test_a_tensor_larger_than_all_tiers_does_not_fit(
    plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [plan, "--memory", "1MiB", "--capacity", "1MiB", "--place", "optimizer=cxl"]
    assert run(*given) == 1
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"2 ranks on dgx-h100: does not fit: hbm lacks .*; cxl lacks .*", first)
    assert re.fullmatch(r"with room, \S+ ms without tiers, .* times as long", second)
    assert run(*given, "--json") == 1
    assert len(json.loads(capsys.readouterr().out)["lacks"]) == 2


def test_a_recording_has_its_steps_its_warnings_and_what_bounds_it(
    shared_traces: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = str(shared_traces / "gpu_resnet_pair")
    assert run(pair, "--place", "optimizer=cxl") == 0
    printed = capsys.readouterr().out
    first, *lines = printed.splitlines()
    assert first.startswith("1 rank on dgx-h100, 3 steps: ")
    assert "a step" not in printed
    assert "the host bounds the job: moves hide behind it" in printed
    assert main(["simulate", pair, "--system", "dgx-h100"]) == 0
    told = capsys.readouterr().out.splitlines()
    issues = [line for line in told if line.startswith(("info: ", "warning: "))]
    assert len(issues) == 5
    assert lines[-5:] == issues
    assert sum("computations keep the times recorded" in line for line in issues) == 1
    assert f"without tiers, {told[1]}" in lines
