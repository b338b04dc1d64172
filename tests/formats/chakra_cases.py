"""Chakra messages of every kind, for Hypothesis, and files that were never on a disk."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from hypothesis import strategies as st

from nadi.files.files import RawFile
from nadi.trace.protobuf_values import SCALAR_TYPES
from tests.reference.chakra_messages import AttributeProto, GlobalMetadata, IOInfo, Node

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
IDS = st.integers(0, 2**62 - 1)
MICROSECONDS = st.integers(1, 2**62 // 1000)  # an int64 of ns holds the end as well


def raw_file(content: bytes, name: str = "a.json") -> RawFile:
    array = np.frombuffer(bytearray(content), dtype=np.uint8)
    return RawFile(name, array, array)


def scalars(kind: str) -> st.SearchStrategy[Any]:
    if kind == "double":
        return st.floats(allow_nan=False) | st.just(float("nan"))
    if kind == "float":
        # NaN has many bit patterns; JSON has one
        return st.floats(width=32, allow_nan=False) | st.just(
            struct.unpack("<f", struct.pack("<f", float("nan")))[0]
        )
    if kind == "bool":
        return st.booleans()
    if kind == "string":
        return TEXTS
    if kind == "bytes":
        return st.binary(max_size=9)
    bits = int(kind[-2:])
    if kind.startswith(("uint", "fixed")):
        return st.integers(0, 2**bits - 1)
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


@st.composite
def attributes(draw: st.DrawFn) -> Any:
    attribute = AttributeProto(name=draw(TEXTS), doc_string=draw(st.just("") | TEXTS))
    kind = draw(st.sampled_from(["none", *SCALAR_TYPES]))
    if kind == "none":
        return attribute
    if draw(st.booleans()):
        values = getattr(attribute, f"{kind}_list").values
        values.extend(draw(st.lists(scalars(kind), max_size=3)))
        getattr(attribute, f"{kind}_list").SetInParent()
    else:
        setattr(attribute, f"{kind}_val", draw(scalars(kind)))
    return attribute


OPERANDS = st.none() | st.builds(IOInfo, values=TEXTS, shapes=TEXTS, types=TEXTS)
METADATA = st.builds(GlobalMetadata, version=TEXTS, attr=st.lists(attributes(), max_size=3))


@st.composite
def nodes(draw: st.DrawFn, number: int) -> Any:
    node = Node(
        id=number,
        name=draw(TEXTS),
        type=draw(st.integers(0, 7)),
        start_time_micros=draw(st.just(0) | MICROSECONDS),
        duration_micros=draw(st.just(0) | MICROSECONDS),
        attr=draw(st.lists(attributes(), max_size=4)),
    )
    near = IDS | st.integers(0, 8)
    node.ctrl_deps.extend(draw(st.lists(near, max_size=3)))
    node.data_deps.extend(draw(st.lists(near, max_size=3)))
    for side in ("inputs", "outputs"):
        if (operands := draw(OPERANDS)) is not None:
            getattr(node, side).CopyFrom(operands)
    return node


@st.composite
def traces(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    ids = draw(st.lists(st.integers(0, 8) | IDS, max_size=4, unique=True))
    return draw(METADATA), [draw(nodes(number)) for number in ids]
