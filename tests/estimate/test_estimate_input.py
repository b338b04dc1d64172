"""What is refused, by files and by executions, and with which words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nadi
from nadi.estimates import CALCULON, columns_of, evaluate, read_execution, read_machine, read_model
from nadi.estimates.single.estimate import describe_step
from tests.estimate.described import EXAMPLES, estimate, execution, machine, model, read

REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"num_procs": 63}, "ranks", "8 x 4 x 2 is not 63"),
    ({"batch_size": 255}, "replicas", "255 over 2"),
    ({"microbatch_size": 3}, "microbatches", "128 over 3"),
    ({"tensor_par": 9, "num_procs": 72}, "heads", "96 over 9"),
    ({"pipeline_interleaving": 5}, "interleaving", "24 over 5"),
    ({"pipeline_par": 1, "num_procs": 16}, "lone-stage", "cannot be interleaved"),
    ({"data_par": 1, "num_procs": 32}, "sharding", "cannot shard"),
    ({"data_par": 1, "num_procs": 32, "optimizer_sharding": False}, "reduction", "no reduction"),
    ({"tensor_par_comm_type": "ar", "seq_par_ag_redo": True}, "gather", "gathers again"),
    ({"training": False, "data_par_overlap": False}, "inference", "no backward pass"),
    ({"decoding": True}, "decoding", "decoding is inference"),
    ({"datatype": "float8"}, "datatype", "float8"),
    ({"data_par_net": 2}, "tier", "no such network tier"),
    ({"tensor_par": 16, "num_procs": 128}, "network", "too small"),
    ({"tensor_par": 3, "num_procs": 24, "tensor_par_comm_type": "ar"}, "filled", "must be filled"),
    ({"pipeline_par": 48, "num_procs": 768}, "offload-blocks", "three blocks"),
]


@pytest.mark.parametrize(
    ("changed", "name", "words"), REFUSED, ids=[name for _, name, _ in REFUSED]
)
def test_an_impossible_execution_is_refused(changed: dict[str, Any], name: str, words: str) -> None:
    described = model(read("model")), machine(), execution(**changed)
    with pytest.raises(nadi.NadiError) as caught:
        estimate(*described)
    assert caught.value.where == f"execution, {name}"
    assert words in caught.value.what
    found = evaluate(*described[:2], columns_of([execution(), described[2]]), CALCULON)
    assert found.lacks() == ["", name]
    assert found.seconds[1] == float("inf")


@pytest.mark.parametrize(("tier", "name"), [("mem1", "tier1"), ("mem2", "tier2")])
def test_what_does_not_fit_is_estimated_and_named(tier: str, name: str) -> None:
    told = read("machine")
    told[tier]["GiB"] = 1
    found = estimate(model(read("model")), machine(told), execution())
    assert found.reason == name
    assert "of which it has 1.000" in found.lacks
    assert found.seconds > 0


BAD: list[tuple[str, list[str | int], Any, str, str]] = [
    ("model", ["hiden"], 3, "unknown field `hiden`", "did you mean hidden"),
    ("model", ["hidden"], 0, "$.hidden", "docs/estimate.md"),
    ("machine", ["networks", 0, "speed"], 3, "$.networks[0]", "known: matrix"),
    ("machine", ["mem1", "MB_efficiency"], [[1, 0.5]], "fall, and end with 0 - at `$.mem1`", ""),
    ("machine", ["mem1", "MB_efficiency"], [[1, 0.5], [2, 0.5], [0, 1]], "$.mem1", ""),
    ("machine", ["matrix", "bfloat16", "gflops_efficiency"], [], "$.matrix[...]", ""),
    ("execution", ["activation_recompute"], "some", "$.activation_recompute", "docs/estimate.md"),
    ("execution", ["tensor_par"], "8", "$.tensor_par", ""),
]


@pytest.mark.parametrize(("kind", "path", "value", "what", "remedy"), BAD)
def test_an_error_in_a_file_says_where(
    kind: str, path: list[str | int], value: Any, what: str, remedy: str, tmp_path: Path
) -> None:
    told = read(kind)
    place: Any = told
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    file = tmp_path / "told.json"
    file.write_text(json.dumps(told))
    reader = {"model": read_model, "machine": read_machine, "execution": read_execution}[kind]
    with pytest.raises(nadi.errors.FormatError) as caught:
        reader(file)
    assert caught.value.where == str(file)
    assert what in caught.value.what
    assert remedy in caught.value.remedy


def test_files_that_are_no_json_or_not_there(tmp_path: Path) -> None:
    with pytest.raises(nadi.errors.InputError):
        read_model(tmp_path / "none.json")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(nadi.errors.FormatError):
        read_machine(tmp_path / "broken.json")


def test_the_examples_are_what_tests_use() -> None:
    assert read_model(EXAMPLES / "model.json").num_parameters == 174615822336
    assert read_machine(EXAMPLES / "machine.json") == machine()
    assert read_execution(EXAMPLES / "execution.json") == execution()


def test_files_in_the_order_of_calculon() -> None:
    files = [EXAMPLES / f"{name}.json" for name in ("model", "machine", "execution")]
    assert describe_step(*files) == describe_step(files[0], files[2], files[1])
