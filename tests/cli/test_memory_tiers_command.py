"""``nadi simulate`` on a job whose nodes name memory tiers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nadi
from nadi.cli import main

SYSTEM = ["--system", "dgx-h100-cxl"]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    with nadi.models.JobBuilder(4) as builder:
        for rank in builder.ranks:
            weights = rank.unordered.load("weights", "200 MB", tier="cxl")
            layer = rank.compute("layer", duration="1 ms", after=weights)
            rank.unordered.store("gradients", "100 MB", tier="dram", after=layer)
    nadi.models.write_job(builder.job, tmp_path / "job", name="layers")
    return tmp_path / "job"


def run(*words: str | Path) -> None:
    assert main([str(word) for word in words]) == 0


def test_tiers_and_what_waits_for_them_are_printed(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("simulate", job, *SYSTEM, "--what-if", "memory pcie.bandwidth 2x")
    printed = capsys.readouterr().out
    assert "memory tiers" in printed
    for words in (["cxl", "762.9 MiB"], ["dram", "381.5 MiB"], ["layer", "cxl", "4"],
                  ["memory pcie.bandwidth 2x"]):  # fmt: skip
        assert any(all(word in line for word in words) for line in printed.splitlines()), words


def test_all_of_it_is_in_json_and_in_a_saved_result(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "done.nadi"
    run("simulate", job, *SYSTEM, "-o", saved, "--json", "--what-if", "memory cxl.latency 0ns")
    data = json.loads(capsys.readouterr().out)
    assert {row["tier"]: row["bytes_read"] for row in data["memory_tiers"]} == {
        "cxl": 800_000_000, "dram": 0,
    }  # fmt: skip
    assert sum(row["bytes_written"] for row in data["memory_tiers_over_time"]) == 400_000_000
    assert [row["name"] for row in data["memory_waits"]] == ["layer"]
    (changed,) = data["what_if"]
    assert changed["makespan_ns"] + changed["gain_ns"] == data["makespan_ns"]
    assert changed["gain_ns"] == 600
    read = nadi.simulation.read_simulation(saved)
    assert read.tier_traffic is not None
    assert read.tier_traffic["bytes_read"].sum() == 800_000_000
    assert read.tier_use is not None
    assert read.tier_waits is not None
    assert read.tier_waits["waiting"].min() > 0


def test_without_tiers_nothing_of_them_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with nadi.models.JobBuilder(1) as builder:
        builder.ranks[0].compute("layer", duration="1 ms")
    nadi.models.write_job(builder.job, tmp_path / "job", name="plain")
    run("simulate", tmp_path / "job", *SYSTEM)
    assert "tier" not in capsys.readouterr().out
    run("simulate", tmp_path / "job", *SYSTEM, "--json")
    assert json.loads(capsys.readouterr().out)["memory_tiers"] is None


def test_several_jobs_share_memory_and_are_asked_what_other_memory_would_do(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = ("memory cxl.bandwidth 0.25x", "memory cxl.bandwidth 1x")
    asked = [word for change in changes for word in ("--what-if", change)]
    run("simulate", job, job, *SYSTEM, *asked, "--json")
    data = json.loads(capsys.readouterr().out)
    slower, same = data["what_if"]
    assert slower["gain_ns"] < 0 == same["gain_ns"]
    assert slower["makespan_ns"] + slower["gain_ns"] == data["makespan_ns"]
    both = [row for row in data["links"] if row["link"] == "cxl.ranks0-7.read"]
    assert [row["bytes"] for row in both] == [1_600_000_000]
    assert set(both[0]["users"]) == {"job: loads from cxl", "job 2: loads from cxl"}
    run("simulate", job, job, *SYSTEM, *asked)
    printed = capsys.readouterr().out
    assert "with other memory" in printed
    assert "loads from cxl" in printed
    assert main(["simulate", str(job), str(job), *SYSTEM, "--what-if", "memory hbf.read 2x"]) == 2
    error = capsys.readouterr().err
    assert "no memory tier or path 'hbf'" in error
    assert len(error.strip().splitlines()) == 1


def test_what_operations_that_take_less_time_would_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with nadi.models.JobBuilder(2) as builder:
        for rank in builder.ranks:
            rank.compute(
                "optimizer", duration="2 ms", after=[rank.compute("layer", duration="4 ms")]
            )
    job = tmp_path / "job"
    nadi.models.write_job(builder.job, job)
    small = tmp_path / "small.nadi"
    run("fold", job, "-o", small)
    capsys.readouterr()
    for given in (job, small):
        run("simulate", given, *SYSTEM, "--what-if", "scale layer 0.5", "--json")
        (changed,) = json.loads(capsys.readouterr().out)["what_if"]
        assert changed == {
            "change": "scale layer 0.5", "makespan_ns": 4_000_000, "gain_ns": 2_000_000,
        }  # fmt: skip
    run("simulate", small, *SYSTEM, "--what-if", "scale layer 0.5")
    assert "after changes" in capsys.readouterr().out
    for text, words in (("zoom layer 2", "memory NAME.KEY VALUE"), ("scale head 2", "'head' match"),
                        ("", "is not a known change")):  # fmt: skip
        assert main(["simulate", str(small), *SYSTEM, "--what-if", text]) == 2
        error = capsys.readouterr().err
        assert words in error
        assert len(error.strip().splitlines()) == 1
