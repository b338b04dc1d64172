"""How Chakra's timeline visualizer takes lines of issues and callbacks, written from its rules.

A line has five columns, separated by commas: ``issue`` or ``callback``, then values behind any
key and ``=``: rank, cycle, node and name. A callback closes the issue of its rank and node, whose
name decides the lane; a name that says of no lane is an error, and so is a callback without issue.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Bar", "read_lines"]

LANES = ("local memory", "remote memory", "compute", "communication")


class Bar(NamedTuple):
    rank: int
    lane: str
    node: int
    name: str
    begin: int
    end: int


def lane_of(name: str) -> str:
    if "MEM_LOAD_NODE" in name or "MEM_STORE_NODE" in name:
        for place in ("local", "remote"):
            if f"{place.upper()}_MEMORY" in name:
                return f"{place} memory"
    if "COMP_NODE" in name:
        return "compute"
    if any(f"COMM_{kind}_NODE" in name for kind in ("SEND", "RECV", "COLL")):
        return "communication"
    raise ValueError(f"{name!r} is on no lane")


def read_lines(text: str) -> list[Bar]:
    """Give the bars in order of their callbacks."""
    issued: dict[tuple[int, int], tuple[str, int]] = {}
    bars = []
    for line in text.splitlines():
        word, *columns = line.split(",")
        rank, cycle, node, name = (column.split("=")[1] for column in columns[:4])
        key = int(rank), int(node)
        if word == "issue":
            assert key not in issued, line
            issued[key] = name, int(cycle)
        else:
            assert word == "callback", line
            name, begin = issued.pop(key)
            bars.append(Bar(key[0], lane_of(name), key[1], name, begin, int(cycle)))
    assert not issued
    return bars
