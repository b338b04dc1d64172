"""Small files read together are what they are one by one, and odd ones are left to that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import nadi
from nadi.files.chakra import et_decode as chakra_decode
from nadi.files.chakra.et_ranks import decode_ranks
from nadi.files.trace_files import read_files
from nadi.trace.trace import Trace
from tests.formats.chakra_cases import raw_file
from tests.model.test_attributes import scalars
from tests.reference.chakra_messages import AttributeProto, GlobalMetadata, Node, write_messages

_NAMES = ("is_cpu_op", "involved_dim", "num_ops", "not there")
_GROUPS = '[{"pg_name": "b", "pg_desc": "x", "ranks": [3, 1]}, {"pg_name": "a", "ranks": []}]'


def assert_same(together: Trace, alone: Trace) -> None:
    together.assert_equals(alone)
    assert together.provenance == alone.provenance
    for name in _NAMES:
        expected = alone.attributes.nodes_with(name).tolist()
        # those that were not asked for anything yet too
        assert together.given_attributes.nodes_with(name).tolist() == expected
    assert together.given_attributes.nodes_with("is_cpu_op").dtype == np.int32


@st.composite
def node_attributes(draw: st.DrawFn) -> list[Any]:
    """Make attributes that columns are read from, mostly of the types that are usual."""
    protos = []
    for name in draw(st.lists(st.sampled_from([
        "is_cpu_op", "pg_name", "num_ops", "tensor_size", "comm_type", "comm_size", "comm_src",
        "tag", "category", "start_ns", "thread", "tid", "rf_id", "involved_dim", "stream", "note",
    ]), max_size=6)):  # fmt: skip
        proto = AttributeProto(name=name)
        if draw(st.integers(0, 9)) == 0:
            kind = draw(st.sampled_from(["double", "string", "int32", "bytes"]))
            setattr(proto, f"{kind}_val", draw(scalars(kind)))
        elif name in ("pg_name", "category", "note"):
            texts = ["", "a", "b", "kernel", "operator", "is_cpu_op", "involved_dim"]
            proto.string_val = draw(st.sampled_from(texts))
        elif name == "involved_dim":
            proto.bool_list.values.extend(draw(st.lists(st.booleans(), max_size=3)))
            proto.bool_list.SetInParent()
        elif name == "is_cpu_op":
            proto.bool_val = draw(st.booleans())
        else:
            proto.int64_val = draw(st.integers(-1, 9))
        protos.append(proto)
    return protos


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Make a file of which there is mostly nothing to tell: nodes wait for earlier ones."""
    metadata = GlobalMetadata(version=draw(st.sampled_from(["", "0.0.4", "1.0.0"])))
    if draw(st.booleans()):
        metadata.attr.append(AttributeProto(name="rank", int64_val=draw(st.integers(0, 3))))
    if draw(st.integers(0, 3)) == 0:
        metadata.attr.append(AttributeProto(name="process_groups", string_val=_GROUPS))
    ids = draw(st.lists(st.integers(0, 40), unique=True, max_size=6))
    nodes = []
    for place, number in enumerate(ids):
        earlier = st.lists(st.sampled_from(ids[:place]), unique=True) if place else st.just([])
        nodes.append(Node(
            id=number, name=draw(st.sampled_from(["", "é", "add", "mm"])),
            type=draw(st.integers(0, 7)), ctrl_deps=draw(earlier) if draw(st.booleans()) else [],
            data_deps=draw(earlier), start_time_micros=draw(st.integers(0, 2)),
            duration_micros=draw(st.integers(0, 2)), attr=draw(node_attributes()),
        ))  # fmt: skip
    return write_messages(metadata, nodes)


@settings(deadline=None)
@given(st.lists(files(), min_size=3, max_size=5))
def test_traces_are_those_of_each_file(contents: list[bytes]) -> None:
    raws = [raw_file(content, f"trace.{k}.et") for k, content in enumerate(contents)]
    together = decode_ranks(raws)
    alone = [chakra_decode.decode(raw) for raw in raws]
    if together is None:
        return  # some are odd, and the next test says which may be
    assert len(together) == len(alone)
    for one, other in zip(together, alone, strict=True):
        assert_same(one, other)


def plain(rank: int, **changes: Any) -> bytes:
    """Write a file as those of a job are: alike but for names, groups and some ids."""
    metadata = GlobalMetadata(version="0.0.4")
    metadata.attr.append(AttributeProto(name="process_groups", string_val=_GROUPS))
    nodes: list[Any] = []
    for k in range(5):
        node = Node(id=10 - 2 * k + rank, name=f"op {k % 2} of {rank % 2}", type=4)
        node.attr.append(AttributeProto(name="is_cpu_op", bool_val=k == 3))
        if k:
            node.data_deps.append(nodes[-1].id)
        if k == 4:
            node.ctrl_deps.append(nodes[0].id)
            node.type = 7
            node.attr.append(AttributeProto(name="pg_name", string_val=["a", "c"][rank % 2]))
        nodes.append(node)
    for name, value in changes.items():
        nodes[2].ClearField(name)
        if isinstance(value, list):
            getattr(nodes[2], name).extend(value)
        else:
            setattr(nodes[2], name, value)
    return write_messages(metadata, nodes)


def test_plain_files_are_read_together(tmp_path: Path) -> None:
    paths = [tmp_path / f"trace.{rank}.et" for rank in range(7)]
    for rank, path in enumerate(paths):
        path.write_bytes(plain(rank))
    raws = [raw_file(path.read_bytes(), str(path)) for path in paths]
    together = decode_ranks(raws)
    assert together is not None
    for one, path in zip(together, paths, strict=True):
        assert_same(one, nadi.read(path))
    for one, path in zip(read_files(paths), paths, strict=True):
        assert_same(one, nadi.read(path))


_NS = AttributeProto(name="duration_ns", int64_val=1)
_ODD: dict[str, Callable[[], bytes]] = {
    "a dependency that is not there": lambda: plain(0, data_deps=[3]),
    "a dependency beyond all": lambda: plain(0, data_deps=[2**40]),
    "a dependency on itself": lambda: plain(0, data_deps=[6]),
    "a dependency twice": lambda: plain(0, data_deps=[8, 8]),
    "a cycle": lambda: plain(0, data_deps=[4]),
    "an id twice": lambda: plain(0, id=10),
    "times in ns in one only": lambda: plain(0, attr=[_NS]),
    "an end beyond time": lambda: plain(0, start_time_micros=2**53, duration_micros=2**53),
    "a field that is not known": lambda: plain(0) + b"\x06\x08\x63\xa0\x06\x01\x18",
    "no bytes": lambda: b"",
    "cut off": lambda: plain(0)[:-3],
    "of another format": lambda: b"MICRO\n0\n",
}


@pytest.mark.parametrize("what", _ODD)
def test_odd_files_are_left_to_who_tells_of_them(tmp_path: Path, what: str) -> None:
    paths = [tmp_path / f"trace.{rank}.et" for rank in range(3)]
    for rank, path in enumerate(paths):
        path.write_bytes(_ODD[what]() if rank == 1 else plain(rank))
    raws = [raw_file(path.read_bytes(), str(path)) for path in paths]
    if what != "of another format":
        assert decode_ranks(raws) is None

    def told(read: Callable[[], list[Trace]]) -> Any:
        try:
            return read()
        except nadi.errors.InputError as error:
            return str(error)

    expected = told(lambda: [nadi.read(path) for path in paths])
    found = told(lambda: read_files(paths))
    if isinstance(expected, str):
        assert found == expected
        return
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other)
