"""A memory bus that the packets of a rank share: a LogGP model, one transfer after the other.

There is a bus between the device and its network adapter, and one between the device and its
memory. What the device sends is read from memory first; what it gets is written there, and
reduced, and sent back the same way. Each bus has two sides, which send, receive and reduce in
order; a side that has sent many in a row lets the other have its turn.
"""

import numpy as np

from nadi.kernels.jit import called, inner
from nadi.simulation.engine.codes import BusState, Event
from nadi.simulation.engine.event_queue import COUNTER, after, put_behind, take_queued
from nadi.simulation.engine.machine_state import MESSAGE, RATE, SIDE, TODO, WORLD, Machine
from nadi.simulation.engine.network_links import free_message, new_message

_MOST = 8  # transfers one way before the other way has its turn
_MEMORY_GAP = 0.0038  # ns per byte between a device and its memory
# what is to be done yet, the last first
_PUT, _GO_ON, _USE, _REDUCE = range(4)
# what a transfer is followed by
_FINAL, _THEN_PUT, _THEN_REDUCE = range(3)


@inner
def _do_later(machine: Machine, what: int, side: int, transfer: int) -> None:
    depth = machine.agenda.counters[COUNTER.depth]
    row = machine.todo[depth]
    row[TODO.what], row[TODO.side], row[TODO.transfer] = what, side, transfer
    machine.agenda.counters[COUNTER.depth] = depth + 1


@inner
def _append(machine: Machine, side: int, head: int, transfer: int) -> None:
    put_behind(machine.sides, side, head, machine.messages, MESSAGE.next, transfer)


@inner
def _take_first(machine: Machine, side: int, head: int) -> int:
    return take_queued(machine.sides, side, head, machine.messages, MESSAGE.next)


@inner
def _after(machine: Machine, side: int, time: int, kind: int) -> None:
    agenda = machine.agenda
    now = agenda.counters[COUNTER.now]
    after(agenda, side // 4, now + time, kind, side, 0)


@called
def _send(machine: Machine, side: int) -> None:
    world, sides, now = machine.world, machine.sides, machine.agenda.counters[COUNTER.now]
    s, other = sides[side], side ^ 1
    gap = _MEMORY_GAP if side & 2 else machine.rates[machine.dims.shape[0], RATE.latency]
    wait = world[WORLD.overhead]
    since = now - s[SIDE.last]
    if s[SIDE.before] == BusState.SENDS and wait + since <= world[WORLD.pause]:
        wait = world[WORLD.pause] - since
    transfer = _take_first(machine, side, SIDE.sends)
    steps = gap * (machine.messages[transfer, MESSAGE.size] - 1)
    o = sides[other]
    _append(machine, other, SIDE.receives, transfer)
    o[SIDE.count] += 1
    o[SIDE.before], o[SIDE.state], o[SIDE.in_a_row] = o[SIDE.state], BusState.RECEIVES, 0
    there = wait + steps + world[WORLD.latency] + world[WORLD.overhead]
    _after(machine, other, np.int64(there), Event.BUS_RECEIVED)
    s[SIDE.state] = BusState.SENDS
    _after(machine, side, np.int64(wait + steps), Event.BUS_SENT)


@inner
def _start_reduction(machine: Machine, side: int) -> None:
    s = machine.sides[side]
    if s[SIDE.reduces] == 0 and s[SIDE.reductions] >= 0:
        s[SIDE.reduces] = 1
        size = machine.messages[s[SIDE.reductions], MESSAGE.size]
        _after(machine, side, size // 100 * machine.world[WORLD.reduction] + 50, Event.BUS_REDUCED)


@called
def _go_on(machine: Machine, side: int) -> None:
    s, o = machine.sides[side], machine.sides[side ^ 1]
    if s[SIDE.state] == BusState.FREE and s[SIDE.sends] >= 0:
        if s[SIDE.in_a_row] > _MOST and o[SIDE.sends] >= 0 and o[SIDE.in_a_row] <= _MOST:
            _do_later(machine, _REDUCE, side, -1)
            if o[SIDE.state] == BusState.FREE:
                _do_later(machine, _GO_ON, side ^ 1, -1)
            return
        _send(machine, side)
    _start_reduction(machine, side)


@inner
def _by_memory(machine: Machine, side: int, transfer: int, back: int, then: int) -> bool:
    """Let a transfer go to the device's memory; False where there is none."""
    if side & 3 != 0:
        return False
    size = machine.messages[transfer, MESSAGE.size]
    new = new_message(machine, 0, back, size, then, transfer, side)
    if new >= 0:
        _do_later(machine, _PUT, side + 2, new)
    return True


@called
def _use(machine: Machine, side: int, transfer: int) -> int:
    """Reduce a transfer that has come, send it back, or be done; gives one that is done."""
    row = machine.messages[transfer]
    if row[MESSAGE.at] != 0:
        row[MESSAGE.at] = 0
        if not _by_memory(machine, side, transfer, 1, _THEN_REDUCE):
            _append(machine, side, SIDE.reductions, transfer)
            _do_later(machine, _GO_ON, side, -1)
        return -1
    if row[MESSAGE.dst] != 0:
        row[MESSAGE.dst] = 0
        if not _by_memory(machine, side, transfer, 1, _THEN_PUT):
            _do_later(machine, _PUT, side, transfer)
        return -1
    if row[MESSAGE.kind] == _FINAL:
        return -1 if _by_memory(machine, side, transfer, 0, _FINAL + 3) else transfer
    kind, a, b = row[MESSAGE.kind], row[MESSAGE.a], row[MESSAGE.b]
    free_message(machine, transfer)
    if kind == _FINAL + 3:
        return a
    if kind == _THEN_REDUCE:
        _append(machine, b, SIDE.reductions, a)
        _do_later(machine, _GO_ON, b, -1)
    else:
        _do_later(machine, _PUT, b, a)
    return -1


@called
def run_bus(machine: Machine, base: int) -> int:
    """Do what is to be done down to a depth; gives a transfer that is done, or -1 at the end."""
    counters = machine.agenda.counters
    while counters[COUNTER.depth] > base:
        counters[COUNTER.depth] -= 1
        row = machine.todo[counters[COUNTER.depth]]
        what, side, transfer = row[TODO.what], row[TODO.side], row[TODO.transfer]
        if what == _PUT:
            _append(machine, side, SIDE.sends, transfer)
            _go_on(machine, side)
        elif what == _GO_ON:
            _go_on(machine, side)
        elif what == _REDUCE:
            _start_reduction(machine, side)
        else:
            done = _use(machine, side, transfer)
            if done >= 0:
                return done
    return -1


@called
def begin_bus_event(machine: Machine, kind: int, side: int) -> None:
    """Note that a side has sent, received or reduced; what follows is left to be done."""
    s, now = machine.sides[side], machine.agenda.counters[COUNTER.now]
    _do_later(machine, _GO_ON, side, -1)
    if kind == Event.BUS_REDUCED:
        s[SIDE.reduces] = 0
        _do_later(machine, _USE, side, _take_first(machine, side, SIDE.reductions))
        return
    s[SIDE.last], s[SIDE.before] = now, s[SIDE.state]
    if kind == Event.BUS_SENT:
        s[SIDE.state] = BusState.FREE
        s[SIDE.in_a_row] += 1
        return
    if s[SIDE.count] < 2:
        s[SIDE.state] = BusState.FREE
    s[SIDE.count] -= 1
    _do_later(machine, _USE, side, _take_first(machine, side, SIDE.receives))


@called
def request_bus(
    machine: Machine, rank: int, size: int, reduces: int, back: int, outwards: int, stream: int,
    code: int,
) -> None:  # fmt: skip
    """Send a packet over the bus; ``code`` is given back with ``stream`` when it is done."""
    base = machine.agenda.counters[COUNTER.depth]
    side = 4 * rank + (0 if outwards != 0 else 1)
    transfer = new_message(machine, reduces, back, size, _FINAL, stream, code)
    if transfer < 0:
        return
    if outwards != 0:  # it is read from the device's memory first
        reading = new_message(machine, 0, 0, size, _THEN_PUT, transfer, side)
        if reading < 0:
            return
        _do_later(machine, _PUT, side + 3, reading)
    else:
        _do_later(machine, _PUT, side, transfer)
    run_bus(machine, base)
