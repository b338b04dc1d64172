"""Reading PyTorch execution traces of all schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nadi


def attrs(**values: Any) -> list[dict[str, Any]]:
    return [{"name": name, "type": "?", "value": value} for name, value in values.items()]


def write(folder: Path, *nodes: dict[str, Any], schema: str = "1.1.1-chakra.0.0.4") -> Path:
    path = folder / "host.json"
    path.write_text(json.dumps({"schema": schema, "pid": 5, "nodes": list(nodes)}))
    return path


def test_nodes_are_sorted_by_id_and_know_their_parents(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"id": 3, "name": "child", "ctrl_deps": 2, "attrs": attrs(rf_id=9, seq_id=4)},
        {"id": 2, "name": "parent", "ctrl_deps": 1, "attrs": attrs(rf_id=8)},
        {"id": 1, "name": "[pytorch|profiler|execution_trace|process]", "ctrl_deps": 1,
         "attrs": attrs(rf_id=0)},
    )  # fmt: skip
    trace = nadi.read(path)
    assert trace.process == 5
    assert trace.column("id").tolist() == [1, 2, 3]
    assert trace.column("parent").tolist() == [-1, 0, 1]
    assert trace.column("rf_id").tolist() == [-1, 8, 9]
    assert trace.column("sequence").tolist() == [-1, -1, 4]
    assert trace.nodes["kind"].to_list() == ["METADATA", "COMP", "COMP"]
    assert trace.column("start").tolist() == [-1, -1, -1]


def test_schema_1_0_1_has_its_fields_on_the_node(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"id": 1, "name": "root", "parent": 1, "rf_id": 0, "seq_id": -1, "inputs": []},
        {"id": 2, "name": "op", "parent": 1, "rf_id": 7, "seq_id": 3, "inputs": [1.5, "x"]},
        schema="1.0.1",
    )
    trace = nadi.read(path)
    assert trace.column("parent").tolist() == [-1, 0]
    assert trace.column("rf_id").tolist() == [-1, 7]
    assert trace.column("sequence").tolist() == [-1, 3]
    assert trace.issues.is_empty()


def test_bytes_of_communication_are_those_of_all_tensors_nested_too(tmp_path: Path) -> None:
    values = [[[1, 2, 0, 100, 4, "cpu"], [[3, 4, 0, 10, 2, "cpu"]]], "<Object>", 0, -1]
    node = {"id": 1, "name": "c10d::allreduce_", "ctrl_deps": 1, "inputs": {"values": values}}
    trace = nadi.read(write(tmp_path, node))
    assert trace.column("comm_bytes").tolist() == [420]
    assert trace.nodes["comm_type"].to_list() == ["all_reduce"]


def test_process_groups(tmp_path: Path) -> None:
    text = json.dumps([
        {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "ranks": [],
         "group_size": 3},
        {"pg_name": "1", "ranks": [2, 0], "group_size": 2},
    ])  # fmt: skip
    node = {"id": 1, "name": "## process_group:init ##", "ctrl_deps": 1,
            "inputs": {"values": [text]}}  # fmt: skip
    trace = nadi.read(write(tmp_path, node))
    assert trace.groups["ranks"].to_list() == [[0, 1, 2], [0, 2]]
    assert trace.groups["name"].to_list() == ["0", "1"]
    assert trace.nodes["kind"].to_list() == ["METADATA"]


def test_an_unknown_schema_is_tried_with_a_warning(tmp_path: Path) -> None:
    trace = nadi.read(write(tmp_path, {"id": 1, "name": "op", "ctrl_deps": 1}, schema="9.9"))
    assert trace.issues.rows()[0][:3] == ("et.schema", "warning", 1)


def test_missing_and_later_parents_are_counted(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"id": 1, "name": "a", "ctrl_deps": 77},
        {"id": 2, "name": "b", "ctrl_deps": 3},
        {"id": 3, "name": "c", "ctrl_deps": 2},
    )
    trace = nadi.read(path)
    assert trace.column("parent").tolist() == [-1, -1, 1]
    counts = {code: count for code, _, count, _, _ in trace.issues.iter_rows()}
    assert counts == {"et.parent-missing": 1, "et.parent-later": 1}


def test_an_id_that_stands_twice_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, {"id": 4, "name": "a"}, {"id": 4, "name": "b"})
    with pytest.raises(nadi.errors.FormatError, match="node id 4 occurs twice"):
        nadi.read(path)


def test_groups_that_are_not_json_are_an_error(tmp_path: Path) -> None:
    node = {"id": 1, "name": "## process_group:init ##", "inputs": {"values": ["[{"]}}
    with pytest.raises(nadi.errors.FormatError, match="node 1"):
        nadi.read(write(tmp_path, node))


@pytest.mark.parametrize("name", ["gpt2_1.1.0", "nccl_1.0.2", "pt2_1.1.1", "resnet_2gpu_1.1.0"])
def test_recordings_of_every_schema(shared_traces: Path, name: str) -> None:
    trace = nadi.read(shared_traces / "et_only" / f"{name}.json.gz")
    assert trace.nodes.height > 10
    assert trace.issues.is_empty()
    assert (trace.column("parent") < trace.column("id")).all()
