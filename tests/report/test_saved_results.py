"""Pages of results that other commands wrote as JSON: each number is theirs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nadi
from nadi.cli import main
from nadi.results.saved import RESULT_KINDS, read_summary
from tests.analyze.test_compared_runs import recording
from tests.report.page_numbers import read_page
from tests.report.test_report_page import check_numbers
from tests.report.test_report_sections import told

Capture = pytest.CaptureFixture[str]


def page_of(given: list[str], place: Path) -> str:
    assert main(["report", *given, "-o", str(place / "page.html"), "--overwrite"]) == 0
    return (place / "page.html").read_text()


COMMANDS = {
    "estimate": ["estimate", "llama3-8b", "dgx-h100", "--tp", "8", "--global-batch", "8"],
    "search": ["search", "llama3-8b", "dgx-h100", "--ranks", "8", "--global-batch", "8",
               "--set", "tensor_par=8"],
    "fold": ["fold", "{job}"],
    "similarity": ["similarity", "{recording}", "{recording}", "--system", "dgx-h100"],
    "second_tier": ["memory", "plan", "--model", "13b", "--system", "h100", "--global-batch", "64",
                    "--ranks", "8", "--bandwidth", "256,512", "--capacity", "512GiB"],
    "placement": ["memory", "place", "{plan}", "--system", "dgx-h100", "--place",
                  "weights=cxl", "--bandwidth", "64"],
    "waits": ["waits", "{recording}"],
    "serving": ["serve", "llama3-8b", "hgx-h200", "--rate", "4", "--number", "20", "--seeds", "2"],
    "server_sweep": ["serve", "llama3-8b", "hgx-h200", "--rate", "4", "--number", "20",
                     "--sweep", "rate=1:16:x2", "--sweep", "tp=1,2"],
    "server_search": ["serve", "llama3-8b", "dgx-h100-cxl", "--rate", "4", "--number", "20",
                      "--search", "2", "--ttft", "1s", "--tier", "cxl"],
    "simulation": ["simulate", "{job}", "--system", "dgx-h100-cxl"],
}  # fmt: skip


PLAN = """\
model = "llama3-8b"
tp = 8
micro_batch = 1
global_batch = 1
sequence = 512
"""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A job that loads from two tiers of memory, a recording, and a plan of a generated job."""
    folder = tmp_path_factory.mktemp("inputs")
    with nadi.JobBuilder(world_size=2) as job:
        for rank in job.ranks:
            done: list[Any] = []
            for _ in rank.loop("layer", 4):
                weights = rank.unordered.load("weights", "40 MB", tier="cxl", after=done[-2:-1])
                done.append(rank.compute("layer", duration="1.5 ms", after=weights))
                rank.unordered.store("gradients", "20 MB", tier="dram", after=done[-1])
    nadi.models.write_job(job.job, folder / "job", name="layers")
    (folder / "plan.toml").write_text(PLAN)
    recorded = recording(folder / "recording")
    return {"job": str(folder / "job"), "recording": str(recorded),
            "plan": str(folder / "plan.toml")}  # fmt: skip


def json_of(kind: str, inputs: dict[str, str], place: Path, capsys: Capture) -> Path:
    """Write the JSON of a command."""
    command = [text.format(**inputs) for text in COMMANDS[kind]]
    file = place / f"{kind}.json"
    file.write_text(json.dumps(told(capsys, *command)))
    return file


@pytest.mark.parametrize("kind", COMMANDS)
def test_results_have_a_page_with_their_numbers(
    kind: str, inputs: dict[str, str], tmp_path: Path, capsys: Capture
) -> None:
    file = json_of(kind, inputs, tmp_path, capsys)
    found = read_summary(file)
    assert found is not None
    assert found.kind == kind
    html = page_of([str(file)], tmp_path)
    assert check_numbers(html, {kind: found.data}) > 5
    sections = read_page(html).sections
    expected = kind.replace("_", "-")
    assert expected in sections
    charts = {"second_tier", "placement", "simulation", "server_sweep"}
    assert ("<div class=chart><svg" in html) == (kind in charts)


def test_every_kind_has_a_page() -> None:
    assert set(RESULT_KINDS) - set(COMMANDS) == {"run", "what_if"}  # test_report_page.py has them


def test_results_stand_beside_a_recording_and_beside_each_other(
    inputs: dict[str, str], tmp_path: Path, capsys: Capture
) -> None:
    kinds = ("fold", "estimate")
    files = [str(json_of(kind, inputs, tmp_path, capsys)) for kind in kinds]
    assert set(read_page(page_of(files, tmp_path)).sections) == set(kinds)
    shown = read_page(page_of([inputs["recording"], *files], tmp_path))
    assert {*kinds, "prediction", "verdict", "timeline"} <= set(shown.sections)


def test_a_saved_simulation_has_its_timeline(inputs: dict[str, str], tmp_path: Path) -> None:
    done = nadi.simulate(inputs["job"], nadi.load_system("dgx-h100-cxl", 2))
    nadi.simulation.write_simulation(done, tmp_path / "done.nadi")
    nadi.simulation.write_simulation(done, tmp_path / "done.json")
    html = page_of([str(tmp_path / "done.nadi")], tmp_path)
    data = json.loads((tmp_path / "done.json").read_text())
    assert check_numbers(html, {"simulation": data}) > 20
    assert read_page(html).sections == ["simulation", "timeline"]


def test_a_trace_is_no_result(tmp_path: Path) -> None:
    for name, content in {
        "device.json": '{"schemaVersion": 1, "traceEvents": []}', "list.json": "[1, 2]",
        "text.json": "text", "empty.json": "", "other.json": '{"a": 1}',
    }.items():  # fmt: skip
        (tmp_path / name).write_text(content)
        assert read_summary(tmp_path / name) is None


@pytest.mark.parametrize("kind", ["fold", "similarity", "estimate", "search", "placement", "waits"])
def test_results_that_lack_values_are_said(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, page = tmp_path / "lacking.json", tmp_path / "page.html"
    for value in ({}, [{}], [1], "text", 1.5, None):
        file.write_text(json.dumps(dict.fromkeys(RESULT_KINDS[kind][1], value)))
        if main(["report", str(file), "-o", str(page)]) == 0:  # nothing of it is shown
            read_page(page.read_text())
            page.unlink()
        else:
            error = capsys.readouterr().err
            assert "lacks values that" in error
            assert len(error.strip().splitlines()) == 1
            assert not page.exists()


def test_what_former_versions_called_a_step_is_the_window(tmp_path: Path) -> None:
    row = {"step_ns": 6, "by_kind_of_step": [{"kind": "decode", "steps": 2, "step_ns": 3}]}
    file = tmp_path / "former.json"
    file.write_text(json.dumps({"changes": [row], "ideals": [{"step_ns": 5, "window_ns": 10}]}))
    found = read_summary(file)
    assert found is not None
    assert found.data == {
        "changes": [{**row, "window_ns": 6}],
        "ideals": [{"step_ns": 5, "window_ns": 10}],
    }


def test_what_similarity_called_a_step_is_the_makespan(tmp_path: Path) -> None:
    """Results of version 0.3 are read as those of now."""
    rows = [{"measure": "step time, dgx-h100", "distance": 0.1}, {"measure": "operation mix"}]
    file = tmp_path / "former.json"
    file.write_text(json.dumps({"measures": rows, "reference_system": "x", "step_ns": [{"a": 1}]}))
    found = read_summary(file)
    assert found is not None
    assert found.data["makespan_ns"] == [{"a": 1}]
    assert [one["measure"] for one in found.data["measures"]] == [
        "makespan, dgx-h100", "operation mix",
    ]  # fmt: skip
