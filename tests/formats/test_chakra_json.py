from __future__ import annotations

import contextlib
import gc
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import assume, given, strategies as st

import nadi
from nadi.errors import FormatError
from nadi.files.chakra import chakra_json, et_decode as chakra_decode, et_encode as chakra_encode
from nadi.files.files import read_file
from nadi.trace.issues import IssueLog
from nadi.trace.trace import Trace
from tests.formats.chakra_cases import raw_file, traces
from tests.reference.chakra_messages import GlobalMetadata, Node, read_messages, write_messages

Messages = tuple[Any, list[Any]]


def as_et(trace: Trace) -> bytes:
    return b"".join(chakra_encode.encode(trace, IssueLog()))


def as_json(trace: Trace) -> bytes:
    return b"".join(chakra_json.encode(trace, IssueLog()))


def read_json(text: str | bytes) -> Trace:
    return chakra_json.decode(raw_file(text.encode() if isinstance(text, str) else text))


def jsonized(messages: Messages, *, indent: int | None, snake_case: bool = False) -> str:
    metadata, nodes = messages
    return "".join(
        json_format.MessageToJson(message, indent=indent, preserving_proto_field_name=snake_case)
        for message in (metadata, *nodes)
    )


@given(traces(), st.sampled_from([None, 2]), st.booleans())
def test_the_jsonizers_output_gives_the_messages(
    messages: Messages, indent: int | None, snake_case: bool
) -> None:
    text = jsonized(messages, indent=indent, snake_case=snake_case)
    assume(text != "{}")
    assert chakra_json.json_shape_of(text.encode()) == chakra_json.JSONIZED
    assert as_et(read_json(text)) == write_messages(*messages)


@given(traces())
def test_what_is_written_is_protobufs_json(messages: Messages) -> None:
    trace = chakra_decode.decode(raw_file(write_messages(*messages), "a.et"))
    written = json.loads(as_json(trace))
    assert list(written) == ["globalMetadata", "nodes"]
    metadata = json_format.ParseDict(written["globalMetadata"], GlobalMetadata())
    nodes = [json_format.ParseDict(node, Node()) for node in written["nodes"]]
    assert write_messages(metadata, nodes) == write_messages(*messages)


@given(traces())
def test_what_is_written_is_read_as_the_same_messages(messages: Messages) -> None:
    trace = chakra_decode.decode(raw_file(write_messages(*messages), "a.et"))
    text = as_json(trace)
    assert chakra_json.json_shape_of(text) == chakra_json.ONE_OBJECT
    assert as_et(read_json(text)) == as_et(trace)


def test_columns_and_attributes_equal_those_of_the_et() -> None:
    node = Node(id=3, name="x", type=7, duration_micros=5, data_deps=[1])
    node.attr.add(name="comm_size", int64_val=64)
    node.inputs.values = "[1]"
    messages = GlobalMetadata(version="0.0.4"), [Node(id=1, name="y", type=4), node]
    of_et = chakra_decode.decode(raw_file(write_messages(*messages), "a.et"))
    of_json = read_json(jsonized(messages, indent=2))
    of_json.assert_equals(of_et)
    assert of_json.provenance.sources[0].format == "Chakra JSON, object by object 0.0.4"


@pytest.mark.parametrize("folder", ["torch213_mlp", "gpu_resnet_1gpu_et103__nccl_data"])
def test_a_jsonized_recording_is_its_et(shared_traces: Path, folder: str) -> None:
    golden = shared_traces.parent / "golden" / "chakra" / folder
    et = gzip.decompress((golden / "out.et.gz").read_bytes())
    trace = chakra_json.decode(read_file(golden / "jsonized.json.gz"))
    assert as_et(trace) == et
    assert as_et(read_json(as_json(trace))) == et


def test_a_host_trace_becomes_chakras_messages(demo_run: nadi.bottlenecks.Run) -> None:
    trace = demo_run.job.traces[0]
    written = json.loads(as_json(trace))
    nodes = [json_format.ParseDict(node, Node()) for node in written["nodes"]]
    metadata = json_format.ParseDict(written["globalMetadata"], GlobalMetadata())
    expected_metadata, expected = read_messages(as_et(trace))
    assert nodes == expected
    assert list(metadata.attr) == list(expected_metadata.attr)


def test_protobufs_other_spellings_are_read() -> None:
    attr = [
        {"name": "a", "int64Val": 12},
        {"name": "b", "int64_val": 3.0},
        {"name": "c", "doubleVal": "1.5e1"},
        {"name": "d", "bytes_val": "-_8"},
        {"name": "e", "floatList": {"values": ["-Infinity", 1, "NaN"]}},
        {"name": "f", "boolList": {}, "docString": None},
        {"name": "g", "stringVal": None},
    ]
    node = {"id": 7, "type": 4, "ctrl_deps": ["7", 8], "durationMicros": None, "attr": attr}
    trace = read_json(json.dumps({"global_metadata": None or {}, "nodes": [node]}))
    expected = Node()
    json_format.ParseDict({**node, "attr": attr}, expected)
    assert read_messages(as_et(trace))[1] == [expected]


def test_unknown_keys_are_kept_counted_and_written_again() -> None:
    text = (
        '{"globalMetadata": {"color": [1.0, 2]}, "top": null, "nodes": [{"id": "1", "who": '
        '{"a": 1}, "inputs": {"strides": "[]"}, "attr": [{"name": "x", "int128Val": "1"}]}]}'
    )
    trace = read_json(text)
    assert [(node, name) for node, name, _, _ in trace.attributes.items() if name != "version"] == [
        (-1, "top"), (-1, "color"), (0, "inputs"), (0, "x"), (0, "who"), (0, "inputs.strides"),
        (0, "attr[0].int128Val"),
    ]  # fmt: skip
    assert trace.issues.filter(code="chakra-json.unknown-key")["count"].to_list() == [5]
    again = json.loads(as_json(trace))
    assert again["nodes"][0]["who"] == {"a": 1}
    assert again["globalMetadata"] == {"top": None, "color": [1.0, 2]}
    log = IssueLog()
    list(chakra_encode.encode(trace, log))
    assert log.table().filter(code="chakra.unknown-key")["count"].to_list() == [5]


def test_a_small_file_does_not_look_at_what_the_program_has_frozen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gc, "get_freeze_count", lambda: pytest.fail("it counts one by one"))
    assert read_json('{"workload_graph": [{"Id": 1, "Name": "a"}]}').nodes.height == 1
    assert gc.isenabled()


def test_the_feeders_json_is_read() -> None:
    first = {
        "Id": 1, "Name": "matmul", "NodeType": 4, "is_cpu_op": False, "runtime": 5,
        "data_deps": [], "num_ops": 10, "tensor_size": 2**40,
    }  # fmt: skip
    second = {
        "Id": 2, "Name": "sum", "NodeType": 7, "is_cpu_op": False, "data_deps": [1],
        "comm_type": 0, "comm_size": 1024, "comm_priority": 1, "comm_tag": 3, "mood": "good",
    }  # fmt: skip
    text = json.dumps({"workload_graph": [first, second]}, indent=1)
    assert chakra_json.json_shape_of(text.encode()) == chakra_json.FEEDER
    trace = read_json(text)
    assert trace.nodes["name"].cast(str).to_list() == ["matmul", "sum"]
    assert trace.nodes["duration"].to_list() == [5000, 0]
    assert trace.nodes["comm_type"].cast(str).to_list() == ["none", "all_reduce"]
    assert trace.nodes["comm_bytes"].to_list() == [-1, 1024]
    assert trace.deps.rows() == [(0, 1, "data", False)]
    assert trace.attributes.of(1)["mood"] == "good"
    nodes = read_messages(as_et(trace))[1]
    assert [attr.name for attr in nodes[1].attr] == [
        "is_cpu_op", "comm_type", "comm_priority", "comm_size", "comm_tag",
    ]  # fmt: skip


NESTED = "[" * 1_000_000 + "]" * 1_000_000
DEEP = '{"globalMetadata": {}, "nodes": [{"id": "1", "x": ' + NESTED + "}]}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"globalMetadata": {}, "nodes": [{"id": "x"}]}', "$.nodes[0].id (node \"x\")"),
        ('{"globalMetadata": {}, "nodes": [{"id": "4611686018427387904"}]}', "too large"),
        ('{"globalMetadata": {}, "nodes": [{"id": "1"}, {"id": 1}]}', "id 1 occurs twice"),
        ('{"globalMetadata": {}, "nodes": [{"id": "1", "type": "FOO"}]}', "COMP_NODE, got 'FOO'"),
        ('{"globalMetadata": {}, "nodes": [{"ctrlDeps": 1}]}', "list of ids, got 1 - at"),
        ('{"globalMetadata": {}, "nodes": [{"name": 1}]}', "expected a string, got 1"),
        ('{"globalMetadata": {}, "nodes": [{"dataDeps": ["1"], "data_deps": []}]}', "both of"),
        ('{"globalMetadata": {}, "nodes": [[]]}', "at `$.nodes[0]`"),
        ('{"globalMetadata": {}, "nodes": {}}', "Expected `array`, got `object`"),
        ('{"globalMetadata": []}', "at `$.globalMetadata`"),
        ('{"globalMetadata": {"attr": [{"int32Val": 2147483648}]}}', "got 2147483648 - at"),
        ('{"globalMetadata": {"attr": [{"floatVal": 1e39}]}}', "expected float, got 1e+39"),
        ('{"globalMetadata": {"attr": [{"bytesVal": "a"}]}}', "expected bytes, got 'a'"),
        ('{"globalMetadata": {"attr": [{"bytesVal": "a b="}]}}', "expected bytes, got"),
        ('{"globalMetadata": {"attr": [{"boolVal": 1}]}}', "$.globalMetadata.attr[0].boolVal"),
        ('{"globalMetadata": {"attr": [{"boolVal": true, "int32Val": 1}]}}', "already has"),
        ('{"globalMetadata": {"attr": [{"int32List": {"values": [1, "a"]}}]}}', "values[1]"),
        ('{"globalMetadata": {"attr": [{"int32List": [1]}]}}', 'only "values", got [1]'),
        ('{"globalMetadata": {}, "nodes": [{"id": "1"}', "ends too early, after 44 bytes"),
        ('{"globalMetadata": {}} x', "trailing characters (byte 24)"),
        ('{"attr": [{}]}{"id": "1"', "ends too early, after 24 bytes"),
        ('{"attr": [{}]}{"id": "1"} x', "(byte 26)"),
        ('{"attr": [{}]} {"id": 1, "attr": [{"uint32Val": -1}]}', "$[1].attr[0].uint32Val "),
        ('{"attr": [{}], "id": "1"}', "begins with a node"),
        ('{"globalMetadata": {"version": "\\ud8ab!"}}', "surrogate pair (byte 32)"),
        ('{"workload_graph": {}}', "at `$.workload_graph`"),
        ('{"workload_graph": [{"Id": 1}, {"Id": -2}]}', "$.workload_graph[1].Id (node -2)"),
        ('{"workload_graph": [{"Id": 1, "is_cpu_op": 1}]}', "expected bool, got 1"),
        ('{"schema": "1.0"}', "not a Chakra trace"),
        ("", "not a Chakra trace"),
        (DEEP, "nested too deeply"),
        (DEEP.replace('{"globalMetadata": {}, "nodes": [', '{"attr": [{}]}')[:-2], "too deeply"),
        (b'{"globalMetadata": {"version": "\xff"}}', "not valid UTF-8: byte 32"),
    ],
)  # fmt: skip
def test_faults_are_told_with_their_place(text: str | bytes, expected: str) -> None:
    with pytest.raises(FormatError) as caught:
        read_json(text)
    assert str(caught.value).startswith("a.json: ")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_types_of_a_later_version_are_kept() -> None:
    text = '{"globalMetadata": {}, "nodes": [{"type": 99}, {"id": "1", "type": -5}]}'
    trace = read_json(text)
    log = IssueLog()
    again = json.loads(b"".join(chakra_json.encode(trace, log)))
    assert [node["type"] for node in again["nodes"]] == [99, -5]
    assert log.table().height == 0
    assert [node.type for node in read_messages(as_et(trace))[1]] == [99, -5]


@given(st.binary(max_size=12), st.integers(0, 400))
def test_damage_gives_a_trace_or_a_format_error(damage: bytes, at: int) -> None:
    node = Node(id=1, name="x", type=4, ctrl_deps=[5])
    node.attr.add(name="a", doc_string="d").double_list.values.extend([1.5, 2])
    messages = GlobalMetadata(version="1"), [node, Node(id=2)]
    content = bytearray(jsonized(messages, indent=2).encode())
    content[at : at + len(damage)] = damage
    with contextlib.suppress(FormatError):
        read_json(bytes(content))
