"""`nadi simulate` of several jobs, and the links that it prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nadi
from nadi.cli import main
from tests.simulator.cases import collective, trace_of
from tests.simulator.test_shared_transfers import no_jobs, sends, traces_of

SYSTEM = """
[[network.dimensions]]
topology = "switch"
size = 4
bandwidth = "100 GB/s"

[[network.dimensions]]
topology = "switch"
bandwidth = "10 GB/s"

[[network.fabrics]]
kind = "switch"
name = "nvlink"
ranks = 4
bandwidth = "100 GB/s"

[[network.fabrics]]
kind = "fat-tree"
name = "infiniband"
adapters = 4
bandwidth = "10 GB/s"
leaf = 4
oversubscription = 4
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.toml").write_text(SYSTEM)
    for name, ranks in (("a", 2), ("b", 2)):
        (tmp_path / name).mkdir()
        nodes = no_jobs(ranks)
        sends(nodes, 0, 1, 10_000_000)
        for rank, trace in enumerate(traces_of(nodes)):
            nadi.write(trace, tmp_path / name / f"work.{rank}.et")
    return tmp_path


def run(capfd: pytest.CaptureFixture[str], folder: Path, *options: str) -> tuple[int, str, str]:
    code = main(["simulate", *options, "--system", str(folder / "mine.toml")])
    captured = capfd.readouterr()
    return code, captured.out, captured.err


def test_jobs_and_the_links_they_share_are_printed(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    a, b = str(folder / "a"), str(folder / "b")
    options = (a, b, "--on", "0,4", "--on", "1,5")
    code, out, err = run(capfd, folder, *options)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    begin = lines.index("jobs")
    table = [line.split() for line in lines[begin + 1 : begin + 4]]
    assert table[0] == ["job", "ranks", "finish", "alone", "slowdown"]
    assert table[1] == ["a", "0,4", "2.000", "ms", "1.000", "ms", "2.000"]
    assert table[2] == ["b", "1,5", "2.000", "ms", "1.000", "ms", "2.000"]
    (up,) = [line for line in lines if line.startswith("infiniband.leaf0.up.spine0")]
    assert "100.0 %" in up
    assert up.rstrip().endswith("a: messages 50.0 %, b: messages 50.0 %")
    code, out, _ = run(capfd, folder, *options, "--json")
    found = json.loads(out)
    assert code == 0
    assert [job["slowdown"] for job in found["jobs"]] == [2, 2]
    assert found["jobs"][1]["ranks"] == [1, 5]
    (link,) = [one for one in found["links"] if one["link"] == "infiniband.leaf0.up.spine0"]
    assert (link["full_ns"], link["utilization"]) == (2_000_000, 1)
    assert link["users"] == ["a: messages", "b: messages"]


def test_one_job_prints_links_and_no_jobs(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capfd, folder, str(folder / "a"))
    assert code == 0
    assert "nvlink." in out
    assert "jobs" not in out
    code, out, _ = run(capfd, folder, str(folder / "a"), "--json")
    assert json.loads(out)["jobs"] is None


def test_the_machine_is_as_large_as_all_jobs_need(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    a, b = str(folder / "a"), str(folder / "b")
    for options, ranks in (((a, b), 4), ((a, b, a), 8), ((a, "--on", "0,9"), 12)):
        code, out, _ = run(capfd, folder, *options, "--json")
        assert code == 0
        assert json.loads(out)["ranks"] == ranks
    names = [job["job"] for job in json.loads(run(capfd, folder, a, b, a, "--json")[1])["jobs"]]
    assert names == ["a", "b", "a 2"]


@pytest.mark.parametrize(("given", "told"), [
    (("--on", "0-1"), "lists of ranks: 1, jobs: 2"),
    (("--on", "0-1", "--on", "x"), "it must be ranks"),
    (("--on", "0-1", "--on", "3-2"), "it must be ranks"),
    (("--on", "0-1", "--on", ""), "it must be ranks"),
    (("--on", "0-1", "--on", "1-2"), "rank 1 is no rank of its own"),
    (("--on", "0-1", "--on", "2"), "it has 2 ranks, and is to run on 1"),
    (("--on", "0-1", "--on", "99999999999"), "it must be ranks"),
    (("--comm-group", "groups.json"), "files: 1, jobs: 2"),
])  # fmt: skip
def test_places_that_do_not_fit_are_one_line(
    folder: Path, capfd: pytest.CaptureFixture[str], given: tuple[str, ...], told: str
) -> None:
    code, out, err = run(capfd, folder, str(folder / "a"), str(folder / "b"), *given)
    assert (code, out) == (2, "")
    assert told in err
    assert len(err.splitlines()) == 1


def test_each_job_has_process_groups_of_its_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.toml").write_text(SYSTEM)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for rank in range(4):
            trace = trace_of([collective(0, "all_reduce", 1 << 20, pg_name=f"g{rank % 2}")])
            nadi.write(trace, tmp_path / name / f"work.{rank}.et")
        (tmp_path / f"{name}.json").write_text('{"g0": [0, 2], "g1": [1, 3]}')
    groups = [
        text for name in ("a", "b") for text in ("--comm-group", str(tmp_path / f"{name}.json"))
    ]
    jobs = [str(tmp_path / name) for name in ("a", "b")]
    code, out, err = run(capfd, tmp_path, *jobs, *groups, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)["collectives_by_group"]
    assert {row["group"] for row in found} == {"a/g0", "a/g1", "b/g0", "b/g1"}
    code, _, err = run(capfd, tmp_path, *jobs)
    assert code == 2
    assert "the ranks of group 'a/g0' are unknown" in err
