"""Small traces for the feeder, written with the protobuf package, and how to draw them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import strategies as st

from tests.reference.chakra_messages import AttributeProto, GlobalMetadata, Node, write_messages

Nodes = Sequence[tuple[int, Sequence[int]]]


def message(number: int, data_deps: Sequence[int] = (), **fields: Any) -> Any:
    return Node(**{"id": number, "name": f"n{number}", "type": 4, "data_deps": data_deps, **fields})


def attribute(name: str, kind: str, value: Any) -> Any:
    return AttributeProto(name=name, **{f"{kind}_val": value})


def content(messages: Sequence[Any]) -> bytes:
    return write_messages(GlobalMetadata(version="0.0.4"), messages)


def write(path: Path, nodes: Nodes) -> Path:
    """Write nodes that wait for others by data dependencies."""
    path.write_bytes(content([message(number, deps) for number, deps in nodes]))
    return path


@st.composite
def graphs(draw: st.DrawFn) -> list[tuple[int, list[int]]]:
    """Draw nodes in the order of a file, which need not be that of their dependencies."""
    choices = Random(draw(st.integers(0, 2**32)))
    count = draw(st.integers(1, 30))
    ids = choices.sample(range(4 * count), count)
    if draw(st.booleans()):
        ids = sorted(ids) if draw(st.booleans()) else list(range(5, 5 + count))
    nodes = [
        (number, choices.sample(ids[:place], choices.randint(0, min(place, 3))))
        for place, number in enumerate(ids)
    ]
    if draw(st.booleans()):
        choices.shuffle(nodes)
    return nodes
