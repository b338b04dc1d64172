"""Chakra's .et against the protobuf package: what it writes we read, what we write it reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import nadi
from nadi.files.chakra import et_nodes as chakra_nodes
from nadi.files.chakra.et_decode import looks_like
from nadi.trace.protobuf_values import LIST_TYPES, SCALAR_TYPES
from tests.amounts import some
from tests.model.test_attributes import scalars
from tests.reference.chakra_messages import (
    AttributeProto,
    GlobalMetadata,
    IOInfo,
    Node,
    read_messages,
    write_messages,
)


@st.composite
def attribute_protos(draw: st.DrawFn) -> Any:
    """Make an attribute of any type, or of none."""
    proto = AttributeProto(name=draw(st.text(max_size=6)))
    if draw(st.booleans()):
        proto.doc_string = draw(st.text(max_size=6))
    kind = draw(st.sampled_from([*SCALAR_TYPES, *LIST_TYPES, ""]))
    if kind in SCALAR_TYPES:
        setattr(proto, f"{kind}_val", draw(scalars(kind)))
    elif kind:
        values = draw(st.lists(scalars(kind.removesuffix("_list")), max_size=4))
        getattr(proto, kind).values.extend(values)
        getattr(proto, kind).SetInParent()
    return proto


@st.composite
def operand_infos(draw: st.DrawFn) -> Any:
    """Make an IOInfo, with texts or empty."""
    texts = [draw(st.text(max_size=8)) for _ in range(3)]
    return IOInfo(values=texts[0], shapes=texts[1], types=texts[2])


@st.composite
def files(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    """Make metadata and nodes: ids in any order, dependencies on what is and is not there."""
    metadata = GlobalMetadata(version=draw(st.sampled_from(["", "0.0.4", "1.0.0"])))
    metadata.attr.extend(draw(st.lists(attribute_protos(), max_size=3)))
    ids = draw(st.lists(st.integers(0, 2**40), unique=True, max_size=6))
    nodes = []
    for number in ids:
        wait_for = st.lists(st.sampled_from([*ids, 2**41]), max_size=4)
        node = Node(
            id=number,
            name=draw(st.text(max_size=8)),
            type=draw(st.integers(0, 9)),
            ctrl_deps=draw(wait_for),
            data_deps=draw(wait_for),
            start_time_micros=draw(st.integers(0, 2**50)),
            duration_micros=draw(st.integers(0, 2**50)),
        )
        for field in ("inputs", "outputs"):
            if draw(st.booleans()):
                getattr(node, field).CopyFrom(draw(operand_infos()))
        node.attr.extend(draw(st.lists(attribute_protos(), max_size=4)))
        nodes.append(node)
    return metadata, nodes


def expected_attributes(protos: Any) -> list[tuple[str, str, Any]]:
    """Give name, type and value of attributes, as the protobuf package holds them."""
    found = []
    for proto in protos:
        field = proto.WhichOneof("value")
        if field is None:
            found.append((proto.name, "none", None))
        elif field.endswith("_list"):
            found.append((proto.name, field, list(getattr(proto, field).values)))
        else:
            found.append((proto.name, field.removesuffix("_val"), getattr(proto, field)))
        if proto.doc_string:
            found.append((proto.name, "doc_string", proto.doc_string))
    return found


@given(files())
def test_any_messages_come_back(tmp_path_factory: Any, file: tuple[Any, list[Any]]) -> None:
    path = tmp_path_factory.mktemp("et") / "trace.et"
    content = write_messages(*file)
    path.write_bytes(content)
    trace = nadi.read(path)
    nadi.write(trace, path.with_name("copy.et"))
    copy = path.with_name("copy.et").read_bytes()
    assert read_messages(copy) == file
    metadata, nodes = file
    if all(node.type <= 7 for node in nodes):  # an unknown type is written last, not in place
        assert copy == content
    assert trace.column("id").tolist() == [node.id for node in nodes]
    assert trace.nodes["name"].cast(str).to_list() == [node.name for node in nodes]
    kept = [row for row in trace.attributes.items() if row[2] not in _OF_OTHER_FIELDS]
    for row, protos in enumerate([metadata.attr, *(node.attr for node in nodes)], start=-1):
        of_node = [entry[1:] for entry in kept if entry[0] == row]
        assert of_node == expected_attributes(protos)


_OF_OTHER_FIELDS = ("operand", "dependency", "unknown")


def many_nodes(fill: bytes) -> bytes:
    """Write 90 nodes with a text in each that may look like nodes, and ever more dependencies."""
    nodes = [
        Node(
            id=k + 1, name=f"op {k % 40}", type=k % 8, ctrl_deps=range(k), data_deps=[k],
            attr=[
                AttributeProto(name="note", bytes_val=fill * (k % 5)),
                AttributeProto(name="num_ops", int64_val=k) if k > 50 else AttributeProto(),
                AttributeProto(name="pg_name", string_val=f"group {k % 50}"),
            ],
        )
        for k in range(90)
    ]  # fmt: skip
    return write_messages(GlobalMetadata(version="1.0.0"), nodes)


@pytest.mark.parametrize(
    "fill", some([b"x", b"\x02\x08\x01", b"\x02\x08\x01" * 3, b"\x00" * 30], of=2, first=1)
)
@pytest.mark.parametrize("several", some([1, 2, 16], of=2))
def test_halves_that_are_guessed_wrong_change_nothing(
    tmp_path: Path, fill: bytes, several: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = many_nodes(fill)
    path = tmp_path / "trace.et"
    path.write_bytes(content)
    whole = nadi.read(path)
    monkeypatch.setattr(chakra_nodes, "_WORTH_SPLITTING", 0)
    monkeypatch.setattr(chakra_nodes, "_SEVERAL", several)
    middles = set()
    for share in range(1, 20):
        monkeypatch.setattr(chakra_nodes, "_MIDDLE", share / 20)
        wanted = chakra_nodes.WantedAttributes(["num_ops"], ["pg_name"])
        decoded = chakra_nodes.decode_messages("", np.fromfile(path, dtype=np.uint8), wanted)
        middles.add(len(decoded.parts))
        whole.assert_equals(nadi.read(path))
    assert 2 in middles
    assert (1 in middles) == (several < 16 and 8 in fill)
    for size in range(len(content) // 2, len(content), 23):
        path.write_bytes(content[:size])
        monkeypatch.setattr(chakra_nodes, "_WORTH_SPLITTING", 1 << 30)
        expected = outcome(path)
        monkeypatch.setattr(chakra_nodes, "_WORTH_SPLITTING", 0)
        assert outcome(path) == expected


def outcome(path: Path) -> str:
    """Give the error of a file that is cut, or how many nodes it has if that is between two."""
    try:
        return str(nadi.read(path).nodes.height)
    except nadi.errors.FormatError as error:
        return str(error)


def test_room_is_made_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.et"
    path.write_bytes(many_nodes(b"x"))
    whole = nadi.read(path)
    for name, value in (("_LIKELY_BYTES", 1 << 30), ("_LEAST_ROOM", 1), ("_TEXTS_ROOM", 4)):
        monkeypatch.setattr(chakra_nodes, name, value)
    whole.assert_equals(nadi.read(path))
    assert whole.column("flops").tolist() == [k if k > 50 else -1 for k in range(90)]
    assert whole.groups["name"].to_list() == [f"group {k}" for k in range(50)]


@given(files())
def test_dependencies_are_rows_or_are_counted(
    tmp_path_factory: Any, file: tuple[Any, list[Any]]
) -> None:
    path = tmp_path_factory.mktemp("et") / "trace.et"
    path.write_bytes(write_messages(*file))
    trace = nadi.read(path)
    ids = [node.id for node in file[1]]
    expected = set()
    left = 0
    for row, node in enumerate(file[1]):
        for kind, named in (("data", node.data_deps), ("ctrl", node.ctrl_deps)):
            usable = {(ids.index(n), row, kind) for n in named if n in ids and n != node.id}
            expected |= usable
            left += len(named) - len(usable)
    assert set(trace.deps.select("src", "dst", "kind").iter_rows()) == expected
    counted = trace.issues.filter(trace.issues["code"].str.contains("missing|self|twice"))
    assert counted["count"].sum() == left
    broken = nadi.trace.validate_trace(trace)["code"].to_list()
    assert ("chakra.cycle" in trace.issues["code"].to_list()) == ("nodes.cycle" in broken)


def write_et(path: Path, *nodes: Any, metadata: Any = None) -> Path:
    path.write_bytes(write_messages(metadata or GlobalMetadata(version="0.0.4"), nodes))
    return path


def number(name: str, kind: str, value: Any) -> Any:
    return AttributeProto(name=name, **{f"{kind}_val": value})


def test_columns_are_read_from_attributes_of_any_numeric_type(tmp_path: Path) -> None:
    trace = nadi.read(write_et(
        tmp_path / "a.et",
        Node(id=7, name="send", type=5, duration_micros=3, attr=[
            number("is_cpu_op", "bool", False), number("comm_size", "uint64", 4096),
            number("comm_src", "int32", 1), number("comm_dst", "sint64", 2),
            number("comm_tag", "fixed32", 9), number("stream", "int64", 20),
            number("pg_name", "string", "1"),
        ]),
        Node(id=9, name="all", type=7, attr=[number("comm_type", "uint32", 8),
                                             number("is_cpu_op", "int32", 0)]),
        Node(id=11, name="op", type=4, attr=[number("num_ops", "int64", 5), number(
            "tid", "int64", 3), number("seq_id", "int64", -1)]),
    ))  # fmt: skip
    rows = trace.nodes.select(
        "kind", "category", "duration", "comm_type", "comm_bytes", "src", "dst", "tag", "stream",
        "group", "flops", "thread", "sequence",
    ).rows()  # fmt: skip
    assert rows == [
        ("COMM_SEND", "kernel", 3000, "send", 4096, 1, 2, 9, 20, 0, -1, -1, -1),
        ("COMM_COLL", "kernel", 0, "reduce_scatter", -1, -1, -1, -1, -1, -1, -1, -1, -1),
        ("COMP", "operator", 0, "none", -1, -1, -1, -1, -1, -1, 5, 3, -1),
    ]
    assert trace.groups["name"].to_list() == ["1"]


def test_a_linked_trace_says_in_chakras_words_what_it_knows(
    demo_run: nadi.bottlenecks.Run, tmp_path: Path
) -> None:
    linked = demo_run.job.traces[1]
    nadi.write(linked, tmp_path / "a.et.gz", schema="1.0.0")
    nadi.write(linked, tmp_path / "a.et")
    metadata, nodes = read_messages((tmp_path / "a.et").read_bytes())
    assert metadata.version == "0.0.4"
    assert [node.id for node in nodes] == linked.column("id").tolist()
    back = nadi.read(tmp_path / "a.et.gz")
    assert back.provenance.sources[0].format == "Chakra ET 1.0.0"
    for column in ("id", "name", "kind", "category", "start", "duration", "exclusive", "thread",
                   "is_cpu", "rf_id", "comm_type", "comm_bytes", "group", "sequence"):  # fmt: skip
        same = back.nodes[column].cast(str) == linked.nodes[column].cast(str)
        assert same.all(), column
    assert back.groups.equals(linked.groups)
    assert (back.rank, back.world_size, back.process) == (1, 4, linked.process)
    parents = {(s, d) for s, d, kind, _ in back.deps.iter_rows() if kind == "ctrl"}
    rows = np.flatnonzero(linked.column("parent") >= 0)
    expected = set(zip(linked.column("parent")[rows].tolist(), rows.tolist(), strict=True))
    # the execution trace names parents with later ids too, which are no parents for Nadi
    kept = {row[0] for row in linked.attributes.items() if row[2] == "dependency"}
    assert expected <= parents
    assert {dst for _, dst in parents - expected} <= kept
    assert nadi.trace.validate_trace(back).is_empty()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x05\x0a\x03", "byte 0: a message is longer"),
        (b"\x00\x02\x08", "a message is longer than what is left"),
        (b"\x00\x02\x08\x80", "byte 2: a field ends after its message"),
        (b"\x00\x02\x0b\x01", "a field ends after its message, or is no protobuf field"),
        (b"\x00\x04\x12\x02\xff\xfe", "byte 2: a text is not valid UTF-8"),
        (b"\x00\x0a\x38" + b"\xff" * 8 + b"\x7f", "a number of microseconds or an id"),
        (b"\x00\x0b\x38" + b"\xff" * 9 + b"\x01", "microseconds or an id is too large"),
        (b"\x00\x0b\x08" + b"\xff" * 9 + b"\x01", "microseconds or an id is too large"),
        (b"\x00\x02\x08\x01\x02\x08\x01", "node id 1 occurs twice"),
        (b"\x00\x09\x52\x07\x0a\x01a\x62\x02\x0a\x05", "a field ends|a list does not hold"),
        (b"\x00\xff\xff\xff\xff\x07", "a message is longer"),
        (b"", "the file is empty"),
    ],
)
def test_damaged_files_say_where(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.et"
    path.write_bytes(content)
    with pytest.raises(nadi.errors.FormatError, match=message) as caught:
        nadi.read(path)
    assert str(caught.value).startswith(str(path))


def test_a_field_of_a_newer_schema_is_kept(tmp_path: Path) -> None:
    # field 15 of a node, and field 40 of an attribute, which has no place
    attribute = b"\x0a\x01a\x38\x05\xc0\x02\x01"
    content = b"\x00" + bytes([6 + len(attribute)]) + b"\x08\x04\x78\x09\x52" + bytes(
        [len(attribute)]
    ) + attribute  # fmt: skip
    (tmp_path / "new.et").write_bytes(content)
    trace = nadi.read(tmp_path / "new.et")
    codes = trace.issues.select("code", "severity", "count").rows()
    assert codes == [("chakra.unknown-field", "warning", 1), ("chakra.unknown-field", "info", 1)]
    nadi.write(trace, tmp_path / "copy.et")
    assert b"\x78\x09" in (tmp_path / "copy.et").read_bytes()


def test_the_first_bytes_tell(tmp_path: Path) -> None:
    with_attribute = GlobalMetadata(attr=[number("schema", "string", "1")])
    for metadata in (GlobalMetadata(), GlobalMetadata(version="1.0.0"), with_attribute):
        path = write_et(tmp_path / "x", Node(id=3, name="a"), metadata=metadata)
        assert looks_like(path.read_bytes())
    for other in (b"id,name\n", b"{}", b"\x1f\x8b", b"PK\x03\x04", b"DATA\n3\n"):
        assert not looks_like(other)


def test_every_et_at_hand_comes_back_to_the_byte(shared_traces: Path, tmp_path: Path) -> None:
    folder = shared_traces.parent / "golden" / "chakra"
    paths = [*folder.glob("generator_npus2/*.et"), *folder.glob("text_converter/*.et")]
    assert len(paths) > 30
    for path in paths:
        nadi.write(nadi.read(path), tmp_path / "copy.et")
        assert (tmp_path / "copy.et").read_bytes() == path.read_bytes(), path
