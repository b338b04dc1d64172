"""Sections of ``nadi report`` that summary.json does not have: waits, and rates by shape."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nadi
from nadi.cli import main
from nadi.report.run_report import summarize
from tests.analyze.test_compared_runs import recording
from tests.conftest import PairWriter
from tests.report.page_numbers import read_page
from tests.report.test_report_page import check_numbers


def told(capsys: pytest.CaptureFixture[str], *command: str) -> object:
    assert main([*command, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_waits_are_those_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = recording(tmp_path / "recording", extra=True)
    page = tmp_path / "page.html"
    assert main(["report", str(folder), "-o", str(page)]) == 0
    capsys.readouterr()
    summary = json.loads(json.dumps(summarize(nadi.run(folder, by="module"))))
    results = {**summary, "waits": told(capsys, "waits", str(folder))}
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
