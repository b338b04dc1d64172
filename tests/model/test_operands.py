"""Tables of operands and tensors: against a slow reading, on recordings and at random."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings, strategies as st

import nadi
from nadi.trace.attributes import AttributeBuilder, Attributes
from nadi.trace.operand_kernels import MAX_DEPTH
from nadi.trace.operands import OPERAND_NAMES, OperandTables, operand_tables
from nadi.trace.schema import OPERANDS, TENSORS, UNREADABLE
from tests.amounts import examples
from tests.reference import operands as oracle
from tests.reference.operands import Leaf

KINDS = ("values", "shapes", "types", "strides")
SIMILAR = {f"host_{rank}" for rank in range(1, 8)}  # to that of rank 0
Texts = Mapping[str, str]  # by kind
Node = tuple[Texts, Texts]  # of inputs and of outputs


def attributes_of(nodes: list[Node]) -> Attributes:
    builder = AttributeBuilder()
    for row, sides in enumerate(nodes):
        for side, texts in zip(("inputs", "outputs"), sides, strict=True):
            for kind, text in texts.items():
                builder.add(row, f"{side}.{kind}", "operand", text)
    return builder.build()


def leaves_of(tables: OperandTables) -> dict[tuple[int, bool], list[Leaf]]:
    """Give the leaves of each node and side, with their tensors looked up."""
    tensors = [
        (*row[:7], tuple(row[7]), tuple(row[8])) for row in tables.tensors.iter_rows()
    ]  # fmt: skip
    assert len(set(tensors)) == len(tensors), "a tensor stands twice"
    assert set(tables.operands["tensor"]) - {-1} == set(range(len(tensors)))
    found: dict[tuple[int, bool], list[Leaf]] = {}
    for node, is_output, position, item, type_name, tensor, value in tables.operands.iter_rows():
        leaf = Leaf(position, item, type_name, None if tensor < 0 else tensors[tensor], value)
        found.setdefault((node, is_output), []).append(leaf)
    assert list(found) == sorted(found)
    return found


def expected(nodes: list[Node]) -> dict[tuple[int, bool], list[Leaf]]:
    sides = {
        (row, is_output): oracle.leaves(**sides[is_output])
        for row, sides in enumerate(nodes)
        for is_output in (False, True)
        if sides[is_output]
    }
    return {key: leaves for key, leaves in sides.items() if leaves}


def leaves(values: str, **texts: str) -> list[Leaf]:
    """Read one set of texts."""
    tables = operand_tables(attributes_of([({"values": values, **texts}, {})]))
    OPERANDS.check(tables.operands)
    TENSORS.check(tables.tensors)
    return leaves_of(tables).get((0, False), [])


def recorded_nodes(path: Path) -> Iterator[Node]:
    """Give the texts of each node of a PyTorch execution trace."""
    for node in json.loads(gzip.decompress(path.read_bytes()))["nodes"]:
        sides = []
        for side in ("inputs", "outputs"):
            lists = node[side]
            if isinstance(lists, list):  # schema 1.0.1
                one = side.removesuffix("s")
                lists = {"values": lists, "shapes": node[f"{one}_shapes"],
                         "types": node[f"{one}_types"]}  # fmt: skip
            sides.append(lists)
        yield sides[0], sides[1]


def in_json(lists: Mapping[str, Any]) -> Texts:
    return {kind: json.dumps(lists[kind], separators=(",", ":")) for kind in lists}


def in_python(lists: Mapping[str, Any]) -> Texts:
    return {kind: str(lists[kind]) for kind in lists}


@pytest.mark.parametrize(("write", "largest"), [(in_json, 200_000), (in_python, 100_000)])
def test_recordings_read_as_the_slow_way_does(
    shared_traces: Path, write: Any, largest: int
) -> None:
    """Of larger files, each some seconds in the slow way, none has operands of another kind."""
    paths = [*shared_traces.glob("*/host*.json.gz"), *shared_traces.glob("et_only/*.json.gz")]
    for path in sorted(paths):
        if path.stat().st_size > largest or path.name[:-8] in SIMILAR:
            continue
        nodes = [(write(inputs), write(outputs)) for inputs, outputs in recorded_nodes(path)]
        assert leaves_of(operand_tables(attributes_of(nodes))) == expected(nodes), path


def test_both_notations_give_the_same() -> None:
    lists = {"values": [True, None, "it's", 3, [[1, 2, 0, 4, 4, "cpu"], []]],
             "types": ["Bool", "None", "String", "Int", "GenericList[Tensor(x),GenericList[]]"],
             "shapes": [[], [], [], [], [[2, 2], []]]}  # fmt: skip
    assert leaves(**in_json(lists)) == leaves(**in_python(lists))
    assert [leaf.value for leaf in leaves(**in_json(lists))] == [
        "true", "null", "it's", "3", "", "[]",
    ]  # fmt: skip


def test_an_empty_list_is_an_operand() -> None:
    assert leaves("[[], 1]", types='["GenericList[]", "Int"]') == [
        Leaf(0, 0, "GenericList[]", None, "[]"),
        Leaf(1, -1, "Int", None, "1"),
    ]
    assert [leaf.item for leaf in leaves("[[[], [1, [ ]], 2]]")] == [0, 1, 2, 3]
    assert leaves("[]") == leaves(" [ ] ") == []


def test_a_tensor_is_told_from_a_list() -> None:
    like_a_tensor = '[[1,2,3,4,5,"cpu"]]'
    ((*_, tensor, value),) = leaves(like_a_tensor)
    assert (tensor, value) == ((1, 2, 3, 4, 5, "cpu", "", (), ()), "")
    said_to_be_a_list = leaves(like_a_tensor, types='["Tuple[Int,Int,Int,Int,Int,String]"]')
    assert [leaf.value for leaf in said_to_be_a_list] == ["1", "2", "3", "4", "5", "cpu"]
    for other in (
        '[[1,2,3,4,5,6]]', '[[1,2,3,4,5.0,"cpu"]]', '[[1,2,3,4,5,"cpu",7]]', '[[1,2,3,4,"cpu"]]',
        '[[1,2,3,4,1234567890123456789,"cpu"]]', '[[1,2,3,4,true,"cpu"]]',
    ):  # fmt: skip
        assert all(leaf.tensor is None for leaf in leaves(other)), other


def test_an_undefined_tensor_keeps_its_type() -> None:
    (leaf,) = leaves('[[3,0,0,0,0,""]]', types='["Tensor(nullptr (uninitialized))"]')
    assert leaf.type == "Tensor(nullptr (uninitialized))"
    assert leaf.tensor == (3, 0, 0, 0, 0, "", "nullptr (uninitialized)", (), ())


def test_a_use_in_another_shape_is_another_tensor() -> None:
    attributes = attributes_of([
        ({"values": '[[1,2,0,4,4,"cpu"]]', "shapes": "[[4]]"}, {}),
        ({"values": '[[1,2,0,4,4,"cpu"]]', "shapes": "[[2,2]]"}, {}),
        ({"values": "[[1, 2, 0, 4, 4, 'cpu']]", "shapes": "[[ 4 ]]"}, {}),
    ])  # fmt: skip
    tables = operand_tables(attributes)
    assert tables.operands["tensor"].to_list() == [0, 1, 0]
    assert tables.tensors["shape"].to_list() == [[4], [2, 2]]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (r'"a\"b\\c\u00e9\n"', 'a"b\\cé\n'), (r"'a\'b\\c\xe9\n'", "a'b\\cé\n"),
        (r'"\ud83d\ude00"', "😀"), (r'"it\'s \x41"', "it's A"), ('"é"', "é"),
        ('"[1, (2"', "[1, (2"),
        (r'"\ud800"', "\\ud800"), (r"'\N{nothing}'", r"\N{nothing}"), ("1e-05", "1e-05"),
        ("-inf", "-inf"), ("nan", "nan"), ("NaN", "NaN"), ("None", "null"), ('"None"', "None"),
        ("123456789012345678901234567890", "123456789012345678901234567890"), ("()", "[]"),
    ],
)  # fmt: skip
def test_scalars_are_kept_as_text(written: str, value: str) -> None:
    assert [leaf.value for leaf in leaves(f"[{written}]")] == [value]


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    builder = AttributeBuilder()
    builder.add(0, "inputs.values", "operand", b'["\xff", 1]')
    assert operand_tables(builder.build()).operands["value"].to_list() == ["\ufffd", "1"]


@pytest.mark.parametrize(
    "values",
    ["[1", "1]", "[1 2]", "[1,,2]", "[,]", "[(1]", '["a]', "3", '"abc"', "[1] 2", "{1: 2}",
     "[{1: 2}]", "", "[b'x']", " ", "[" * 61 + "]" * 61],
)  # fmt: skip
def test_what_cannot_be_read_is_kept_whole(values: str) -> None:
    found = leaves(values)
    assert found == ([Leaf(-1, 0, UNREADABLE, None, values)] if values else [])


@pytest.mark.parametrize(
    ("kind", "item", "text"),
    [("shapes", 1, "[[4]"), ("types", 2, "Tensor(float)"), ("strides", 3, "[[1]]]"),
     ("shapes", 1, '[["s0"]]'), ("strides", 3, "[[[1]]]")],
)  # fmt: skip
def test_values_are_read_without_the_rest(kind: str, item: int, text: str) -> None:
    assert leaves('[[1,2,0,4,4,"cpu"], 7]', **{kind: text}) == [
        Leaf(-1, item, UNREADABLE, None, text),
        Leaf(0, -1, "", (1, 2, 0, 4, 4, "cpu", "", (), ()), ""),
        Leaf(1, -1, "", None, "7"),
    ]


def test_lists_nest_to_the_stated_depth() -> None:
    inner = MAX_DEPTH - 1
    types = '["' + "GenericList[" * inner + "Int" + "]" * inner + '"]'
    (leaf,) = leaves("[" * MAX_DEPTH + "5" + "]" * MAX_DEPTH, types=types)
    assert leaf == Leaf(0, 0, "Int", None, "5")


def test_nothing_gives_empty_tables() -> None:
    tables = operand_tables(Attributes.empty())
    OPERANDS.check(tables.operands)
    TENSORS.check(tables.tensors)
    assert tables.operands.is_empty()
    assert tables.tensors.is_empty()


def test_the_texts_of_several_files_are_found() -> None:
    def one(node: int, name: str, text: str) -> Attributes:
        builder = AttributeBuilder()
        builder.add(node, name, "operand", text)
        return builder.build()

    device, host = one(0, "flow", "[0]"), one(1, "inputs.values", "[7, 8]")
    assert operand_tables(device.joined(host)).operands["value"].to_list() == ["7", "8"]
    both = device.joined(host).joined(one(1, "inputs.types", "['A', 'B']"))
    assert operand_tables(both).operands["type"].to_list() == ["A", "B"]
    assert operand_tables(device).operands.is_empty()


def test_other_attributes_are_left_alone() -> None:
    builder = AttributeBuilder()
    builder.add(-1, "inputs.values", "operand", "[1]")
    builder.add(0, "inputs.values", "string", "[2]")
    builder.add(1, "inputs.names", "operand", "[3]")
    assert operand_tables(builder.build()).operands.is_empty()
    assert len(OPERAND_NAMES) == 8


def test_a_trace_reads_both_at_once(shared_traces: Path) -> None:
    path = shared_traces / "cpu_mlp" / "host.json.gz"
    nodes = [(in_json(inputs), in_json(outputs)) for inputs, outputs in recorded_nodes(path)]
    trace = replace(nadi.read(path), given_attributes=attributes_of(nodes))
    assert trace.operands.height > trace.tensors.height > 100
    rules = nadi.trace.validate_trace(trace)["code"].str.split(".").list.first()
    assert not rules.is_in(["operands", "tensors"]).any()
    used = trace.operands.filter(pl.col("tensor") >= 0).height
    assert used == int((trace.operands["type"].cast(pl.String).str.starts_with("Tensor(")).sum())


# words of letters, so that a type never looks like a list
words = st.sampled_from(["Int", "String", "Tensor(float)", "Tensor(long int)", "Device", ""])
dims = st.lists(st.integers(-3, 9), max_size=3)
scalars = st.one_of(
    st.integers(-(2**70), 2**70), st.booleans(), st.none(), st.text(max_size=6),
    st.floats(allow_nan=False, allow_infinity=False),
)  # fmt: skip
tensors = st.tuples(
    *[st.one_of(st.integers(-2, 3), st.integers(-(10**18), 10**19))] * 5,
    st.sampled_from(["", "cpu"]),
).map(list)
values = st.recursive(
    st.one_of(scalars, tensors), lambda children: st.lists(children, max_size=4), max_leaves=8
)
shapes = st.recursive(dims, lambda children: st.lists(children, max_size=3), max_leaves=4)


@st.composite
def matching(draw: st.DrawFn, value: Any) -> tuple[Any, str, Any]:
    """Make shape, type and strides of a value; sometimes shorter than it should be."""
    if isinstance(value, list) and not oracle.is_tensor(as_read(value)):
        parts = [draw(matching(child)) for child in value]
        kept = [parts[: draw(st.integers(0, 9))] for _ in range(3)]
        name = draw(st.sampled_from(["GenericList", "Tuple"]))
        return (
            [shape for shape, _, _ in kept[0]],
            f"{name}[{','.join(type_name for _, type_name, _ in kept[1])}]",
            [strides for _, _, strides in kept[2]],
        )
    return draw(dims), draw(words), draw(dims)


def as_read(value: list[Any]) -> Any:
    return oracle.parse(json.dumps(value))


@st.composite
def operand_lists(draw: st.DrawFn) -> dict[str, Any]:
    given_values = draw(st.lists(values, max_size=4))
    parts = [draw(matching(value)) for value in given_values]
    lists = {"shapes": [p[0] for p in parts], "types": [p[1] for p in parts],
             "strides": [p[2] for p in parts]}  # fmt: skip
    short = {kind: items[: draw(st.integers(0, 9))] for kind, items in lists.items()}
    kept = {kind: items for kind, items in short.items() if draw(st.booleans())}
    return {"values": given_values, **kept}


def python_with_tuples(lists: dict[str, Any]) -> Texts:
    def tuples(value: Any) -> Any:
        if isinstance(value, list) and not oracle.is_tensor(as_read(value)):
            return tuple(tuples(child) for child in value)
        return value

    return {**in_python(lists), "values": str([tuples(value) for value in lists["values"]])}


def spaced_json(lists: dict[str, Any]) -> Texts:
    return {kind: json.dumps(items, indent=1, ensure_ascii=False) for kind, items in lists.items()}


@settings(max_examples=examples(300))
@given(
    st.lists(st.tuples(operand_lists(), operand_lists()), max_size=3),
    st.sampled_from([in_json, spaced_json, in_python, python_with_tuples]),
)
def test_random_operands_read_as_the_slow_way_does(
    lists: list[tuple[dict[str, Any], dict[str, Any]]], write: Any
) -> None:
    nodes = [(write(inputs), write(outputs)) for inputs, outputs in lists]
    assert leaves_of(operand_tables(attributes_of(nodes))) == expected(nodes)


@settings(max_examples=examples(300))
@given(
    st.lists(
        st.tuples(
            *[st.text(st.sampled_from("[](){},\"'\\ 1-aT[]"), max_size=12)] * 4
        ).map(lambda texts: dict(zip(KINDS, texts, strict=True))),
        max_size=3,
    )
)  # fmt: skip
def test_no_text_leads_astray(texts: list[Texts]) -> None:
    """Whatever stands there is read or kept whole; nothing is read past its end."""
    tables = operand_tables(attributes_of([(one, {}) for one in texts]))
    unread = tables.operands.filter(pl.col("position") < 0)
    for node, item, value in unread.select("node", "item", "value").iter_rows():
        assert texts[node][KINDS[item]] == value
