"""Small traces for the feeder, written with the protobuf package, and how to draw them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
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
def graphs(draw: st.DrawFn, largest: int = 30) -> list[tuple[int, list[int]]]:
    """Draw nodes in the order of a file, which need not be that of their dependencies."""
    count = draw(st.integers(1, largest))
    ids = draw(
        st.one_of(
            st.just(list(range(5, 5 + count))),
            st.lists(st.integers(0, 4 * count), min_size=count, max_size=count, unique=True),
        )
    )
    nodes = []
    for place, number in enumerate(ids):
        some = st.lists(st.sampled_from(ids[:place]), max_size=3, unique=True)
        nodes.append((number, draw(some) if place else []))
    if draw(st.booleans()):
        return draw(st.permutations(nodes))
    return nodes
