"""Transfers that share links: each is a flow, as fast as its links let it be.

A message is one flow over its way. So is a phase that meets, whole or of one chunk: its members
wait for each other, and what slows one of its links slows all of it. A transfer that has its links
for itself ends exactly when it would end alone: then its closed form holds. What others share its
links with ends later; all members of a phase then end with the last of its bytes.

Flows start and end in between: before the events of a time come the flows that have ended till
then, and after them the rates that hold from then on. So the order of events of one time does not
matter.
"""

import numpy as np

from nadi.kernels.jit import called, inner
from nadi.simulation.engine.codes import Event, Problem
from nadi.simulation.engine.event_queue import COUNTER, add_event, add_event_of, free_row, new_row
from nadi.simulation.engine.machine_state import (
    DIM,
    GROUP,
    NODE,
    PHASE,
    PS,
    SHAPE,
    STREAM,
    TRANSFER,
    WORLD,
    Machine,
)
from nadi.simulation.engine.parts import FLOWS, belongs_to
from nadi.simulation.flows.flow_events import advance, next_end, settle, start_flow, take_ended
from nadi.simulation.flows.flow_state import COUNT, FLOW, NEVER, RATE_UNITS, UNBOUND

_MOST = 1 << 52  # bytes of a flow
_ROUNDING = 1e-6  # of units
_SOONER = 4


@inner
def _rounded_up(number: float) -> int:
    whole = np.int64(number)
    return whole + 1 if whole < number else whole


@inner
def pair_of(machine: Machine, src: int, dst: int) -> int:
    """Give the number of a pair of ranks; -1 of a rank and itself."""
    dims = machine.dims
    last = dims.shape[0] - 1
    return src * dims[last, DIM.n] * dims[last, DIM.stride] + dst if src != dst else -1


@called
def _route_of(machine: Machine, pair: int) -> int:
    """Give the route of a pair of ranks."""
    pairs = machine.pairs
    low, high = 0, pairs.shape[0]
    while low < high:
        middle = (low + high) // 2
        if pairs[middle] < pair:
            low = middle + 1
        else:
            high = middle
    if low == pairs.shape[0] or pairs[low] != pair:
        machine.agenda.counters[COUNTER.problem] = Problem.NO_ROUTE
        return -1
    return low


@called
def _start(machine: Machine, route: int, units: int, time: int, latency: int) -> int:
    """Start a transfer that takes a time alone, which is not 0; -1 if there is no room for it.

    ``units`` is its rate alone. Its flow's bytes are parts of real ones, so many that it ends on
    the ns if nothing slows it.
    """
    counters, world, counts = machine.agenda.counters, machine.world, machine.flows.counts
    new = new_row(counters, COUNTER.free_transfer, machine.transfers, TRANSFER.next)
    if new < 0:
        return -1
    now = counters[COUNTER.now]
    if counts[COUNT.active] == 0:  # times in ps are counted from here
        world[WORLD.base] = now
        advance(machine.flows, 0)
    units = max(min(units, _MOST // time), 1)
    row = machine.transfers[new]
    cap = units * RATE_UNITS * 1_000_000_000
    row[TRANSFER.flow] = start_flow(machine.flows, route, units * time, new, cap)
    row[TRANSFER.end], row[TRANSFER.after] = now + time, latency
    if row[TRANSFER.flow] < 0:
        counters[COUNTER.problem] = Problem.TOO_SMALL
    return new


@belongs_to(FLOWS)
@called
def begin_message(
    machine: Machine, pair: int, size: int, alone: float, long: int, kind: int, a: int, b: int
) -> bool:
    """Begin a message of a pair of ranks; tells whether it is one that shares links.

    What goes to its own rank, or takes no time, does not. ``alone`` is the time of its bytes if
    nothing slows it, and ``long`` that with latency.
    """
    if pair < 0 or size <= 0:
        return False
    # one of a collective is followed by the next when it has left, in whole ns
    time = _rounded_up(alone) if kind == Event.SENT else np.int64(alone)
    time = min(time, long)
    if time <= 0:
        return False
    route = _route_of(machine, pair)
    if route < 0:
        return True
    # rounded down: those that share a link by a fixed rule fit on it
    units = np.int64(size / alone * machine.world[WORLD.units] + _ROUNDING)
    units = min(units, np.int64(machine.shares[route, 1]))
    new = _start(machine, route, units, time, long - time)
    if new >= 0:
        row = machine.transfers[new]
        row[TRANSFER.kind], row[TRANSFER.a], row[TRANSFER.b] = kind, a, b
    return True


@belongs_to(FLOWS)
@called
def begin_phase(
    machine: Machine, node: int, p: int, first: int, variant: int, size: int, end: int, present: int
) -> int:
    """Begin a phase of a collective, all of whose members are there.

    - ``node``, ``p``: Of one of its members; which phase of its recipe it is.
    - ``first``, ``variant``: The place in the group of its line's first member; its direction or
      tree, 0 or 1.
    - ``size``: Bytes of the chunk, or of all chunks.
    - ``end``: When its last member ends if nothing slows it down, in ns; -1 if its messages are
      followed: then its bytes take the time that the busiest link needs for them.
    - ``present``: How many of its members will be told of the end.
    - Returns: The transfer, and 1 more; 0 if it shares no links.
    """
    group_number = machine.nodes[node, NODE.peer]
    shape = machine.shapes[machine.nodes[node, NODE.key]]
    recipe, is_whole = shape[SHAPE.recipe], shape[SHAPE.whole] != 0
    way = machine.ways[group_number, recipe, p, variant]
    time = end - machine.agenda.counters[COUNTER.now]
    if way < 0 or size <= 0 or (time <= 0 and end >= 0):
        return 0
    phase = machine.phases[recipe, p]
    stride = phase[PHASE.stride]
    if machine.groups[group_number, GROUP.alike] == 0:  # else there is a route of this line only
        way += first // (stride * phase[PHASE.size]) * stride + first % stride
    beside = 1 if is_whole else phase[PHASE.beside]
    if end < 0:
        least = size * machine.shares[way, 0] / machine.shares[way, 2] * machine.world[WORLD.units]
        # links of a physical network may need longer than messages take: it ends with its bytes
        time = np.int64(least / _SOONER if machine.shares[way, 1] == UNBOUND else least * beside)
        if time <= 0:
            return 0
    units = _rounded_up(size * machine.shares[way, 0] / time * machine.world[WORLD.units])
    units = min(units, np.int64(machine.shares[way, 1]) // beside)
    new = _start(machine, way, units, time, 0)
    if new >= 0:
        row = machine.transfers[new]
        row[TRANSFER.kind] = Event.MET if is_whole else Event.MET_PHASE
        row[TRANSFER.a], row[TRANSFER.b] = -1, present
    return new + 1


@inner
def _free(machine: Machine, transfer: int) -> None:
    counters = machine.agenda.counters
    free_row(counters, COUNTER.free_transfer, machine.transfers, TRANSFER.next, transfer)


@belongs_to(FLOWS)
@called
def is_held(machine: Machine, kind: int, what: int) -> bool:
    """Tell whether a member's phase that would end about now does not, as others slow it.

    The member is then told when the phase ends.
    """
    is_whole = kind == Event.MET
    nodes, streams = machine.nodes, machine.streams
    transfer = (nodes[what, NODE.transfer] if is_whole else streams[what, STREAM.transfer]) - 1
    if transfer < 0:
        return False
    row = machine.transfers[transfer]
    flow = row[TRANSFER.flow]
    if flow >= 0:
        alone = (row[TRANSFER.end] - machine.world[WORLD.base]) * PS
        if machine.flows.flows[flow, FLOW.end] == NEVER:  # begun in this ns, as yet without a rate
            settle(machine.flows)
        if machine.flows.flows[flow, FLOW.end] > alone:
            if is_whole:
                nodes[what, NODE.next] = row[TRANSFER.a]
            else:
                streams[what, STREAM.next] = row[TRANSFER.a]
            row[TRANSFER.a] = what
            return True
    row[TRANSFER.b] -= 1
    if row[TRANSFER.b] == 0 and flow < 0:
        _free(machine, transfer)
    return False


@called
def _end_held(machine: Machine, transfer: int) -> None:
    """Tell members that were held that their phase ends now."""
    row, agenda = machine.transfers[transfer], machine.agenda
    now, kind, what = agenda.counters[COUNTER.now], row[TRANSFER.kind], row[TRANSFER.a]
    while what >= 0:
        if kind == Event.MET:
            following, rank = machine.nodes[what, NODE.next], machine.nodes[what, NODE.rank]
        else:
            following, rank = machine.streams[what, STREAM.next], machine.streams[what, STREAM.rank]
        add_event_of(agenda, rank, now, kind, what, now)
        what = following
    row[TRANSFER.a] = -1


@called
def _end(machine: Machine, transfer: int) -> None:
    """End a transfer whose bytes are there."""
    row = machine.transfers[transfer]
    kind = row[TRANSFER.kind]
    row[TRANSFER.flow] = -1
    if kind == Event.MET or kind == Event.MET_PHASE:
        _end_held(machine, transfer)
        if row[TRANSFER.b] == 0:
            _free(machine, transfer)
        return
    agenda = machine.agenda
    time = agenda.counters[COUNTER.now] + row[TRANSFER.after]
    add_event(agenda, time, kind, row[TRANSFER.a], row[TRANSFER.b])
    _free(machine, transfer)


@belongs_to(FLOWS)
@called
def end_flows(machine: Machine, now: int) -> None:
    """Come to a time: end the transfers whose bytes are there till then."""
    flows = machine.flows
    time = (now - machine.world[WORLD.base]) * PS
    if flows.counts[COUNT.active] == 0:
        return
    while next_end(flows) <= time:
        advance(flows, next_end(flows))
        transfer = take_ended(flows)
        while transfer >= 0:
            _end(machine, transfer)
            transfer = take_ended(flows)
        settle(flows)
    advance(flows, time)


@belongs_to(FLOWS)
@called
def settle_flows(machine: Machine, now: int) -> None:
    """Give flows the rates that hold from a time on, and see to it that their next end is seen."""
    flows, world = machine.flows, machine.world
    settle(flows)
    end = next_end(flows)
    if end == NEVER:
        return
    time = world[WORLD.base] + (end + PS - 1) // PS
    if time < world[WORLD.wake] or world[WORLD.wake] <= now:
        world[WORLD.wake] = time
        add_event(machine.agenda, time, Event.FLOWS, 0, 0)
