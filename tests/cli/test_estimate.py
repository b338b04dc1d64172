"""`nadi estimate` and `nadi search` as a user has them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from nadi.cli import main
from tests.estimate.described import EXAMPLES, read

FILES = [str(EXAMPLES / f"{name}.json") for name in ("model", "machine", "execution")]
SMALL = ["--ranks", "16", "--global-batch", "32", "--set", "datatype=bfloat16", "--set",
         "microbatch_size=1", "--set", "fused_activation=true"]  # fmt: skip


def test_the_estimate_as_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", *FILES, "--compat", "calculon"]) == 0
    text = capsys.readouterr().out
    assert "a step" in text
    assert "what would lift it" in text
    assert main(["estimate", *FILES, "--compat", "calculon", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sum(found["times"].values()) == pytest.approx(found["seconds"])
    assert len(found["statistics"]) == 96
    assert found["lacks"] is None


def test_what_does_not_fit_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = read("machine")
    machine["mem1"]["GiB"] = 1
    (tmp_path / "machine.json").write_text(json.dumps(machine))
    assert (
        main(
            ["estimate", FILES[0], str(tmp_path / "machine.json"), FILES[2], "--compat", "calculon"]
        )
        == 1
    )
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("not possible: the first memory tier is too small")
    assert second.startswith("if it were: ")


def test_a_search_without_an_answer_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["search", "llama3-405b", "dgx-h100", "--ranks", "8", "--global-batch", "8"]
    assert main(given) == 1
    assert re.match(r"[\d,]+ configurations, 0 possible\n", capsys.readouterr().out)


def test_a_search_as_text_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", *FILES[:2], *SMALL, "--top", "2", "-o", str(tmp_path / "out")]) == 0
    text = capsys.readouterr().out
    assert "Fastest" in text
    assert "Not possible" in text
    assert main(["search", *FILES[:2], *SMALL, "--top", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["best"]) == 2
    assert found["executions"] == found["feasible"] + sum(found["lacking"].values())
    assert found["best"][0]["execution"]["num_procs"] == 16


@pytest.mark.parametrize("value", ["tensor_par", "=3", "tensor_par=", "color=3"])
def test_a_bad_constraint_is_one_line(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", *FILES[:2], *SMALL, "--set", value]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_file_of_a_plan_takes_what_options_of_the_same_plan_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('tp = 8\ndp = 2\nglobal_batch = 16\noverlap = "ring"\n')
    options = ["--tp", "8", "--dp", "2", "--global-batch", "16"]
    asked = ["estimate", "llama2-7b", "dgx-h100"]
    assert main([*asked, *options, "--overlap", "ring", "--json"]) == 0
    by_options = capsys.readouterr().out
    assert main([*asked, str(plan), "--json"]) == 0
    assert capsys.readouterr().out == by_options
    assert main([*asked, *options, "--json"]) == 0
    assert capsys.readouterr().out != by_options
    # a second tier, which the system lacks, is asked for
    assert main([*asked, str(plan), "--offload", "optimizer"]) == 2
    assert "no second memory tier" in capsys.readouterr().err
    assert main([*asked, str(plan), "--tp", "8"]) == 2
    assert "options do, too" in capsys.readouterr().err


def test_an_execution_of_calculon_takes_no_offloading_beside_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["estimate", *FILES, "--offload", "weights"]) == 2
    assert "Calculon's execution says what is offloaded" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ('overlap = "rng"', "$.overlap='rng': there is no such value; use one of none, ring, pipe"),
        ("tp = 3", "$.tp: 3 does not divide the model's heads, 32"),
        ("tpp = 3", "$.tpp: a plan has no such field"),
    ],
)
def test_what_is_wrong_in_a_plan_s_file_is_named_by_its_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], plan: str, said: str
) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(f"{plan}\n")
    assert main(["estimate", "llama3-8b", "dgx-h100", str(path)]) == 2
    assert f"{path}: {said}" in capsys.readouterr().err
    path.write_text(f'model = "llama3-8b"\n{plan}\n')
    assert main(["memory", "place", str(path), "--system", "dgx-h100-cxl"]) == 2
    assert f"{path}: {said}" in capsys.readouterr().err
