"""A memory bus that the packets of a rank share: a LogGP model, one transfer after the other.

There is a bus between the device and its network adapter, and one between the device and its
memory. What the device sends is read from memory first; what it gets is written there, and
reduced, and sent back the same way. Each bus has two sides, which send, receive and reduce in
order; a side that has sent many in a row lets the other have its turn.
"""

from __future__ import annotations

import numpy as np

from nadi.kernels.jit import called, inner
from nadi.simulator.engine import machine_state as M
from nadi.simulator.engine.event_queue import NOW, after
from nadi.simulator.engine.machine_state import Machine
from nadi.simulator.engine.network_links import free_message, new_message

__all__ = ["begin_bus_event", "request_bus", "run_bus"]

_MOST = 8  # transfers one way before the other way has its turn
_MEMORY_GAP = 0.0038  # ns per byte between a device and its memory
# what is to be done yet, the last first
_PUT, _GO_ON, _USE, _REDUCE = range(4)
# what a transfer is followed by
_FINAL, _THEN_PUT, _THEN_REDUCE = range(3)


@inner
def _do_later(machine: Machine, what: int, side: int, transfer: int) -> None:
    depth = machine.agenda.counters[M.DEPTH]
    row = machine.todo[depth]
    row[0], row[1], row[2] = what, side, transfer
    machine.agenda.counters[M.DEPTH] = depth + 1


@inner
def _append(machine: Machine, side: int, head: int, transfer: int) -> None:
    messages, sides = machine.messages, machine.sides
    messages[transfer, M.G_NEXT] = -1
    if sides[side, head] < 0:
        sides[side, head] = transfer
    else:
        messages[sides[side, head + 1], M.G_NEXT] = transfer
    sides[side, head + 1] = transfer


@inner
def _take_first(machine: Machine, side: int, head: int) -> int:
    transfer = machine.sides[side, head]
    machine.sides[side, head] = machine.messages[transfer, M.G_NEXT]
    return transfer


@inner
def _after(machine: Machine, side: int, time: int, kind: int) -> None:
    agenda = machine.agenda
    now = agenda.counters[NOW]
    after(agenda, side // 4, machine.world[M.W_RANKS], now + time, kind, side, 0)


@inner
def _send(machine: Machine, side: int) -> None:
    world, sides, now = machine.world, machine.sides, machine.agenda.counters[NOW]
    s, other = sides[side], side ^ 1
    gap = _MEMORY_GAP if side & 2 else machine.rates[machine.dims.shape[0], 1]
    wait = world[M.W_OVERHEAD]
    since = now - s[M.B_LAST]
    if s[M.B_BEFORE] == M.BUS_SENDS and wait + since <= world[M.W_PAUSE]:
        wait = world[M.W_PAUSE] - since
    transfer = _take_first(machine, side, M.B_SENDS)
    steps = gap * (machine.messages[transfer, M.G_SIZE] - 1)
    o = sides[other]
    _append(machine, other, M.B_RECEIVES, transfer)
    o[M.B_COUNT] += 1
    o[M.B_BEFORE], o[M.B_STATE], o[M.B_IN_A_ROW] = o[M.B_STATE], M.BUS_RECEIVES, 0
    there = wait + steps + world[M.W_LATENCY] + world[M.W_OVERHEAD]
    _after(machine, other, np.int64(there), M.BUS_RECEIVED)
    s[M.B_STATE] = M.BUS_SENDS
    _after(machine, side, np.int64(wait + steps), M.BUS_SENT)


@inner
def _start_reduction(machine: Machine, side: int) -> None:
    s = machine.sides[side]
    if s[M.B_REDUCES] == 0 and s[M.B_REDUCTIONS] >= 0:
        s[M.B_REDUCES] = 1
        size = machine.messages[s[M.B_REDUCTIONS], M.G_SIZE]
        _after(machine, side, size // 100 * machine.world[M.W_REDUCTION] + 50, M.BUS_REDUCED)


@inner
def _go_on(machine: Machine, side: int) -> None:
    s, o = machine.sides[side], machine.sides[side ^ 1]
    if s[M.B_STATE] == M.BUS_FREE and s[M.B_SENDS] >= 0:
        if s[M.B_IN_A_ROW] > _MOST and o[M.B_SENDS] >= 0 and o[M.B_IN_A_ROW] <= _MOST:
            _do_later(machine, _REDUCE, side, -1)
            if o[M.B_STATE] == M.BUS_FREE:
                _do_later(machine, _GO_ON, side ^ 1, -1)
            return
        _send(machine, side)
    _start_reduction(machine, side)


@inner
def _by_memory(machine: Machine, side: int, transfer: int, back: int, then: int) -> bool:
    """Let a transfer go to the device's memory; False where there is none."""
    if side & 3 != 0:
        return False
    size = machine.messages[transfer, M.G_SIZE]
    new = new_message(machine, 0, back, size, then, transfer, side)
    if new >= 0:
        _do_later(machine, _PUT, side + 2, new)
    return True


@inner
def _use(machine: Machine, side: int, transfer: int) -> int:
    """Reduce a transfer that has come, send it back, or be done; gives one that is done."""
    row = machine.messages[transfer]
    if row[M.G_AT] != 0:
        row[M.G_AT] = 0
        if not _by_memory(machine, side, transfer, 1, _THEN_REDUCE):
            _append(machine, side, M.B_REDUCTIONS, transfer)
            _do_later(machine, _GO_ON, side, -1)
        return -1
    if row[M.G_DST] != 0:
        row[M.G_DST] = 0
        if not _by_memory(machine, side, transfer, 1, _THEN_PUT):
            _do_later(machine, _PUT, side, transfer)
        return -1
    if row[M.G_KIND] == _FINAL:
        return -1 if _by_memory(machine, side, transfer, 0, _FINAL + 3) else transfer
    kind, a, b = row[M.G_KIND], row[M.G_A], row[M.G_B]
    free_message(machine, transfer)
    if kind == _FINAL + 3:
        return a
    if kind == _THEN_REDUCE:
        _append(machine, b, M.B_REDUCTIONS, a)
        _do_later(machine, _GO_ON, b, -1)
    else:
        _do_later(machine, _PUT, b, a)
    return -1


@called
def run_bus(machine: Machine, base: int) -> int:
    """Do what is to be done down to a depth; gives a transfer that is done, or -1 at the end."""
    counters = machine.agenda.counters
    while counters[M.DEPTH] > base:
        counters[M.DEPTH] -= 1
        row = machine.todo[counters[M.DEPTH]]
        what, side, transfer = row[0], row[1], row[2]
        if what == _PUT:
            _append(machine, side, M.B_SENDS, transfer)
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


@inner
def begin_bus_event(machine: Machine, kind: int, side: int) -> None:
    """Note that a side has sent, received or reduced; what follows is left to be done."""
    s, now = machine.sides[side], machine.agenda.counters[NOW]
    _do_later(machine, _GO_ON, side, -1)
    if kind == M.BUS_REDUCED:
        s[M.B_REDUCES] = 0
        _do_later(machine, _USE, side, _take_first(machine, side, M.B_REDUCTIONS))
        return
    s[M.B_LAST], s[M.B_BEFORE] = now, s[M.B_STATE]
    if kind == M.BUS_SENT:
        s[M.B_STATE] = M.BUS_FREE
        s[M.B_IN_A_ROW] += 1
        return
    if s[M.B_COUNT] < 2:
        s[M.B_STATE] = M.BUS_FREE
    s[M.B_COUNT] -= 1
    _do_later(machine, _USE, side, _take_first(machine, side, M.B_RECEIVES))


@called
def request_bus(
    machine: Machine, rank: int, size: int, reduces: int, back: int, outwards: int, stream: int,
    code: int,
) -> None:  # fmt: skip
    """Send a packet over the bus; ``code`` is given back with ``stream`` when it is done."""
    base = machine.agenda.counters[M.DEPTH]
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
