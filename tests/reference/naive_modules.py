"""The module and phase of each operation, operation by operation, from the events alone."""

from __future__ import annotations

import re
from typing import Any

Event = dict[str, Any]


def modules_of(events: list[Event]) -> list[tuple[str, str]]:
    """Return the module's path and the phase of each event of a device trace.

    Parameters
    ----------
    events
        Complete events, in any order. Those of a thread are nested in each other.
    """
    around = [_around(event, events) for event in events]
    return [_module(k, events, around) for k in range(len(events))]


def _around(event: Event, events: list[Event]) -> int:
    best = -1
    for k, other in enumerate(events):
        if other is event or other["tid"] != event["tid"] or "stream" in event["args"]:
            continue
        inside = other["ts"] <= event["ts"] and _end(event) <= _end(other)
        if inside and (best < 0 or other["dur"] < events[best]["dur"]):
            best = k
    return best


def _end(event: Event) -> int:
    return int(event["ts"] + event["dur"])


def _chain(k: int, around: list[int]) -> list[int]:
    """Return an event and all around it, from the inside."""
    chain = []
    while k >= 0:
        chain.append(k)
        k = around[k]
    return chain


def _module(k: int, events: list[Event], around: list[int]) -> tuple[str, str]:
    event = events[k]
    if "stream" in event["args"]:
        for call, other in enumerate(events):
            if other["cat"] == "cuda_runtime" and _same(other, event, "correlation"):
                return _module(call, events, around)
        return "", "other"
    chain = _chain(k, around)
    if any(events[c]["name"].startswith("Optimizer.step#") for c in chain):
        return "", "optimizer"
    backward = any(_is_node(events[c]) for c in chain)
    for c in chain:
        if events[c]["name"].startswith("nn.Module: "):
            return _path(c, events, around), "backward" if backward else "forward"
        if _is_node(events[c]):
            return _of_node(c, events, around), "backward"
    return "", "other"


def _same(one: Event, other: Event, key: str) -> bool:
    return bool(one["args"].get(key) == other["args"][key])


def _is_node(event: Event) -> bool:
    sequence = event["args"].get("Sequence number", -1)
    if re.search("AccumulateGrad$", event["name"]):
        return True
    return sequence >= 0 and bool(re.search(r"evaluate_function: |Backward\d*$", event["name"]))


def _path(k: int, events: list[Event], around: list[int]) -> str:
    names = [events[c]["name"] for c in reversed(_chain(k, around))]
    return ".".join(name[11:] for name in names if name.startswith("nn.Module: "))


def _of_node(k: int, events: list[Event], around: list[int]) -> str:
    node = events[k]
    if node["name"].endswith("AccumulateGrad"):
        before = [
            c
            for c, other in enumerate(events)
            if "evaluate_function" in other["name"]
            and not other["name"].endswith("AccumulateGrad")
            and other["tid"] == node["tid"]
            and other["ts"] < node["ts"]
        ]
        return _of_node(max(before, key=lambda c: events[c]["ts"]), events, around)
    made = [
        c
        for c, other in enumerate(events)
        if other["cat"] == "cpu_op"
        and not _is_node(other)
        and _same(other, node, "Sequence number")
        and other["tid"] == node["args"]["forward thread"]
        and other["ts"] < node["ts"]
    ]
    return _path(max(made, key=lambda c: events[c]["ts"]), events, around)
