"""What the kernel writes of plain nodes, against what is written one by one."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any
from unittest.mock import patch

import pytest
from google.protobuf import json_format
from hypothesis import given, strategies as st

from nadi.errors import FormatError
from nadi.files.chakra import chakra_json
from nadi.files.chakra.chakra_json import plain_messages
from nadi.files.chakra.json_messages import MessageWriter, RawMessage
from nadi.trace.trace import Trace
from tests.formats.chakra_cases import raw_file, traces

SHAPES = (chakra_json.ONE_OBJECT, chakra_json.JSONIZED, chakra_json.FEEDER)
FEEDER_KEYS = {"id": "Id", "name": "Name", "type": "NodeType", "durationMicros": "runtime"}
NUMBERS = st.sampled_from([0, -1, 7, 127, 128, 2**31, 2**32, 2**62, 2**63, 2**64, -(2**63)])
ODD = (
    NUMBERS
    | NUMBERS.map(str)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([
        None, True, "", "007", "-0", "1.0", "COMP_NODE", "Ü\n\u0001", "x" * 300, [], {}, [""],
        ["1", 2, -3], {"values": [1, 0]}, {"values": ["é", ""]}, {"values": [True]},
        {"values": None}, {"a": [{}]}, [{"name": "n", "int64Val": -5}], {"shapes": "s", "a": 1},
    ])
)  # fmt: skip
ODD_KEYS = st.sampled_from([
    "id", "Id", "name", "Name", "type", "ctrl_deps", "dataDeps", "data_deps", "runtime", "attr",
    "is_cpu_op", "comm_tag", "int32Val", "uint64_val", "sint64Val", "boolList", "values", "more",
])  # fmt: skip


def containers(value: Any) -> list[Any]:
    """Give every object and list in a value."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    own = [value] if isinstance(value, (dict, list)) else []
    return own + [one for entry in inside for one in containers(entry)]


def changed(draw: st.DrawFn, value: Any) -> None:
    """Change one thing somewhere in a value."""
    place = draw(st.sampled_from(containers(value)))
    if isinstance(place, list):
        place.insert(draw(st.integers(0, len(place))), deepcopy(draw(ODD)))
    elif draw(st.booleans()):
        items = draw(st.permutations(list(place.items())))
        place.clear()
        place.update(items)
    else:
        key = draw(ODD_KEYS | st.sampled_from(list(place)) if place else ODD_KEYS)
        place[key] = deepcopy(draw(ODD))


def as_feeder(node: dict[str, Any]) -> dict[str, Any]:
    found = {new: node[key] for key, new in FEEDER_KEYS.items() if key in node}
    found["data_deps"] = node.get("dataDeps", [])
    return found | {"is_cpu_op": True, "comm_type": "3", "num_ops": -5, "tensor_size": 2**40}


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Draw files of the three shapes, nearly as they should be."""
    metadata, nodes = draw(traces())
    names = {"preserving_proto_field_name": draw(st.booleans())}
    objects = [json_format.MessageToDict(message, **names) for message in (metadata, *nodes)]
    shape = draw(st.sampled_from(SHAPES))
    if shape == chakra_json.FEEDER:
        value: Any = {"workload_graph": [as_feeder(node) for node in objects[1:]]}
    elif shape == chakra_json.ONE_OBJECT:
        value = {"globalMetadata": objects[0], "nodes": objects[1:]}
    else:
        value = objects
    for _ in range(draw(st.integers(0, 3))):
        changed(draw, value)
    form: dict[str, Any] = {
        "indent": draw(st.sampled_from([None, 1])),
        "ensure_ascii": draw(st.booleans()),
    }
    parts = value if shape == chakra_json.JSONIZED else [value]
    return "".join(json.dumps(part, **form) for part in parts).encode()


@st.composite
def damaged_files(draw: st.DrawFn) -> bytes:
    content = bytearray(draw(files()))
    at = draw(st.integers(0, len(content)))
    content[at : at + draw(st.integers(0, 3))] = draw(
        st.binary(max_size=3) | st.sampled_from([b",", b'"', b"}", b"\\u00e9", b"nul", b"-01"])
    )
    return bytes(content)


def outcome(content: bytes) -> Trace | str:
    try:
        return chakra_json.decode(raw_file(content))
    except FormatError as error:
        return str(error)


def assert_same(content: bytes) -> None:
    quick = outcome(content)
    with patch.object(chakra_json, "plain_messages", return_value=None):
        slow = outcome(content)
    if isinstance(quick, str) or isinstance(slow, str):
        assert quick == slow
        return
    quick.assert_equals(slow)
    assert quick.issues.equals(slow.issues)
    assert quick.provenance == slow.provenance
    assert quick.attributes.table().equals(slow.attributes.table())
    for name in ("node", "name", "type", "value", "length"):
        column, other = getattr(quick.attributes, name), getattr(slow.attributes, name)
        assert column.tolist() == other.tolist()
    assert quick.attributes.names == slow.attributes.names
    assert quick.attributes.bytes().tobytes() == slow.attributes.bytes().tobytes()


@given(files())
def test_both_ways_give_the_same(content: bytes) -> None:
    assert_same(content)


@given(damaged_files())
def test_both_ways_give_the_same_of_a_damaged_file(content: bytes) -> None:
    assert_same(content)


class NoNodes(MessageWriter):
    """A writer to which no node may be left."""

    def node(self, row: int, message: RawMessage) -> bytes:
        raise AssertionError(f"node {row} was not written by the kernel")

    feeder_node = node


NODE = {
    "id": "1",
    "name": "mäßig \u0001 \U0001f600",
    "type": "COMM_COLL_NODE",
    "ctrlDeps": ["0", 300],
    "dataDeps": [],
    "startTimeMicros": "1795251954598138",
    "durationMicros": 12,
    "inputs": {"values": "[1, 2]" * 40, "shapes": "[]", "types": ""},
    "outputs": {},
    "attr": [
        {"name": "n" * 200, "docString": "why", "int64Val": str(-(2**63))},
        {"name": "op_schema", "stringVal": 'a "quoted" text' * 1200},
        {"name": "a", "int32Val": -1},
        {"name": "b", "uint32_val": 2**32 - 1},
        {"name": "c", "uint64Val": 2**63 - 1},
        {"name": "d", "boolVal": False},
        {"name": "e", "boolList": {"values": [True, False] * 90}},
        {"name": "f", "int64List": {"values": ["-1", 2]}},
        {"name": "g", "stringList": {"values": ["", "\\", "ü" * 100]}},
        {"name": "h", "uint64_list": {}},
        {"name": "i", "int32List": {"values": []}},
        {"name": "j"},
    ],
}
FEEDER_NODE = {"is_cpu_op": False, "comm_type": 0, "comm_tag": -1, "tensor_size": "7"}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", [{}, {"indent": 2}, {"sort_keys": True, "ensure_ascii": False}])
def test_a_plain_node_is_left_to_no_other(shape: str, form: dict[str, Any]) -> None:
    metadata = {"version": "1.0.0", "attr": [{"name": "x", "doubleVal": 0.1}]}
    value: Any = {"globalMetadata": metadata, "nodes": [NODE, {}]}
    key: str | None = "nodes"
    if shape == chakra_json.FEEDER:
        value, key = {"workload_graph": [as_feeder(NODE) | FEEDER_NODE]}, "workload_graph"
    elif shape == chakra_json.JSONIZED:
        value, key = [metadata, NODE, {}], None
    parts = value if key is None else [value]
    content = "".join(json.dumps(part, **form) for part in parts).encode()
    assert plain_messages(raw_file(content), key, NoNodes()) is not None
    assert_same(content)


def test_messages_may_be_larger_than_their_json() -> None:
    attr = [{"name": "", "int32List": {"values": [-1] * 5000}}]
    nodes = [{"attr": attr, "id": number} for number in range(5)]
    value = {"globalMetadata": {}, "nodes": [*nodes, {"id": 9, "x": 1}, {"attr": attr, "id": 8}]}
    assert_same(json.dumps(value, separators=(",", ":")).encode())


@pytest.mark.parametrize(
    "text",
    [
        '{"globalMetadata": {"version": "1"}, "global_metadata": {"version": "2"}, "nodes": []}',
        '{"globalMetadata": {}, "nodes": [{"id": 1}], "nodes": [{"id": 2}]}',
        '{"globalMetadata": {}, "metadata": 1, "nodes": [{"id": 1, "id": 2}]}',
        '{"globalMetadata": {"a": 1}, "b": 2, "nodes": [{"c": 3}], "d": 4}',
        '{"workload_graph": [{"\\u0049d": 1, "comm\\u005ftag": 2}], "globalMetadata": {}}',
        '{"metadata": {}, "workload_graph": [{"Id": 1}]}',
        '{"globalMetadata": {}}',
        '{"globalMetadata": {}, "nodes": [{"name": "a" "id": 1}, {}]}',
        '{"attr": [{}]}, {"id": 1}',
    ],
)
def test_what_no_program_writes_is_read_as_slowly(text: str) -> None:
    assert_same(text.encode())
