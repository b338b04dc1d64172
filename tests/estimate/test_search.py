"""Searches: the space, the fastest of it, parts in files and in processes."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

import nadi
from nadi.estimates import (
    CALCULON,
    Execution,
    describe_step,
    search,
    search_space as search_space_by_rules,
)
from nadi.estimates.execution import execution_at
from nadi.estimates.searches import search as configuration_search
from tests.estimate.described import estimate, machine, model, read
from tests.reference.one_estimate import step_of

SMALL: dict[str, Any] = {
    "datatype": ["bfloat16"], "microbatch_size": [1, 2], "tensor_par_overlap": ["none", "ring"],
    "pipeline_interleaving": [1, 3],
}  # fmt: skip
FEW = SMALL | {"tensor_par": [8]}  # that are searched in this process
search_space = partial(search_space_by_rules, rules=CALCULON)
DESCRIBED = (model(read("model")), machine())


def all_of(space: Any) -> list[Execution]:
    return [
        execution_at(part, row)
        for part in space.executions(0, space.size)
        for row in range(part.num_executions)
    ]


def test_a_space_has_each_execution_once_and_parts_of_it_are_the_same() -> None:
    space = search_space(*DESCRIBED, 16, 32, SMALL)
    found = all_of(space)
    assert len(found) == space.size == len(set(found))
    pieces = [
        execution_at(part, row)
        for begin in range(0, space.size, 97)
        for part in space.executions(begin, begin + 97)
        for row in range(part.num_executions)
    ]
    assert pieces == found
    for one in found:
        assert one.tensor_par * one.pipeline_par * one.data_par == one.num_procs == 16
        assert one.batch_size % (one.data_par * one.microbatch_size) == 0
        assert not (one.seq_par_ag_redo and one.tensor_par_comm_type != "rs_ag")
        assert one.data_par > 1 or not (one.optimizer_sharding or one.data_par_overlap)
    assert {one.tensor_par for one in found} == {1, 2, 4, 8, 16}


def test_chunks_of_a_decoded_token_are_tried_only_if_asked_for() -> None:
    decoding = {
        "training": [False], "decoding": [True], "datatype": ["bfloat16"], "tensor_par": [8],
    }  # fmt: skip

    def tried(**given: Any) -> set[int]:
        space = search_space_by_rules(*DESCRIBED, 16, 32, decoding | given)
        return {one.pipeline_interleaving for one in all_of(space)}

    assert tried() == {1}
    assert tried(pipeline_interleaving=[1, 3]) == {1, 3}
    assert len(tried(decoding=[False])) > 1


def test_the_fastest_is_that_of_a_slow_search() -> None:
    space = search_space(*DESCRIBED, 16, 32, FEW | {"pipeline_par": [1, 2]})
    told, system = read("model"), read("machine")
    best, feasible = (math.inf, None), 0
    for one in all_of(space):
        values = {name: getattr(one, name) for name in Execution.__struct_fields__}
        found = step_of(told, system, values)
        fits = (
            found["proc_mem_tier1_cap_req"] <= system["mem1"]["GiB"] * 2**30
            and found["proc_mem_tier2_cap_req"] <= system["mem2"]["GiB"] * 2**30
        )
        feasible += fits
        if fits and found["total_time"] < best[0] * (1 - 1e-12):
            best = (found["total_time"], one)
    result = search(space, top=3)
    assert 0 < feasible < space.size
    assert result.num_feasible == feasible
    assert result.num_executions == space.size == feasible + sum(result.lacking().values())
    assert result.best[0].seconds == pytest.approx(best[0])
    assert [one.rate for one in result.best] == sorted(one.rate for one in result.best)[::-1]
    for one in result.best:
        alone = estimate(*DESCRIBED, one.execution)
        assert alone.seconds == pytest.approx(one.seconds)
        assert alone.lacks == ""
        assert sum(alone.tier2.values()) == pytest.approx(one.tier2_bytes)


_PLANS: list[tuple[str, dict[str, Any]]] = [
    ("llama3-8b", {"dp": 8, "zero": 3, "recompute": "selective"}),
    ("llama3-8b", {"dp": 4, "cp": 2, "zero": 2, "micro_batch": 2, "recompute": "full"}),
    ("llama3-8b", {"tp": 2, "pp": 2, "cp": 2, "chunks": 4, "schedule": "interleaved"}),
    ("llama3-8b", {"tp": 2, "dp": 2, "cp": 2, "zero": 3}),
    ("qwen3-30b-a3b", {"dp": 8, "ep": 8, "zero": 2, "recompute": "full"}),
]


@pytest.mark.parametrize(("name", "plan"), _PLANS)
def test_a_search_for_one_plan_gives_the_figures_of_its_estimate(
    name: str, plan: dict[str, Any]
) -> None:
    plan = {"tp": 1, "pp": 1, "cp": 1, "zero": 1, "global_batch": 16, "sequence": 4096} | plan
    step = describe_step(name, "dgx-h100", plan | {"dtype": "bfloat16"})
    alone = nadi.estimates.estimate(step.model, step.machine, step.execution)
    fields = ("tp", "pp", "cp", "ep", "zero", "micro_batch", "chunks", "recompute")
    given = {field: [plan[field]] for field in fields if field in plan}
    split = step.execution.tensor_par_comm_type, step.execution.seq_par_ag_redo
    given |= {"dtype": ["bfloat16"], "overlap": ["none"], "data_par_overlap": [True],
              "tensor_par_comm_type": [split[0]], "seq_par_ag_redo": [split[1]],
              "weight_offload": [False], "activations_offload": [False],
              "optimizer_offload": [False]}  # fmt: skip
    if "micro_batch" not in given:
        given["micro_batch"] = [step.execution.microbatch_size]
    given.setdefault("chunks", [1])
    given.setdefault("recompute", ["none"])
    large = msgspec.structs.replace(step.machine.mem1, GiB=10_000.0)
    machine = msgspec.structs.replace(step.machine, mem1=large)
    space = search_space_by_rules(step.model, machine, 8, 16, given)
    (found,) = search(space).best
    told = (found.execution.gradient_sharding, found.execution.weight_sharding)
    assert told == (plan["zero"] > 1, plan["zero"] > 2)
    assert found.execution.context_par == plan["cp"]
    assert found.seconds == pytest.approx(alone.seconds, rel=1e-12)
    assert found.tier1_bytes == pytest.approx(sum(alone.tier1.values()), rel=1e-12)


def test_degrees_of_context_parallelism_leave_4096_tokens_unless_given() -> None:
    def degrees(tokens: int, **given: list[int]) -> set[int]:
        told = nadi.estimates.read_model("llama3-8b", tokens)
        space = search_space_by_rules(told, machine, 8, 8, {"tensor_par": [1]} | given)
        return {one.context_par for one in all_of(space)}

    machine = nadi.estimates.read_machine("dgx-h100", 8)
    assert degrees(2048) == degrees(4096) == {1}
    assert degrees(16384) == {1, 2, 4}
    assert degrees(4096, cp=[1, 2, 8]) == {1, 2, 8}


def test_shards_are_nested_and_zero_3_moves_no_weights() -> None:
    machine = nadi.estimates.read_machine("dgx-h100-cxl", 8)
    told = nadi.estimates.read_model("llama3-8b", 4096)
    space = search_space_by_rules(told, machine, 8, 8, {"tp": [1], "pp": [1], "cp": [1]})
    levels = {
        (one.optimizer_sharding, one.gradient_sharding, one.weight_sharding)
        for one in all_of(space)
    }
    assert levels == {(level > 0, level > 1, level > 2) for level in range(4)}
    assert not any(
        one.execution.weight_sharding
        and (one.execution.weight_offload or one.execution.activations_offload)
        for one in search(space, top=space.size).best
    )
    some = search_space_by_rules(told, machine, 8, 8, {"tp": [1], "zero": [0, 3]})
    found = {(one.optimizer_sharding, one.weight_sharding) for one in all_of(some)}
    assert found == {(False, False), (True, True)}


def test_parts_give_the_same_in_threads_in_files_and_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = search(search_space(*DESCRIBED, 16, 32, SMALL))
    # each part that is read takes a process
    monkeypatch.setattr(configuration_search, "_AT_ONCE", 4000)
    with ThreadPoolExecutor(3) as executor:
        threads = search(search_space(*DESCRIBED, 16, 32, SMALL), executor=executor)
    assert threads.best == whole.best
    assert threads.reasons.tolist() == whole.reasons.tolist()
    written = search(search_space(*DESCRIBED, 16, 32, SMALL), output=tmp_path)
    assert written.best == whole.best
    parts = sorted(tmp_path.glob("part-*.parquet"))
    assert len(parts) > 3
    frame = pl.concat(map(pl.read_parquet, parts))
    assert frame.height == whole.num_executions
    assert frame.filter(pl.col("lacks") == "")["rate"].max() == whole.best[0].rate
    parts[1].unlink()
    times = [path.stat().st_mtime_ns for path in parts[2:]]
    again = search(search_space(*DESCRIBED, 16, 32, SMALL), output=tmp_path)
    assert again.best == whole.best
    assert again.reasons.tolist() == whole.reasons.tolist()
    assert [path.stat().st_mtime_ns for path in parts[2:]] == times
    assert parts[1].exists()


def test_a_folder_of_another_search_is_left_alone(tmp_path: Path) -> None:
    search(search_space(*DESCRIBED, 16, 32, FEW), output=tmp_path / "a")
    with pytest.raises(nadi.errors.UsageError, match="another search"):
        search(search_space(*DESCRIBED, 16, 64, FEW), output=tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "note").write_text("mine")
    with pytest.raises(nadi.errors.UsageError, match="not empty"):
        search(search_space(*DESCRIBED, 16, 32, FEW), output=tmp_path / "b")


def test_a_part_that_is_broken_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    search(search_space(*DESCRIBED, 16, 32, FEW), output=tmp_path)
    part = next(tmp_path.glob("part-*"))
    whole = part.read_bytes()
    for content in (
        b"no parquet",
        whole[:200] + bytes(9) + whole[209:],
        whole[:-300] + whole[-99:],
    ):
        part.write_bytes(content)
        with pytest.raises(nadi.errors.InputError, match="is no table"):
            search(search_space(*DESCRIBED, 16, 32, FEW), output=tmp_path)
    pl.DataFrame({"lacks": ["x"]}).write_parquet(part)
    with pytest.raises(nadi.errors.InputError, match="not a part of a search"):
        search(search_space(*DESCRIBED, 16, 32, FEW), output=tmp_path)
    assert not capfd.readouterr().err


@pytest.mark.parametrize(
    ("given", "words"),
    [({"zero": [4]}, "known: 0, 1, 2, 3"), ({"color": [1]}, "does not vary"),
     ({"activation_recompute": ["half"]}, "unknown value"),
     ({"tensor_par": [7]}, "no degrees"), ({"tensor_par": ["x"]}, "=x: it is not a whole"),
     ({"expert_par": [1 << 70]}, "not a whole number up to"),
     ({"weight_offload": [5]}, "weight_offload=5: it is not true or false")],
)  # fmt: skip
def test_a_space_that_cannot_be_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(nadi.errors.UsageError, match=words):
        search_space(*DESCRIBED, 16, 32, given)


def test_batches_are_rounded_on_request() -> None:
    with pytest.raises(nadi.errors.UsageError):
        search_space(*DESCRIBED, 6, 5, {"tensor_par": [1], "pipeline_par": [1]})
    space = search_space(
        *DESCRIBED, 6, 20, {"tensor_par": [1], "pipeline_par": [1]}, round_batch=True
    )
    assert {one.batch_size for one in all_of(space)} == {18}


def test_a_search_takes_a_datatype_that_the_machine_has() -> None:
    described = DESCRIBED[1]
    assert "float16" not in described.matrix
    space = search_space(
        *DESCRIBED, 16, 32, {key: SMALL[key] for key in SMALL if key != "datatype"}
    )
    assert {one.datatype for one in all_of(space)} <= set(described.matrix)


def test_a_dask_client_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed", reason="needs pip install distributed")
    monkeypatch.setattr(configuration_search, "_AT_ONCE", 1000)
    told = (*DESCRIBED, 16, 32, SMALL)
    with (
        distributed.LocalCluster(1, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        found = search(search_space(*told), executor=client.get_executor())
    assert found.best == search(search_space(*told)).best
