"""What nobody records but a broken program may well write, or a person by hand."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import nadi
from nadi.files import json_file
from nadi.trace.protobuf_values import write_varint
from tests.amounts import ALL, examples, some
from tests.fuzz.corpus import device_object, host_object, linked_object, samples
from tests.fuzz.mutations import HOSTILE_NUMBERS, cuts, mutated
from tests.fuzz.outcome import WRITTEN, check, check_flipped, check_use
from tests.reference.chakra_messages import AttributeProto, GlobalMetadata, Node, write_messages

SAMPLES = samples()
DEEP = 5_000
# depths around what Python's own recursion allows
TOO_DEEP = 1_000_000  # Python 3.14 goes as deep as its stack lets it
DEPTHS = (100, 400, 800, 900, 950, 990, 1_000, 1_010, DEEP, TOO_DEEP)


def run(path: Path, content: bytes | str, *, write: bool = True) -> nadi.Trace | None:
    """Check a file, and all ways to write what it gives."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    trace = check(path)
    if trace is not None and write:
        for suffix in WRITTEN:
            check_use(trace, path.parent, suffix)
    return trace


@pytest.mark.parametrize("name", SAMPLES)
def test_content_tells_the_format_whatever_the_suffix(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    for suffix in (".json", ".et", ".nadi", ".txt", ".gz", ".csv", "", ".json.gz", ".et.gz"):
        trace = run(tmp_path / f"file{suffix}", sample.content, write=False)
        assert trace is not None, suffix
        assert trace.nodes.height == sample.num_nodes


@pytest.mark.parametrize("suffix", [".json", ".et", ".nadi", ".txt", ".gz", ".et.gz", ""])
def test_no_trace_at_all(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"file{suffix}"
    for content in (
        b"", b" ", b"\n" * 3, b"\x00", b"\x00" * 100, b"\xff" * 100, b"\xef\xbb\xbf", b"{", b"[", b"{}",
        b"[]", b"null", b"0", b'""', b"\x1f\x8b", b"PK\x03\x04", b"PK\x05\x06" + b"\x00" * 18,
        gzip.compress(b""), gzip.compress(b"{}"), gzip.compress(b"hello"), b"hello", b"DATA", b"DATA\n",
        gzip.compress(gzip.compress(SAMPLES["host"].content)), b'{"a":1}{"b":2}',
    ):  # fmt: skip
        trace = run(path, content, write=False)
        # a single empty message is an .et of no nodes
        assert trace is None or content.count(b"\x00") == len(content), content
    path.unlink()
    assert check(path) is None
    path.mkdir()
    assert check(path) is None


@pytest.mark.parametrize("name", [n for n, s in SAMPLES.items() if s.suffix.endswith(".gz")])
def test_gzip_of_many_kinds(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    path = tmp_path / f"file{sample.suffix}"
    whole = gzip.decompress(sample.content)
    for content, is_read in (
        (sample.content + gzip.compress(b""), True),
        (gzip.compress(b"") + sample.content, True),
        (sample.content + b"\x00" * 100, True),  # padding, as tapes have it
        (sample.content + b"garbage", False),
        (sample.content + sample.content[:30], False),
        (sample.content[:10] + whole, False),
        (sample.content[:-8] + b"\x00" * 8, False),
        (sample.content[:-8], False),
    ):
        path.write_bytes(content)
        trace = check_flipped(path, sample.format)
        if trace is not None:
            assert trace.nodes.height == sample.num_nodes
        assert is_read or trace is None, content[-40:]


def edit_json(make: Callable[[], Any], edit: Callable[[Any], Any]) -> str:
    content = make()
    edit(content)
    return json.dumps(content)


NUMBERS_OF = {
    "host": (host_object, lambda c: c["nodes"][2], ("id", "ctrl_deps", "parent", "rf_id", "seq_id")),
    "linked": (linked_object, lambda c: c["nodes"][-1], (
        "ts", "inclusive_dur", "exclusive_dur", "id", "ctrl_deps", "inter_thread_dep", "stream",
        "device", "cat")),
    "linked-tid": (linked_object, lambda c: c["nodes"][3]["attrs"][4], ("name", "type", "value")),
    "device": (device_object, lambda c: c["traceEvents"][10], ("ts", "dur", "pid", "tid", "ph", "cat")),
    "device-args": (device_object, lambda c: c["traceEvents"][10]["args"], (
        "correlation", "stream", "device", "External id", "In msg nelems", "bytes", "dtype",
        "Sequence number", "Collective name", "Src Rank", "Dst Rank")),
    "device-top": (device_object, lambda c: c, (
        "baseTimeNanoseconds", "schemaVersion", "distributedInfo", "deviceProperties", "traceName",
        "displayTimeUnit", "otherKey")),
    "device-groups": (device_object, lambda c: c["distributedInfo"]["pg_config"][0], (
        "pg_name", "pg_size", "ranks", "backend_config")),
    "device-rank": (device_object, lambda c: c["distributedInfo"], ("rank", "world_size", "pg_config")),
    "host-top": (host_object, lambda c: c, (
        "schema", "pid", "time", "start_ts", "finish_ts", "distributedInfo", "baseTimeNanoseconds",
        "displayTimeUnit", "version")),
}  # fmt: skip


@pytest.mark.parametrize("case", NUMBERS_OF)
def test_values_of_all_kinds(case: str, tmp_path: Path) -> None:
    make, place, keys = NUMBERS_OF[case]
    others = (b'"\\u0000"', b'"\\n"', b'"a\\\\"', b'[1,[2,{"a":[]}]]', b"false", b'{"":{"":[]}}')
    for place_of_key, key in enumerate(keys):
        for number, value in enumerate((*HOSTILE_NUMBERS, *others)):
            if not ALL and (number + place_of_key) % 6:  # another sixth for each key
                continue
            content = make()
            place(content)[key] = "@@"
            text = json.dumps(content).encode().replace(b'"@@"', value)
            path = tmp_path / "file.json"
            path.write_bytes(text)
            trace = check_flipped(path, "kineto" if "device" in case else "pytorch")
            if trace is not None and number % 3 == 0:
                check_use(trace, tmp_path, WRITTEN[(number // 3 + place_of_key) % len(WRITTEN)])


EDITS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "duplicate ids": (host_object, lambda c: c["nodes"][1].update(id=c["nodes"][2]["id"])),
    "missing parent": (host_object, lambda c: c["nodes"][1].update(ctrl_deps=10**9)),
    "its own parent": (host_object, lambda c: c["nodes"][3].update(ctrl_deps=c["nodes"][3]["id"])),
    "a cycle of parents": (host_object, lambda c: [
        c["nodes"][3].update(ctrl_deps=c["nodes"][4]["id"]),
        c["nodes"][4].update(ctrl_deps=c["nodes"][3]["id"])]),
    "a cycle of linked parents": (linked_object, lambda c: [
        c["nodes"][3].update(ctrl_deps=c["nodes"][4]["id"], ts=5),
        c["nodes"][4].update(ctrl_deps=c["nodes"][3]["id"], ts=5)]),
    "a cycle of threads": (linked_object, lambda c: [
        c["nodes"][3].update(inter_thread_dep=c["nodes"][4]["id"], ts=5),
        c["nodes"][4].update(inter_thread_dep=c["nodes"][3]["id"], ts=5)]),
    "a dependency on itself": (linked_object, lambda c: c["nodes"][4].update(
        inter_thread_dep=c["nodes"][4]["id"])),
    "no nodes": (host_object, lambda c: c.update(nodes=[])),
    "no events": (device_object, lambda c: c.update(traceEvents=[])),
    "nodes are null": (host_object, lambda c: c["nodes"].append(None)),
    "events are lists": (device_object, lambda c: c["traceEvents"].append([[]])),
    "groups of one name": (device_object, lambda c: c["distributedInfo"].update(
        pg_config=[{"pg_name": "1", "ranks": [3, 1, 2, 2]}] * 3)),
    "operands of other lengths": (host_object, lambda c: c["nodes"][3]["inputs"].update(
        shapes=[[]], types=["Tensor(float)"] * 9, strides=3)),
    "operands are texts": (host_object, lambda c: c["nodes"][3].update(inputs="[[1,2", outputs=[])),
    "a tensor of negative size": (host_object, lambda c: c["nodes"][3]["inputs"].update(
        values=[[-1, -2, -3, -4, -5, "cpu"]], shapes=[[-1, 0]], strides=[[-1]])),
    "a tensor with numbers beyond": (host_object, lambda c: c["nodes"][3]["inputs"].update(
        values=[[2**63, 2**64, 10**30, 1e300, 0.5, "cpu"]], shapes=[[2**63, 2**62]])),
    "a shape whose product overflows": (host_object, lambda c: c["nodes"][3]["inputs"].update(
        values=[[1, 2, 0, 4, 4, "cpu"]], shapes=[[2**40, 2**40]], types=["Tensor(float)"])),
    "operands closed wrongly": (host_object, lambda c: c["nodes"][3]["inputs"].update(
        values=["(", ")", "[", "\"", "\\"], types=["GenericList[", ",,,]", "[(])", "", ")"])),
    "keys of nothing": (host_object, lambda c: c["nodes"][3].update({"": "", "attrs": [
        {"name": "", "type": "", "value": ""}, {"name": "x"}, {}]})),
    "attributes named as columns": (host_object, lambda c: c["nodes"][3]["attrs"].extend(
        {"name": name, "type": kind, "value": value} for name, kind, value in (
            ("start_ns", "int64", -5), ("duration_ns", "string", "x"), ("category", "int64", 3),
            ("inputs", "string", "["), ("inputs.values", "string", "[["), ("pg_name", "int64", 1),
            ("is_cpu_op", "string", ""), ("comm_type", "double", 1.5), ("event", "string", "{"),
            ("version", "string", "9"), ("ctrl_deps[0]", "string", "a"), ("cat", "int64", 1)))),
}  # fmt: skip
REFUSED = ("duplicate ids", "nodes are null")


@pytest.mark.parametrize("case", EDITS)
def test_edited_json(case: str, tmp_path: Path) -> None:
    text = edit_json(*EDITS[case])
    trace = run(tmp_path / "file.json", text)
    if case in REFUSED:
        assert trace is None
    elif case.startswith("no "):
        assert trace is not None
        assert trace.nodes.height == 0
    if trace is not None:
        check_flipped(tmp_path / "file.json", "")


@pytest.mark.parametrize("depth", DEPTHS)
def test_deep_json(depth: int, tmp_path: Path) -> None:
    nested = ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth)
    for value, (make, place, key) in some(itertools.product(nested, (
        (device_object, lambda c: c["traceEvents"][2]["args"], "Input Dims"),
        (device_object, lambda c: c["traceEvents"][2], "x"),
        (device_object, lambda c: c, "x"),
        (device_object, lambda c: c, "distributedInfo"),
        (host_object, lambda c: c["nodes"][3]["inputs"], "values"),
        (host_object, lambda c: c["nodes"][4]["inputs"], "values"),  # of a communication
        (host_object, lambda c: c["nodes"][3]["inputs"], "x"),
        (host_object, lambda c: c["nodes"][3]["outputs"], "types"),
        (host_object, lambda c: c["nodes"][3]["attrs"][0], "value"),
        (host_object, lambda c: c["nodes"][3], "x"),
        (host_object, lambda c: c, "start_ts"),
    )), of=3, first=DEPTHS.index(depth) % 3):  # fmt: skip
        content = make()
        place(content)[key] = "@@"
        trace = run(tmp_path / "file.json", json.dumps(content).replace('"@@"', value))
        assert depth < TOO_DEEP or trace is None, (key, value[:6])


@pytest.mark.parametrize("depth", [59, 60, 61, DEEP, 100_000])
def test_deep_operands(depth: int, tmp_path: Path) -> None:
    content = host_object()
    value = "[" * depth + "1" + "]" * depth
    node = Node(id=1, name="a", type=4)
    node.inputs.values = node.outputs.types = node.inputs.shapes = value
    node.inputs.types = "['" + "GenericList[" * depth + "Int" + "]" * depth + "']"
    assert (
        run(tmp_path / "file.et", write_messages(GlobalMetadata(version="1"), [node])) is not None
    )
    # a group that begins depth times: protobuf's own parser gives up at 100
    groups = b"\x7b" * depth + b"\x7c" * depth
    assert run(tmp_path / "file.et", b"\x00" + write_varint(len(groups)) + groups) is None
    content["nodes"][2]["inputs"]["values"] = [value]
    run(tmp_path / "file.json", json.dumps(content))


@pytest.mark.parametrize("name", [n for n, s in SAMPLES.items() if s.suffix == ".json"])
def test_bytes_that_are_no_utf8(name: str, tmp_path: Path) -> None:
    content = SAMPLES[name].content
    places = [at for at in range(1, len(content)) if content[at - 1 : at] == b'"']
    places = places[:: max(len(places) // 60, 1)]
    for number, at in enumerate(places):
        bad = (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80")[number % 5]
        assert run(tmp_path / "file.json", content[:at] + bad + content[at:]) is None, at
    if "spaced" not in name:
        for number, at in enumerate(places):
            escape = (b"\\ud800", b"\\udc00", b"\\ud83d\\u0041", b"\\u12", b"\\x41")[number % 5]
            path = tmp_path / "file.json"
            path.write_bytes(content[:at] + escape + content[at:])
            check(path)


def test_bytes_that_are_no_utf8_in_messages(tmp_path: Path) -> None:
    path = tmp_path / "file.et"
    attribute = AttributeProto(name="@@@", string_val="@@@", doc_string="@@@")
    several = AttributeProto(name="x", string_list={"values": ["@@@"]})
    node = Node(id=1, name="@@@", attr=[attribute, several], inputs={
        "values": "@@@", "shapes": "@@@", "types": "@@@"})  # fmt: skip
    content = write_messages(GlobalMetadata(version="@@@", attr=[attribute]), [node])
    assert run(path, content) is not None
    pieces = content.split(b"@@@")
    for bad in range(1, len(pieces)):
        damaged = b"".join(
            (b"" if at == 0 else b"\xed\xa0\x80" if at == bad else b"@@@") + piece
            for at, piece in enumerate(pieces)
        )
        assert run(path, damaged) is None, bad


def test_messages_of_all_lengths(tmp_path: Path) -> None:
    path = tmp_path / "file.et"
    for length in (2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**69):
        prefix = write_varint(length)
        inside = b"\x0a" + prefix + b"a"
        for content in (
            prefix, prefix + b"\x08\x01", b"\x00" + prefix, b"\x00" + prefix + b"\x08\x01",
            *(b"\x00" + bytes([len(inside)]) + bytes([tag]) + inside[1:] for tag in (
                0x12, 0x22, 0x2A, 0x42, 0x4A, 0x52, 0x7A)),
        ):  # fmt: skip
            assert run(path, content) is None
    # numbers that go on and on
    for size in (9, 10, 11, 100):
        assert run(path, b"\x00" + bytes([size + 2]) + b"\x08" + b"\x80" * size + b"\x02") is None


def test_messages_with_cycles_and_numbers(tmp_path: Path) -> None:
    path = tmp_path / "file.et"
    metadata = GlobalMetadata(version="1.0.0")
    for kind in ("data_deps", "ctrl_deps"):
        nodes = [Node(id=k, name="a", **{kind: [(k + 1) % 5, k, 99]}) for k in range(5)]
        trace = run(path, write_messages(metadata, nodes))
        assert trace is not None
        assert "chakra.cycle" in trace.issues["code"].to_list()
    assert run(path, write_messages(metadata, [Node(id=1), Node(id=1)])) is None
    for value in (0, 1, 2**31, 2**53, 2**62 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1):
        for field in ("id", "start_time_micros", "duration_micros", "data_deps", "ctrl_deps"):
            given = [value, value] if field.endswith("deps") else value
            run(path, write_messages(metadata, [Node(**{"id": 3, field: given})]))


NAMES = (
    "start_ns", "duration_ns", "exclusive_ns", "is_cpu_op", "stream", "comm_type", "thread", "tid",
    "device", "rf_id", "external_id", "correlation", "sequence", "seq_id", "bytes", "tensor_size",
    "comm_size", "comm_src", "comm_dst", "comm_tag", "num_ops", "category", "pg_name", "version",
    "inputs", "inputs.values", "outputs.types", "event", "process_groups", "rank", "world_size",
    "pid", "schema", "parent", "", "args", "cat", "ctrl_deps[0]", "distributedInfo", "ts",
    "baseTimeNanoseconds", "schemaVersion", "op_schema", "attrs", "name", "id",
)  # fmt: skip
VALUES = (
    {"int64_val": -(2**63)}, {"int64_val": 2**63 - 1}, {"uint64_val": 2**64 - 1}, {"bool_val": True},
    {"double_val": float("nan")}, {"float_val": float("inf")}, {"string_val": '[{"ranks": [1e9]}]'},
    {"string_val": '[{"pg_name": "a", "ranks": [99999999999999999999]}]'}, {"string_val": "["},
    {"string_val": "5"}, {"bytes_val": b"\xff"}, {"string_list": {"values": ["a", "b"]}},
    {"int64_list": {"values": [-1]}}, {"string_val": '[{"pg_name": "\\u0000", "ranks": [-1, 3, 3]}]'},
    {"string_val": '[{"pg_name": "a"}, {"pg_name": "a"}]'}, {},
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_attributes_that_nadi_reads_itself(name: str, tmp_path: Path) -> None:
    for number, value in some(enumerate(VALUES), first=NAMES.index(name) % 3):
        attribute = AttributeProto(name=name, **value)
        nodes = [
            Node(id=1, name="x", type=7, start_time_micros=5, duration_micros=5, attr=[attribute]),
            Node(id=2, name="y", type=4, attr=[AttributeProto(name="start_ns", int64_val=7)]),
            Node(id=3, name="z", type=4, attr=[AttributeProto(name="duration_ns", int64_val=7)]),
        ]
        file = write_messages(GlobalMetadata(attr=[attribute]), nodes[: 1 + 2 * (number % 2)])
        trace = run(tmp_path / "file.et", file, write=False)
        if trace is not None:
            check_use(trace, tmp_path, WRITTEN[number % len(WRITTEN)])


@pytest.mark.parametrize("name", [n for n, s in SAMPLES.items() if s.format == "astra-text"])
def test_words_of_workloads(name: str, tmp_path: Path) -> None:
    words = SAMPLES[name].content.decode().split(" ")
    others = [
        *(n.decode() for n in HOSTILE_NUMBERS),
        "ALLTOALL",
        "\u0661",
        "\u00a0",
        "\x00",
        "a\nb",
    ]
    for place in range(len(words)):
        for word in others[place % 3 :: 3]:
            text = " ".join([*words[:place], word, *words[place + 1 :]])
            run(tmp_path / "file.txt", text, write=False)


def members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        return {name: file.read(name) for name in file.namelist()}


def zipped(parts: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        for name, content in parts.items():
            file.writestr(name, content)
    return out.getvalue()


def arrow(frame: pl.DataFrame) -> bytes:
    out = io.BytesIO()
    frame.write_ipc(out)
    return out.getvalue()


def test_own_files_with_other_members(tmp_path: Path) -> None:
    """Sums that are right say nothing of what stands in a file that a program made."""
    parts = members(SAMPLES["nadi"].content)
    path = tmp_path / "file.nadi"
    assert run(path, zipped(parts)) is not None
    assert run(path, zipped(parts, zipfile.ZIP_DEFLATED)) is None
    for name, content in parts.items():
        others = [v for k, v in parts.items() if k != name]
        for other in (b"", b"\x00", content[:-1], content[: len(content) // 2], *others):
            assert run(path, zipped({**parts, name: other})) is None, name
        assert run(path, zipped({k: v for k, v in parts.items() if k != name})) is None


def _with_members(*more: tuple[str, bytes, int], packed: bool = False) -> bytes:
    """Give Nadi's own file with further members: a name, content, and what it says it is."""
    out = io.BytesIO(SAMPLES["nadi"].content)
    with (
        warnings.catch_warnings(action="ignore"),  # of names that are there
        zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as file,
    ):
        for name, content, mode in more:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            info.compress_type = file.compression
            file.writestr(info, content)
    return out.getvalue()


def _in_list(field: int, value: int, size: int) -> bytes:
    """Give Nadi's own file whose list says something else of its first member."""
    content = bytearray(SAMPLES["nadi"].content)
    at = content.index(b"PK\x01\x02") + field
    content[at : at + size] = value.to_bytes(size, "little")
    return bytes(content)


ODD_ZIPS: dict[str, tuple[Callable[[], bytes], bool]] = {
    "a way up": (lambda: _with_members(("../../up.json", b"{}", 0)), True),
    "an absolute path": (lambda: _with_members(("/tmp/absolute.json", b"{}", 0)), True),
    "a link": (lambda: _with_members(("link", b"/etc/passwd", 0o120777)), True),
    "a link to a table": (
        lambda: _with_members(("nodes.arrow", b"deps.arrow", 0o120777)), False),
    "one name twice": (lambda: _with_members(("nodes.arrow", b"ARROW1", 0)), False),
    "a zip in it": (lambda: _with_members(("in.nadi", SAMPLES["nadi"].content, 0)), True),
    "256 MB of zeros in 256 kB": (
        lambda: _with_members(("bomb", bytes(1 << 28), 0), packed=True), True),
    "20,000 members": (
        lambda: _with_members(*((f"{n}", b"", 0) for n in range(20_000))), True),
    "encrypted": (lambda: _in_list(8, 1, 2), False),
    "with sizes after it": (lambda: _in_list(8, 8, 2), True),
    "of an unknown compression": (lambda: _in_list(10, 99, 2), False),
    "4 GB, it says": (lambda: _in_list(24, 2**32 - 2, 4), True),  # but its bytes end before
    "4 GB when stored, it says": (lambda: _in_list(20, 2**32 - 2, 4), True),
    "of another disk": (lambda: _in_list(34, 7, 2), True),
    "beyond the end": (lambda: _in_list(42, 2**31, 4), False),
    "within itself": (lambda: _in_list(42, 4, 4), False),
}  # fmt: skip


@pytest.mark.parametrize("case", ODD_ZIPS)
def test_zips_that_mean_harm(case: str, tmp_path: Path) -> None:
    """Members are read by their names, and never written anywhere."""
    make, is_read = ODD_ZIPS[case]
    path = tmp_path / "in" / "file.nadi"
    path.parent.mkdir()
    trace = run(path, make(), write=False)
    assert (trace is not None) == is_read
    assert trace is None or trace.nodes.height == SAMPLES["nadi"].num_nodes
    assert [one.name for one in tmp_path.rglob("*")] == ["in", "file.nadi"]
    assert not Path("/tmp/absolute.json").exists()


COLUMNS = {
    "nodes": {"parent": (5, 99, -7), "group": (3, -2), "duration": (-9,), "kind": ("x",)},
    "deps": {"src": (-1, 99), "dst": (-1, 99, 2**40), "kind": ("y",)},
    "groups": {"name": (None,), "ranks": ([2, 1],)},
    "attributes": {
        "node": (-2, 99), "name": (-1, 9999), "type": (99, 255), "value": (-1, 2**40, 2**62),
        "length": (-1, 2**31 - 1),
    },
    "bytes": {"bytes": (b"", None)},
}  # fmt: skip


def run_own(path: Path, content: bytes) -> None:
    """Check a file whose sums are right: rules that take long to check are not on opening."""
    path.write_bytes(content)
    try:
        check(path)
    except AssertionError as error:
        assert "deps.twice" in str(error) or "groups.ranks" in str(error)


@pytest.mark.parametrize("table", COLUMNS)
def test_own_files_with_rows_that_are_not_there(table: str, tmp_path: Path) -> None:
    parts = members(SAMPLES["nadi"].content)
    member = f"{table}.arrow"
    frame = pl.read_ipc(parts[member])
    for column, values in COLUMNS[table].items():
        if column not in frame.columns:  # one whose values are all missing
            frame = frame.with_columns(pl.lit(-1, dtype=pl.Int64).alias(column))
        for value, row in itertools.product(values, (0, frame.height - 1)):
            items = frame[column].to_list()
            items[row] = value
            changed = frame.with_columns(pl.Series(column, items, strict=False).alias(column))
            run_own(tmp_path / "file.nadi", zipped({**parts, member: arrow(changed)}))
            as_stored = pl.Series(column, items, strict=False).cast(
                frame[column].dtype, strict=False
            )
            changed = frame.with_columns(as_stored)
            run_own(tmp_path / "file.nadi", zipped({**parts, member: arrow(changed)}))
        for changed in (
            frame.drop(column), frame.with_columns(pl.lit("a").alias(column)), frame.head(1),
            frame.with_columns(pl.lit(1.5).alias(column)), frame.with_columns(more=1), frame.clear(),
        ):  # fmt: skip
            run_own(tmp_path / "file.nadi", zipped({**parts, member: arrow(changed)}))


@pytest.mark.parametrize(
    "name", [n for n, s in SAMPLES.items() if s.format in ("pytorch", "kineto")]
)
def test_files_read_in_two_halves(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long lists are read by two threads; here every list is."""
    monkeypatch.setattr(json_file, "_WORTH_SPLITTING", 0)
    sample = SAMPLES[name]
    path = tmp_path / f"file{sample.suffix}"
    for number in range(examples(150)):
        path.write_bytes(mutated(sample.content, sample.content, f"halves {name}:{number}"))
        check_flipped(path, sample.format)
    for size in cuts(len(sample.content), examples(60)):
        assert run(path, sample.content[:size], write=False) is None
