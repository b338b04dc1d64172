from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import nadi
from nadi.files.chakra import et_decode as chakra_decode
from nadi.files.pytorch import linked_json
from nadi.trace.attributes import AttributeBuilder
from nadi.trace.issues import IssueLog
from nadi.trace.trace import Trace
from tests.amounts import ALL
from tests.conftest import PairWriter
from tests.formats.chakra_cases import raw_file
from tests.reference.chakra_messages import GlobalMetadata, Node, write_messages


def written(trace: Trace, log: IssueLog | None = None) -> dict[str, Any]:
    content = b"".join(linked_json.encode(trace, log or IssueLog()))
    return dict(json.loads(content))


def load(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    return dict(json.loads(content))


def by_id(file: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(file["nodes"], key=lambda node: int(node["id"]))


@pytest.mark.parametrize("number", range(2))
def test_a_host_trace_is_written_as_it_was_read(demo_folder: Path, number: int) -> None:
    path = sorted(demo_folder.glob("**/host*"))[number]
    file = load(path)
    log = IssueLog()
    again = written(nadi.read(path), log)
    assert list(again) == list(file)
    assert by_id(again) == by_id(file)
    assert {**again, "nodes": 0} == {**file, "nodes": 0}
    assert log.table().height == 0


def test_host_traces_of_all_schemas_are_written_as_they_were_read(shared_traces: Path) -> None:
    paths = sorted(shared_traces.glob("et_only/**/*.json*"), key=lambda path: path.stat().st_size)
    if not ALL:  # the largest takes as long as all others, and has a schema that another one has
        del paths[-1]
    for path in paths:
        file = load(path)
        again = written(nadi.read(path))
        assert by_id(again) == by_id(file), path


def test_the_oldest_schema_becomes_one_that_the_converter_knows(shared_traces: Path) -> None:
    trace = nadi.read(shared_traces / "gpu_simple_add_pair" / "host.json.gz")
    log = IssueLog()
    file = written(trace, log)
    assert file["schema"] == "1.0.3-chakra.0.0.4"
    assert set(file["nodes"][5]) == {"id", "name", "ctrl_deps", "inputs", "outputs", "attrs"}
    assert log.table()["code"].to_list() == ["linked-json.schema"]


def test_what_is_written_of_a_pair_can_be_read(linked: Trace, tmp_path: Path) -> None:
    path = tmp_path / "a.linked.json"
    path.write_text(json.dumps(written(linked)))
    again = nadi.read(path)
    assert again.nodes["name"].cast(str).to_list()[-2:] == ["aten::mm", "gemm"]
    assert again.nodes["duration"].to_list()[-2:] == [50_000, 30_500]
    assert again.nodes["stream"].to_list()[-2:] == [-1, 7]
    assert again.nodes["category"].cast(str).to_list()[-2:] == ["operator", "kernel"]


def test_odd_keys_are_written_as_they_stood(tmp_path: Path) -> None:
    node = {
        "id": 2, "name": 'a"b', "ctrl_deps": 77, "inputs": {"values": [1], "layout": {"x": None}},
        "outputs": {"values": []}, "attrs": [
            {"name": "rf_id", "type": "uint64", "value": 5},
            {"name": "odd", "type": "map", "value": {"a": 1.50}, "more": True},
            {"name": "seq_id", "type": "int64", "value": -1},
        ], "color": ["red"],
    }  # fmt: skip
    file = {"schema": "1.1.1-chakra.0.0.4", "pid": 3, "nodes": [node], "host": {"name": "h"}}
    path = tmp_path / "host.json"
    path.write_text(json.dumps(file))
    assert written(nadi.read(path)) == file


@pytest.fixture
def linked(pair: PairWriter) -> Trace:
    """One operation in a step, with a call inside that launches a kernel."""
    pair.op("step", 0, 100, cat="user_annotation")
    pair.op("aten::mm", 10, 50, parent=2, **{"External id": 7})
    pair.event("cudaLaunchKernel", 20, 5, "cuda_runtime", correlation=9, **{"External id": 7})
    pair.event("gemm", 40, 30.5, "kernel", tid=7, correlation=9, device=0, stream=7)
    host, device = pair.write()
    return nadi.link_pair(nadi.read(host), nadi.read(device))


def test_device_work_comes_after_its_launcher(linked: Trace) -> None:
    log = IssueLog()
    file = written(linked, log)
    assert [(node["id"], node["name"], node["ctrl_deps"]) for node in file["nodes"]] == [
        (0, "[pytorch|profiler|execution_trace|process]", 0), (1, "step", 0), (2, "aten::mm", 1),
        (3, "gemm", 2),
    ]  # fmt: skip
    operation, kernel = file["nodes"][2:]
    # the call of the runtime is not written: its 5 us are the operation's
    assert (operation["inclusive_dur"], operation["exclusive_dur"]) == (50.0, 50.0)
    assert (kernel["cat"], kernel["ph"], kernel["stream"]) == ("kernel", "X", 7)
    assert (kernel["ts"] - operation["ts"], kernel["exclusive_dur"]) == (30.0, 30.5)
    assert kernel["attrs"] == operation["attrs"]
    assert "linked-json.node" in log.table()["code"].to_list()


def test_every_node_has_what_the_converter_asks(linked: Trace) -> None:
    file = written(linked)
    assert {"schema", "pid", "time", "start_ts", "finish_ts"} <= set(file)
    for node in file["nodes"]:
        assert {"id", "name", "ctrl_deps", "inputs", "outputs"} <= set(node)
        assert {"values", "shapes", "types"} <= set(node["inputs"])
        names = [attr["name"] for attr in node["attrs"]]
        # the hand-made host trace states rf_id only, and is written as it was recorded
        assert names in (
            ["rf_id"],
            ["rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid", "op_schema"],
        )


def test_device_work_says_what_its_launcher_says(linked: Trace) -> None:
    row = linked.nodes["name"].cast(str).to_list().index("aten::mm")
    kernel = linked.nodes["name"].cast(str).to_list().index("gemm")
    builder = AttributeBuilder()
    builder.add(row, "inputs.values", "operand", "[[1, 2]]")
    builder.add(row, "rf_id", "uint64", 3)
    builder.add(kernel, "args", "json", {"grid": [1, 2, 3]})
    file = written(replace(linked, given_attributes=builder.build()))
    operation, work = file["nodes"][2:]
    assert work["inputs"] == operation["inputs"] == {"values": [[1, 2]]}
    assert work["attrs"] == [{"name": "rf_id", "type": "uint64", "value": 3}]
    assert work["args"] == {"grid": [1, 2, 3]}
    assert "args" not in operation


def test_texts_that_are_no_json_are_written_as_texts() -> None:
    node = Node(id=1, name="x", type=4)
    node.inputs.values = "['a', (1,)]"
    trace = chakra_decode.decode(raw_file(write_messages(GlobalMetadata(), [node])))
    assert written(trace)["nodes"][0]["inputs"]["values"] == "['a', (1,)]"


def test_a_real_pair_equals_the_linkers_output(shared_traces: Path) -> None:
    golden = shared_traces.parent / "golden" / "chakra" / "gpu_resnet_1gpu_et103__nccl_data"
    expected = load(golden / "et_plus.json.gz")["nodes"]
    trace = nadi.run(shared_traces / "gpu_resnet_pair").job.traces[0]
    # that linker knows no memsets
    nodes = [node for node in written(trace)["nodes"] if node.get("cat") != "gpu_memset"]
    place: dict[int, int] = {node["id"]: number for number, node in enumerate(nodes)}
    get: Callable[[dict[str, Any]], list[Any]] = lambda node: [  # noqa: E731
        node["name"], node.get("cat"), node.get("ph"), node.get("stream"),
        node.get("inclusive_dur") if "ts" in node else None,
    ]  # fmt: skip
    for ours, theirs in zip(nodes, expected, strict=True):
        assert place[ours["ctrl_deps"]] == theirs["ctrl_deps"]
        if "ts" not in theirs:  # it leaves out the times of steps
            theirs = {
                **theirs,
                **{key: ours[key] for key in ("inclusive_dur", "ts") if key in ours},
            }
        else:
            assert abs(ours["exclusive_dur"] - theirs["exclusive_dur"]) < 0.02
        assert get(ours) == get(theirs)
