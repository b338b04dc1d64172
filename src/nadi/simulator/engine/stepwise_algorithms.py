"""Algorithms in which members do different things: tables of steps, followed message by message.

The tables are made by :mod:`nadi.simulator.collectives.step_tables`.
"""

from __future__ import annotations

import numpy as np

from nadi.kernels.jit import called, inner
from nadi.simulator.engine import machine_state as M
from nadi.simulator.engine.event_queue import NOW
from nadi.simulator.engine.machine_state import Machine
from nadi.simulator.engine.mail import later, pass_memory, rank_of, receive, send
from nadi.simulator.engine.network_links import leaving_time, part_of

__all__ = ["begin_steps", "bytes_of_step", "come_in", "find_steps", "follow", "take_in"]


@inner
def bytes_of_step(machine: Machine, step: np.ndarray, size: int, pieces: int) -> int:
    """Give how many bytes a step sends or takes of a chunk."""
    parts = step[M.E_PARTS] if step[M.E_PARTS] > 0 else pieces
    return step[M.E_COUNT] * part_of(machine, size, parts)


@inner
def _go_on(machine: Machine, stream: int) -> None:
    """Note that a step is done; after its last a member begins again."""
    s = machine.streams[stream]
    s[M.S_TODO] -= 1
    s[M.S_AT] = machine.steps[s[M.S_AT], M.E_NEXT]
    if s[M.S_AT] < 0:
        s[M.S_AT] = s[M.S_FIRST]


@inner
def come_in(machine: Machine, stream: int) -> None:
    """Let a message come in that is there: after those before it, and not before the phase."""
    s, now = machine.streams[stream], machine.agenda.counters[NOW]
    step = machine.steps[s[M.S_AT]]
    if step[M.E_BESIDE] == 0:
        peer = (step[M.E_PEER] + s[M.S_ROOT]) % s[M.S_N]
        size = bytes_of_step(machine, step, s[M.S_SIZE], s[M.S_PIECES])
        comes = leaving_time(
            machine, rank_of(machine, stream, peer), s[M.S_RANK], size, s[M.S_SHARE],
            s[M.S_PACE],
        )  # fmt: skip
        s[M.S_COMES] = max(s[M.S_COMES] + comes, now)
        if s[M.S_COMES] > now:
            later(machine, stream, s[M.S_COMES] - now, M.TAKEN, stream, 0)
            return
    take_in(machine, stream)


@called
def take_in(machine: Machine, stream: int) -> None:
    """Take in what has come: the time of a packet, and a reduction."""
    s = machine.streams[stream]
    step = machine.steps[s[M.S_AT]]
    size = bytes_of_step(machine, step, s[M.S_SIZE], s[M.S_PIECES])
    _go_on(machine, stream)
    reduces = step[M.E_KIND] == M.TAKE_AND_REDUCE
    pass_memory(machine, stream, size, reduces, M.STEP, False, s[M.S_TODO] > 0)


@called
def follow(machine: Machine, stream: int) -> bool:
    """Do the next steps of a stream until one has to wait; tells whether the phase is over."""
    s, now = machine.streams[stream], machine.agenda.counters[NOW]
    while s[M.S_TODO] > 0:
        step = machine.steps[s[M.S_AT]]
        peer = (step[M.E_PEER] + s[M.S_ROOT]) % s[M.S_N]
        if step[M.E_KIND] >= M.TAKE_STEP:
            receive(machine, stream, peer, step[M.E_PLACE])
            return False
        if step[M.E_BESIDE] == 0 and s[M.S_BUSY] > now:
            later(machine, stream, s[M.S_BUSY] - now, M.STEP, stream, 0)
            return False
        size = bytes_of_step(machine, step, s[M.S_SIZE], s[M.S_PIECES])
        leaves = leaving_time(
            machine, s[M.S_RANK], rank_of(machine, stream, peer), size, s[M.S_SHARE],
            s[M.S_PACE],
        )  # fmt: skip
        s[M.S_BUSY] = max(s[M.S_BUSY], now + leaves)
        send(machine, stream, peer, size, step[M.E_PLACE])
        _go_on(machine, stream)
    if s[M.S_BUSY] > now:
        later(machine, stream, s[M.S_BUSY] - now, M.EXIT, stream, 0)
        return False
    return True


@inner
def begin_steps(machine: Machine, stream: int) -> None:
    """Begin with the first step; who begins by sending spends the time of a packet first."""
    s = machine.streams[stream]
    s[M.S_COMES] = machine.agenda.counters[NOW]
    if s[M.S_TODO] == 0:
        later(machine, stream, 0, M.EXIT, stream, 0)
        return
    step = machine.steps[s[M.S_AT]]
    if step[M.E_KIND] >= M.TAKE_STEP:
        follow(machine, stream)
    else:
        size = bytes_of_step(machine, step, s[M.S_SIZE], s[M.S_PIECES])
        pass_memory(machine, stream, size, False, M.STEP, True, False)


@inner
def find_steps(machine: Machine, stream: int, phase: np.ndarray, root: int, turn: int) -> None:
    """Find the steps of a member: counted from the root, none if its line does not hold that."""
    s = machine.streams[stream]
    program = machine.programs[phase[M.P_STEPS] + turn % phase[M.P_TREES]]
    n, stride = s[M.S_N], s[M.S_STRIDE]
    s[M.S_ROOT], s[M.S_TODO], s[M.S_AT], s[M.S_BUSY] = 0, 0, -1, 0
    if phase[M.P_COMM] >= M.BROADCAST:
        if root % stride != s[M.S_LINE] % stride:
            return
        # broadcasts have gone through the dimensions above, and sums through those below
        s[M.S_ROOT] = root // stride % n
    start = program[M.A_STARTS] + (s[M.S_INDEX] - s[M.S_ROOT]) % n
    s[M.S_AT] = s[M.S_FIRST] = machine.starts[start, 0]
    s[M.S_PIECES] = 1
    if program[M.A_PIPED] != 0:
        pieces = -(-s[M.S_SIZE] // M.PIECE)
        s[M.S_PIECES] = max(min(pieces, max(n, M.MOST_PIECES)), 1)
    s[M.S_TODO] = machine.starts[start, 1] * s[M.S_PIECES]
