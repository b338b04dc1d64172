"""When flows end: a binary heap in which each flow knows its place."""

from __future__ import annotations

from nadi.kernels.jit import called, inner
from nadi.simulation.flows.flow_state import COUNT, FLOW, NEVER, Flows

__all__ = ["first_end", "put_end", "remove_end"]


@inner
def first_end(flows: Flows) -> int:
    """Return when the first flow ends; NEVER if none does."""
    return flows.ends[0, 0] if flows.counts[COUNT.ends] > 0 else NEVER


@inner
def _rise(flows: Flows, at: int, end: int, flow: int) -> None:
    """Put a flow at a place that is free, or above."""
    ends, rows = flows.ends, flows.flows
    while at > 0:
        parent = (at - 1) >> 1
        if ends[parent, 0] < end or (ends[parent, 0] == end and ends[parent, 1] < flow):
            break
        ends[at, 0], ends[at, 1] = ends[parent, 0], ends[parent, 1]
        rows[ends[at, 1], FLOW.place] = at + 1
        at = parent
    ends[at, 0], ends[at, 1] = end, flow
    rows[flow, FLOW.place] = at + 1


@inner
def _sink(flows: Flows, at: int, end: int, flow: int) -> None:
    """Put a flow at a place that is free, or below."""
    ends, rows, size = flows.ends, flows.flows, flows.counts[COUNT.ends]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        other = child + 1
        if other < size and (
            ends[other, 0] < ends[child, 0]
            or (ends[other, 0] == ends[child, 0] and ends[other, 1] < ends[child, 1])
        ):
            child = other
        if end < ends[child, 0] or (end == ends[child, 0] and flow < ends[child, 1]):
            break
        ends[at, 0], ends[at, 1] = ends[child, 0], ends[child, 1]
        rows[ends[at, 1], FLOW.place] = at + 1
        at = child
    ends[at, 0], ends[at, 1] = end, flow
    rows[flow, FLOW.place] = at + 1


@called
def put_end(flows: Flows, flow: int, end: int) -> None:
    """Say when a flow ends, whether that was known before or not."""
    rows, counts = flows.flows, flows.counts
    place, before = rows[flow, FLOW.place] - 1, rows[flow, FLOW.end]
    rows[flow, FLOW.end] = end
    if place < 0:
        counts[COUNT.ends] += 1
        _rise(flows, counts[COUNT.ends] - 1, end, flow)
    elif end < before:
        _rise(flows, place, end, flow)
    else:
        _sink(flows, place, end, flow)


@called
def remove_end(flows: Flows, flow: int) -> None:
    """Forget when a flow ends."""
    rows, counts, ends = flows.flows, flows.counts, flows.ends
    place = rows[flow, FLOW.place] - 1
    if place < 0:
        return
    rows[flow, FLOW.place] = 0
    counts[COUNT.ends] -= 1
    last = counts[COUNT.ends]
    if place == last:
        return
    end, moves = ends[last, 0], ends[last, 1]
    if end < rows[flow, FLOW.end] or (end == rows[flow, FLOW.end] and moves < flow):
        _rise(flows, place, end, moves)
    else:
        _sink(flows, place, end, moves)
