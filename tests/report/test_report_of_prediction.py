"""A recording and its prediction: differences first, each number that of the commands' JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import nadi
from nadi.bottlenecks.differences.predictions import compare_prediction, read_report_inputs
from nadi.bottlenecks.differences.result import COMPARED_PREDICTION
from nadi.bottlenecks.steps.run_report import summarize
from nadi.bottlenecks.waiting.bottlenecks import find_waits
from nadi.bottlenecks.waiting.result import WAITS
from nadi.cli import main
from tests.analyze.test_compared_runs import recording
from tests.report.page_numbers import operators_of, read_page
from tests.report.test_report_page import check_numbers, timeline_of
from tests.report.test_report_sections import told

pytestmark = pytest.mark.usefixtures("demo_read_once")


@pytest.fixture(scope="module")
def simulated(demo_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a simulation of the demo as both kinds of files, and an estimate."""
    folder = tmp_path_factory.mktemp("simulated")
    done = nadi.simulate(demo_folder, nadi.load_system("dgx-h100", 4))
    for suffix in ("nadi", "json"):
        nadi.simulation.write_simulation(done, folder / f"simulated.{suffix}")
    return folder


@pytest.fixture(scope="module")
def estimated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    from nadi.estimates.single.estimate import describe_step
    from nadi.estimates.single.result import describe_estimate
    from nadi.estimates.single_estimate import estimate

    fields = {"tp": 8, "dp": 2, "pp": 2, "global_batch": 16}
    step = describe_step("llama3-8b", "dgx-h100", fields)
    found = describe_estimate(estimate(step.model, step.machine, step.execution))
    data: dict[str, Any] = json.loads(json.dumps(found))
    return data


def test_differences_to_a_simulation_come_first(
    demo_folder: Path, simulated: Path, tmp_path: Path, demo_run: nadi.bottlenecks.Run
) -> None:
    page, file = tmp_path / "page.html", simulated / "simulated.nadi"
    assert main(["report", str(demo_folder), str(file), "-o", str(page)]) == 0
    html = page.read_text()
    compared = compare_prediction(demo_run, nadi.bottlenecks.read_prediction(str(file)))
    waits = WAITS.data(find_waits(demo_run.graph, demo_run.window))
    results = json.loads(json.dumps(summarize(demo_run)))
    results["prediction"] = json.loads(json.dumps(COMPARED_PREDICTION.data(compared)))
    results["simulation"] = json.loads((simulated / "simulated.json").read_text())
    results["waits"] = json.loads(json.dumps(waits))
    results["operators"] = operators_of(*demo_run.job.traces)
    assert check_numbers(html, results) > 500
    shown = read_page(html)
    assert shown.sections[0] == "prediction"
    assert {"simulation", "verdict", "timeline"} <= set(shown.sections)
    header, _ = timeline_of(html)
    titles = [title for title, _ in header["processes"]]
    assert titles[:2] == ["rank 0 measured", "rank 0 simulated on dgx-h100"]
    makespan = results["simulation"]["makespan_ns"]
    found = results["prediction"]
    assert found["predicted_ns"] == makespan
    assert [row["predicted_ns"] for row in found["ranks"]] == results["simulation"]["finish_ns"]
    names = {row["name"] for row in found["operations"]}
    assert {"aten::mm", "gloo:all_reduce"} <= names


def test_parts_and_operations_add_up(
    demo_folder: Path, simulated: Path, demo_run: nadi.bottlenecks.Run
) -> None:
    for name in ("simulated.nadi", "simulated.json"):
        prediction = read_report_inputs([str(simulated / name)]).prediction
        assert prediction is not None
        for whole in (True, False):
            found = compare_prediction(demo_run, prediction, whole=whole)
            assert math.isclose(found.parts["measured_ns"].sum(), found.measured_ns)
            assert math.isclose(found.parts["predicted_ns"].sum(), found.predicted_ns)
            assert found.window == ("whole trace" if whole else "a step")
        assert found.operations.height == (0 if name.endswith("json") else found.operations.height)
    measured = demo_run.measured_ns
    recorded = {row["rank"]: row["measured_ns"] for row in found.ranks.to_dicts()}
    assert max(recorded.values()) == measured
    # host operations keep their times in a simulation, so sums by name are nearly the same
    prediction = read_report_inputs([str(simulated / "simulated.nadi")]).prediction
    assert prediction is not None
    rows = {row["name"]: row for row in
            compare_prediction(demo_run, prediction).operations.to_dicts()}  # fmt: skip
    for name in ("aten::mm", "aten::bernoulli_", "aten::view"):
        assert rows[name]["before_ns"] == pytest.approx(rows[name]["after_ns"], rel=0.01)


def test_an_estimate_is_compared_with_the_mean_step(
    estimated: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = recording(tmp_path / "recording", extra=True)
    run = nadi.run(folder, by="module")
    file, page = tmp_path / "estimate.json", tmp_path / "page.html"
    file.write_text(json.dumps(estimated))
    assert main(["report", str(folder), str(file), "-o", str(page)]) == 0
    capsys.readouterr()
    found = told(capsys, "diff", str(folder), str(file))
    assert isinstance(found, dict)
    assert found["measured_ns"] == run.measured_ns / run.num_steps
    assert found["predicted_ns"] == round(1e9 * estimated["seconds"])
    assert math.isclose(sum(row["predicted_ns"] for row in found["parts"]), found["predicted_ns"])
    results = json.loads(json.dumps(summarize(run)))
    results |= {"prediction": found, "estimate": estimated}
    results["waits"] = told(capsys, "waits", str(folder))
    results["operators"] = operators_of(*run.job.traces)
    assert check_numbers(page.read_text(), results) > 80
    assert read_page(page.read_text()).sections[:3] == ["prediction", "verdict", "estimate"]
    assert main(["diff", str(folder), str(file)]) == 0
    assert capsys.readouterr().out.startswith(
        "a step: measured 160.0 us, predicted by the estimate"
    )


def test_changes_of_the_path_are_those_of_the_paths(
    demo_folder: Path, tmp_path: Path, demo_run: nadi.bottlenecks.Run
) -> None:
    from nadi.bottlenecks.steps.path_changes import path_changes

    answer = nadi.what_if(demo_run.graph, "scale gloo 0.5", window=demo_run.window)
    rows = path_changes(demo_run.path, answer.path)
    assert 0 < len(rows) <= 30
    for row in rows:
        for path, key in ((demo_run.path, "measured_ns"), (answer.path, "predicted_ns")):
            mine = path.segments.filter(name=row["name"], kind=row["kind"].replace("_", " "))
            assert row[key] == (mine["end"] - mine["start"]).sum()
        assert row["change_ns"] == row["predicted_ns"] - row["measured_ns"] != 0
    page = tmp_path / "page.html"
    assert (
        main(["run", str(demo_folder), "--what-if", "scale gloo 0.5", "--report", str(page)]) == 0
    )
    assert read_page(page.read_text()).sections[0] == "prediction"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["{demo}", "{sim}.nadi", "{sim}.json"], "is a second prediction"),
        (["{sim}.json", "{sim}.json"], "is a second result of nadi simulate"),
        (["{sim}.json", "--system", "dgx-h100"], "--system: applies to a recording"),
        (["{demo}", "{tmp}/run"], "results of another are given, too"),
        (["{tmp}/broken.json"], "lacks values that nadi simulate writes"),
        (["{tmp}/broken.nadi"], "broken.nadi"),
    ],
)
def test_what_does_not_go_together_is_said(
    given: list[str], said: str, demo_folder: Path, simulated: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "run").mkdir()
    summary = {"verdict": {}, "critical_path_by_kind": {}}
    (tmp_path / "run" / "summary.json").write_text(json.dumps(summary))
    (tmp_path / "broken.json").write_text('{"makespan_ns": 1, "per_rank": [{"rank": 0}]}')
    saved = (simulated / "simulated.nadi").read_bytes()
    (tmp_path / "broken.nadi").write_bytes(saved[: len(saved) // 2])
    places = {"demo": demo_folder, "sim": simulated / "simulated", "tmp": tmp_path}
    page = tmp_path / "page.html"
    command = ["report", *(text.format(**places) for text in given), "-o", str(page)]
    assert main(command) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.strip().splitlines()) == 1
    assert not page.exists()
