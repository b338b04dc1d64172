"""The scanning kernels against plain readers and against Python's own JSON parser."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings, strategies as st

import nadi
from nadi.files import json_file
from nadi.files.files import RawFile, read_file
from nadi.files.kineto import kineto_events, kineto_trace as kineto
from nadi.files.pytorch import execution_trace as pytorch_et
from nadi.files.pytorch.record_param_comms import NODE_NAME
from nadi.trace.trace import Trace
from tests.amounts import ALL, examples, some
from tests.conftest import NOT_HERE, SHARED
from tests.reference import kineto as slow_kineto, pytorch_et as slow_et

TRACES = sorted((SHARED / "traces").rglob("*.json.gz"))
SMALL_TRACES = [path for path in TRACES if "big" not in str(path)]
READERS = {"device": (kineto, slow_kineto), "host": (pytorch_et, slow_et)}
# what the plain readers do not fill; the rest of them comes from record_param_comms, which
# tests/formats/test_param_comms.py compares with a plain reading of its own
NEW_COLUMNS = ("src", "dst")
OF_RECORDS = ("comm_type", "comm_bytes", "group", "tag")


def read_text(folder: Path, text: str | bytes) -> RawFile:
    path = folder / "file.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_file(path)


def assert_agree(fast: Trace, slow: Trace) -> None:
    has_records = (fast.nodes["name"] == NODE_NAME).any()
    left_out = NEW_COLUMNS + (OF_RECORDS if has_records else ())
    for table in ("nodes", "deps") if has_records else ("nodes", "deps", "groups"):
        mine, other = getattr(fast, table), getattr(slow, table)
        names = [name for name in mine.columns if name not in left_out]
        as_text = pl.selectors.categorical() | pl.selectors.enum()
        frames = [f.select(names).with_columns(as_text.cast(pl.String)) for f in (mine, other)]
        assert frames[0].equals(frames[1]), table
    # about the file as a whole: tests/load/test_merged_ranks.py
    of_events = fast.issues.filter(pl.col("code") != "kineto.merged-ranks")
    assert of_events["count"].to_list() == slow.issues["count"].to_list()
    told = [(trace.rank, trace.world_size, trace.process) for trace in (fast, slow)]
    assert told[0] == told[1]
    broken = set(nadi.trace.validate_trace(fast)["code"])
    assert broken <= {"operands.text"}  # operands may be no list at all: they are kept as text


@pytest.mark.parametrize(
    "path",
    some(SMALL_TRACES, of=4) or [pytest.param(SHARED, marks=pytest.mark.skip(reason=NOT_HERE))],
    ids=lambda path: f"{path.parent.name}-{path.name}",
)
def test_recordings_give_the_same_tables(path: Path) -> None:
    is_device = "device" in path.name or path.parent.name == "gpu_hta"
    fast, slow = READERS["device" if is_device else "host"]
    raw = read_file(path)
    assert_agree(fast.decode(raw), slow.decode(raw))


texts = st.text(max_size=12) | st.sampled_from(
    ["gloo:all_reduce", "c10d::broadcast_", 'a"b\\c', "ncclDevKernel_AllGather", "日本", "\x7f"]
)
numbers = st.integers(-(2**63), 2**63 - 1)
values = st.recursive(
    st.none() | st.booleans() | numbers | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(texts, inside, max_size=3),
    max_leaves=8,
)
times = st.integers(0, 10**15) | st.decimals(0, 10**12, places=3).map(float)
categories = st.sampled_from(
    ["cpu_op", "kernel", "user_annotation", "cuda_runtime", "cuda_sync", "gpu_memcpy", "fwdbwd",
     "ac2g", "Trace", "mystery", ""]
)  # fmt: skip
args = st.fixed_dictionaries(
    {},
    optional={
        "External id": numbers, "Record function id": numbers, "Sequence number": numbers,
        "correlation": numbers, "device": numbers, "stream": numbers | st.just(2**32 - 1),
        "bytes": numbers, "In msg nelems": st.integers(-1, 2**50), "Collective name": texts,
        "dtype": st.sampled_from(["Float", "BFloat16", "none"]), "Process Group Name": texts,
        "Input Dims": values, "x": values,
    },
)  # fmt: skip
events = st.fixed_dictionaries(
    {"ph": st.sampled_from(["X", "X", "X", "s", "f", "M", "i"]), "cat": categories,
     "name": texts, "ts": times, "dur": st.integers(0, 10**9) | st.just(0.5)},
    optional={
        "pid": st.integers(0, 3) | texts, "tid": st.integers(-1, 3) | texts | st.just(2**63),
        "args": args | st.none(), "id": values, "bp": values,
    },
)  # fmt: skip
layouts = st.sampled_from([{}, {"indent": 2}, {"separators": (",", ":")}, {"ensure_ascii": False}])


def shuffled(value: Any, chance: random.Random) -> Any:
    """Give the same JSON with the keys of every object in another order."""
    if isinstance(value, dict):
        pairs = [(key, shuffled(item, chance)) for key, item in value.items()]
        chance.shuffle(pairs)
        return dict(pairs)
    return [shuffled(item, chance) for item in value] if isinstance(value, list) else value


@settings(max_examples=examples(150))
@given(st.lists(events, max_size=6), layouts, st.randoms(use_true_random=False))
def test_small_kineto_files(tmp_path_factory: Any, found: Any, layout: Any, chance: Any) -> None:
    content = shuffled({"schemaVersion": 1, "x": [{}], "traceEvents": found}, chance)
    raw = read_text(tmp_path_factory.mktemp("k"), json.dumps(content, **layout))
    fast = kineto.decode(raw)
    assert_agree(fast, slow_kineto.decode(raw))
    kept = fast.attributes
    assert kept.of(-1)["x"] == [{}]
    for row, event in enumerate(fast.column("event").tolist()):
        said = found[event]
        mine = kept.of(row)
        assert mine.get("args", {}) == said.get("args", {})
        assert {key: mine[key] for key in ("id", "bp") if key in mine} == {
            key: said[key] for key in ("id", "bp") if key in said
        }
    others = [kept.python_value(row) for row in kept.rows_of(-1)]
    nodes = set(fast.column("event").tolist())
    assert [v for v in others if isinstance(v, dict)] == [
        event for row, event in enumerate(found) if row not in nodes
    ]


attrs = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["rf_id", "seq_id", "scope", "tid", "op_schema"]) | texts,
         "type": st.sampled_from(["uint64", "int64", "string", "bool", "double", "int32", "?"]),
         "value": values | st.integers(0, 2**64 - 1)}
    ),
    max_size=4,
)  # fmt: skip
operands = st.fixed_dictionaries(
    {}, optional={key: st.lists(values, max_size=3) for key in ("values", "shapes", "types", "z")}
)
new_nodes = st.fixed_dictionaries(
    {"name": texts},
    optional={
        "ctrl_deps": st.integers(-1, 6), "attrs": attrs, "inputs": operands, "outputs": operands,
        "y": values,
    },
)  # fmt: skip
old_nodes = st.fixed_dictionaries(
    {"name": texts},
    optional={
        "parent": st.integers(-1, 6), "inputs": st.lists(values, max_size=2),
        "rf_id": st.integers(-5, 2**61), "seq_id": st.integers(-5, 2**61), "op_schema": texts,
        "input_shapes": values, "tid": values, "y": values,
    },
)  # fmt: skip
nodes = new_nodes | old_nodes


@settings(max_examples=examples(150))
@given(st.lists(nodes, max_size=6), layouts, st.randoms(use_true_random=False))
def test_small_host_files(tmp_path_factory: Any, found: Any, layout: Any, chance: Any) -> None:
    for number, node in enumerate(found):
        node["id"] = number
    chance.shuffle(found)
    content = shuffled({"schema": "1.0.1", "pid": 3, "nodes": found, "time": "a\n"}, chance)
    raw = read_text(tmp_path_factory.mktemp("h"), json.dumps(content, **layout))
    fast = pytorch_et.decode(raw)
    assert_agree(fast, slow_et.decode(raw))
    kept = fast.attributes
    assert kept.of(-1) == {"schema": "1.0.1", "pid": 3, "time": "a\n"}
    for node in found:
        mine = [(name, value) for row, name, _, value in kept.items() if row == node["id"]]
        for attr in node.get("attrs", []):
            assert (attr["name"], attr["value"]) in mine or ("attrs", attr) in mine
        if isinstance(node.get("inputs"), dict):
            for key, operand in node["inputs"].items():
                told = dict(mine)[f"inputs.{key}"]
                assert (told if key == "z" else json.loads(told)) == operand
        if "y" in node:
            assert ("y", node["y"]) in mine


KINETO_TEXT = json.dumps(
    {"schemaVersion": 1, "deviceProperties": [{"a": None}], "traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "a\\ é", "pid": 1, "tid": 2, "ts": 5.125, "dur": 1,
         "args": {"External id": 3, "Input Dims": [[1, 20], []], "x": {"y": [True, -1.5e3]}}},
        {"ph": "s", "id": 1, "cat": "fwdbwd", "name": "f", "pid": 1, "tid": 2, "ts": 5},
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 6, "dur": 0.5,
         "args": {"stream": 7, "device": 0, "correlation": 4}}]},
    ensure_ascii=False,
)  # fmt: skip
HOST_TEXT = json.dumps(
    {"schema": "1.1.1-chakra.0.0.4", "pid": 5, "start_ts": 1, "nodes": [
        {"id": 1, "name": "a\\ é", "ctrl_deps": 1, "inputs": {"values": [[1, 2, 0, 4, 4, "cpu"]],
         "shapes": [[4]], "types": ["T"]}, "outputs": {"values": []}, "attrs": [
             {"name": "rf_id", "type": "uint64", "value": 7},
             {"name": "op_schema", "type": "string", "value": "x\n"}]},
        {"id": 2, "name": "b", "ctrl_deps": 1, "attrs": [
            {"name": "f", "type": "double", "value": -1.5}], "other": [True, None, {}]}]},
    ensure_ascii=False,
)  # fmt: skip
BOTH = pytest.mark.parametrize(
    ("text", "reader"), [(KINETO_TEXT, kineto), (HOST_TEXT, pytorch_et)], ids=["device", "host"]
)


@BOTH
def test_every_shorter_file_is_refused(tmp_path: Path, text: str, reader: Any) -> None:
    content = text.encode()
    for size in range(len(content)):
        with pytest.raises(
            nadi.errors.FormatError, match=r"ends too early|not valid UTF-8|invalid escape"
        ):
            reader.decode(read_text(tmp_path, content[:size]))


def _refuse(constant: str) -> None:
    raise ValueError(constant)


@BOTH
def test_a_changed_byte_is_refused_if_it_breaks_the_json(
    tmp_path: Path, text: str, reader: Any
) -> None:
    content = text.encode()
    chance = random.Random(7)
    refused = 0
    places = range(0, len(content), 1 if ALL else 3)
    for at in places:
        for byte in (*b'",:{}[]\\ 0x', chance.randrange(256)):
            changed = content[:at] + bytes([byte]) + content[at + 1 :]
            try:
                json.loads(changed.decode(), parse_constant=_refuse)
            except ValueError:
                refused += 1
                with pytest.raises(nadi.errors.FormatError):
                    reader.decode(read_text(tmp_path, changed))
    assert refused > len(places)


@BOTH
@pytest.mark.parametrize("fill", ["x", '}, {"ph": 1, ', '}, {"id": 1'])
def test_halves_that_are_guessed_wrong_change_nothing(
    tmp_path: Path, text: str, reader: Any, fill: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = json.loads(text)
    key = "traceEvents" if reader is kineto else "nodes"
    first = content[key][0]
    content[key] = [{**first, "id": k, "name": f"{fill}{k % 7}"} for k in range(60)]
    raw = read_text(tmp_path, json.dumps(content))
    whole = reader.decode(raw)
    monkeypatch.setattr(json_file, "_WORTH_SPLITTING", 0)
    halves = reader.decode(raw)
    whole.assert_equals(halves)
    content[key][50]["name"] = 3
    raw = read_text(tmp_path, json.dumps(content))
    if reader is kineto:
        trace = reader.decode(raw)
        assert 50 not in trace.column("event")
        assert trace.issues.select("code", "count").rows() == [("kineto.odd-field", 1)]
        return
    with pytest.raises(
        nadi.errors.FormatError, match=rf"expected `str`, got `int` - at \$.{key}\[50\]"
    ):
        reader.decode(raw)


@pytest.mark.parametrize("splitting", [0, 1 << 30])
def test_room_for_events_is_made_on_the_way(
    tmp_path: Path, splitting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(5)
    events = [
        {"ph": "X", "cat": chance.choice(["cpu_op", "kernel", f"unknown {k}"]),
         "name": f"op {chance.randrange(40)}", "pid": 1, "tid": k % 3, "ts": chance.randrange(99),
         "dur": 1, f"key {k % 9}": k, "args": {"In msg nelems": k, "dtype": "Float"}}
        for k in range(200)
    ]  # fmt: skip
    raw = read_text(tmp_path, json.dumps({"traceEvents": events}))
    whole = kineto.decode(raw)
    for name, value in (("_LIKELY_BYTES", 1 << 30), ("_LEAST_ROOM", 2), ("_TEXTS_ROOM", 1)):
        monkeypatch.setattr(kineto_events, name, value)
    monkeypatch.setattr(json_file, "_WORTH_SPLITTING", splitting)
    whole.assert_equals(kineto.decode(raw))
    assert_agree(whole, slow_kineto.decode(raw))
