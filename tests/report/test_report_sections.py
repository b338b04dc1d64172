"""Sections of ``nadi report`` that summary.json does not have: waits, and rates by shape."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nadi
from nadi.bottlenecks.steps.run_report import summarize
from nadi.cli import main
from tests.analyze.test_compared_runs import recording
from tests.conftest import NOT_HERE, SHARED, PairWriter
from tests.report.page_numbers import operators_of, read_page
from tests.report.test_report_page import check_numbers

pytestmark = pytest.mark.usefixtures("demo_read_once")

VIT = SHARED / "wild" / "h100_vit.json.gz"


def told(capsys: pytest.CaptureFixture[str], *command: str) -> object:
    assert main([*command, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_waits_are_those_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = recording(tmp_path / "recording", extra=True)
    page = tmp_path / "page.html"
    assert main(["report", str(folder), "-o", str(page)]) == 0
    capsys.readouterr()
    summary = json.loads(json.dumps(summarize(nadi.run(folder, by="module"))))
    results = {**summary, "waits": told(capsys, "waits", str(folder)),
               "operators": operators_of(*nadi.run(folder).job.traces)}  # fmt: skip
    html = page.read_text()
    assert check_numbers(html, results) > 80
    shown = read_page(html)
    assert "waits" in shown.sections
    assert "rates" not in shown.sections
    assert len([one for one in shown.numbers if one.at.startswith("/waits/")]) > 5


def test_rates_are_those_of_the_command(
    pair: PairWriter, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, size in enumerate((64, 128), start=1):
        begin = 200.0 * number
        given = {"Input Dims": [[8, size], [size, 16]], "Input type": ["float", "float"]}
        pair.op("aten::mm", begin, 20, **given)
        pair.event("cudaLaunchKernel", begin + 5, 4, "cuda_runtime", correlation=number)
        pair.event("gemm", begin + 30, size, "kernel", pid=0, tid=7, stream=7, device=0,
                   correlation=number)  # fmt: skip
    traces = str(pair.write()[1])
    page = tmp_path / "page.html"
    assert main(["report", traces, "-o", str(page)]) == 0
    capsys.readouterr()
    rates = told(capsys, "analyze", "rates", traces)
    shown = read_page(page.read_text())
    found = {one.at: one for one in shown.numbers if one.at.startswith("/rates/")}
    assert isinstance(rates, list)
    assert [row["shape"] for row in rates] == ["8 x 16 x 128", "8 x 16 x 64"]
    for i, row in enumerate(rates):
        rate = row["flops"] / row["sum_ns"] / 1e3
        assert found[f"/rates/{i}/tflop_per_s"].text == f"{rate:.4g}"
        for name in ("count", "sum_ns", "tflop_per_s", "tb_per_s", "flops_per_byte"):
            assert found[f"/rates/{i}/{name}"].value == str(row[name])


@pytest.mark.skipif(not VIT.exists(), reason=NOT_HERE)
def test_rates_roofs_and_memory_of_a_real_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(VIT), "-o", str(page)]) == 0
    capsys.readouterr()
    html = page.read_text()
    rates = told(capsys, "analyze", "rates", str(VIT))
    peaks = told(capsys, "analyze", "memory", str(VIT))
    device = nadi.systems.load_device("h100")
    peak, memory = device.peak["bfloat16"], device.bandwidth
    roof = {"type": "BFloat16", "peak_tflops": peak / 1e12, "tb_per_s": memory / 1e12,
            "ridge_flops_per_byte": peak / memory}  # fmt: skip
    run = nadi.run(VIT, by="module")
    results = {
        **json.loads(json.dumps(summarize(run))), "rates": rates, "memory": {"peaks": peaks},
        "roofs": {"recorded": "NVIDIA H100 80GB HBM3", "system": "dgx-h100", "types": [roof]},
        "waits": told(capsys, "waits", str(VIT)), "operators": operators_of(*run.job.traces),
    }  # fmt: skip
    assert check_numbers(html, results) > 300
    shown = read_page(html)
    assert {"rates", "recorded-memory", "flame", "module"} <= set(shown.sections)
    assert html.count("<div class=chart><svg") == 1
    assert html.count("<div class=held>") == 1
    # what bounds a shape, and its share of that, follow from its intensity and the ridge point
    part = html[html.index("<section id=rates>") :].partition("</section>")
    words = read_page(part[0] + part[1]).words
    bounds = [word for word in words if word in ("compute", "memory")]
    ridge = roof["ridge_flops_per_byte"]
    assert isinstance(rates, list)
    by_time = sorted(rates, key=lambda row: -row["sum_ns"])
    assert bounds == [
        "compute" if row["flops_per_byte"] >= ridge else "memory" for row in by_time
    ]  # fmt: skip


def test_steps_of_a_serving_engine_are_no_simulated_requests(
    pair: PairWriter, tmp_path: Path
) -> None:
    for i in range(4):
        pair.event(f"execute_context_0(0)_generation_{8 + i}({8 + i})", 100 * i, 90,
                   "user_annotation")  # fmt: skip
        pair.event("aten::mm", 100 * i + 5, 60)
    _, device = pair.write()
    page = tmp_path / "page.html"
    assert main(["report", str(device), "-o", str(page)]) == 0
    assert summarize(nadi.run(device))["serving"]["kinds"]
    assert "serving" not in read_page(page.read_text()).sections
