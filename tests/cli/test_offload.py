"""``nadi memory offload``: what it prints, machines of one's own, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nadi.cli import main
from nadi.memory import offload_machine_text
from nadi.units import format_number

pytest.importorskip("highspy", reason="the solver is an extra")


def test_text_and_json_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["memory", "offload", "opt-13b", "t4", "--gpu-batch-size", "8", "--generate", "8"]
    assert main([*asked, "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    policy = described["policy"]
    assert policy["batch"] == 8
    assert main(asked) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(
        f"{format_number(policy['rate'])} tokens/s: {policy['num_batches']} batches"
    )
    assert f"{100 * policy['shares']['weights_gpu']:.1f} %" in printed
    assert "--gpu-batch-size 8" in printed


def test_given_percentages_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    percent = ["--gpu-batch-size", "24", "--num-gpu-batches", "2", "--percent", "10,90,0,100,0,100"]
    assert main(["memory", "offload", "opt-30b", "t4", *percent, "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    shares = described["policy"]["shares"]
    assert shares["weights_gpu"] == pytest.approx(0.1)
    assert shares["cache_cpu"] == pytest.approx(1)
    assert described["flexgen"] is None
    assert (
        main(["memory", "offload", "opt-6.7b", "t4", "--compat", "flexgen", "--percent", "50,,,,,"])
        == 0
    )
    printed = capsys.readouterr().out
    assert "50.0 %" in printed
    assert "FlexGen's search" not in printed


def test_a_machine_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.toml"
    text = offload_machine_text("t4")
    file.write_text(text.replace('"0.473 GiB/s"', '"5 GiB/s"'))
    rates = []
    for machine in ("t4", str(file)):
        assert main(["memory", "offload", "opt-30b", machine, "--json"]) == 0
        rates.append(json.loads(capsys.readouterr().out)["policy"]["rate"])
    assert rates[1] > 1.05 * rates[0]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"15 GiB"', "15", "$.gpu_memory: 15 has no unit"),
        ('"15 GiB"', '"15 GiB/s"', "$.gpu_memory: '15 GiB/s' is not a size"),
        ('disk = "1500 GiB"', "", "missing required field `disk`; state it"),
        ("usable_gpu = 0.8", "usable_gpu = 0", "$.usable_gpu"),
        ("usable_gpu = 0.8", "usable_hbm = 0.8", "known keys: gpu_memory"),
        ("usable_gpu = 0.8", "usable_gpu = ", "read as toml"),
    ],
)  # fmt: skip
def test_a_wrong_machine_is_refused(
    old: str, new: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.toml"
    text = offload_machine_text("t4")
    assert old in text
    file.write_text(text.replace(old, new))
    assert main(["memory", "offload", "opt-13b", str(file)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["opt-13b", "t5"], "machine 't5': no file and no machine has this name"),
        (["opt-13", "t4"], "did you mean opt-13b"),
        (["opt-175b", "t4", "--cpu", "64GiB", "--disk", "64GiB"], "of CPU memory (64.00 GiB now)"),
        (["opt-13b", "t4", "--percent", "20,80"], "not six percentages"),
        (["opt-13b", "t4", "--percent", "a,,,,,"], "not six percentages"),
        (["opt-13b", "t4", "--gpu", "16"], "--gpu 16: '16' is not a size"),
        (["opt-13b", "t4", "--prompt", "0"], "--prompt 0: not a number of tokens"),
        (["opt-13b", "t4", "--prompt", "99999999999999"], "state 1 to 16,777,216"),
        (["opt-13b", "t4", "--compat", "x"], "--compat x: unknown rules"),
        (["mixtral-8x7b", "t4"], "mixture of experts"),
        (["opt-13b", "t4", "--gpu-batch-size", "4", "--num-gpu-batches", "4",
          "--percent", "50,70,,,,"],
         "no memory of any size alone is enough"),
    ],
)  # fmt: skip
def test_what_is_refused(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["memory", "offload", *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
