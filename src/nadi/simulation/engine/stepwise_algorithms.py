"""Algorithms in which members do different things: tables of steps, message by message or at once.

The tables are made by :mod:`nadi.simulation.collectives.step_tables`. ASTRA-sim's all-reduce up and
down a tree has none.
"""

import numpy as np

from nadi.kernels.jit import called, inner
from nadi.simulation.engine.codes import Comm, Event, StepKind
from nadi.simulation.engine.event_queue import COUNTER
from nadi.simulation.engine.machine_state import (
    MOST_PIECES,
    PHASE,
    PIECE,
    PROGRAM,
    SCRATCH,
    START,
    STEP,
    STREAM,
    Machine,
)
from nadi.simulation.engine.mailboxes import later, pass_memory, place_of, receive, send
from nadi.simulation.engine.message_times import leaving_time, part_of, reduction_time, travel_time
from nadi.simulation.engine.parts import MESSAGES, belongs_to


@inner
def bytes_of_step(machine: Machine, step: np.ndarray, s: np.ndarray) -> int:
    """Give how many bytes a step of a stream sends or takes of its chunk."""
    size, n = s[STREAM.size], s[STREAM.n]
    if step[STEP.parts] > 0:
        return step[STEP.count] * part_of(machine, size, step[STEP.parts])
    return step[STEP.count] * _bytes_of_piece(size, num_pieces(size, n), s[STREAM.pieces])


@inner
def num_pieces(size: int, n: int) -> int:
    """Give how many pieces a chunk goes in."""
    return max(min(-(-size // PIECE), max(n, MOST_PIECES)), 1)


@inner
def _bytes_of_piece(size: int, pieces: int, left: int) -> int:
    """Give the size of the piece from which on so many are left.

    Pieces are whole until there are as many as there may be; then all of them grow. So one byte
    more makes one piece larger, or is one more behind the others, and nothing is done sooner.
    """
    if size <= pieces * PIECE:
        return PIECE if left > 1 else size - (pieces - 1) * PIECE
    return (size + left - 1) // pieces


@inner
def _go_on(machine: Machine, stream: int) -> None:
    """Note that a step is done; after its last a member begins again, with the next piece."""
    s = machine.streams[stream]
    s[STREAM.todo] -= 1
    s[STREAM.at] = machine.step_rows[s[STREAM.at], STEP.next]
    if s[STREAM.at] < 0:
        s[STREAM.at] = s[STREAM.first]
        s[STREAM.pieces] -= 1


@belongs_to(MESSAGES)
@called
def come_in(machine: Machine, stream: int) -> None:
    """Let a message come in that is there: after those before it, and not before the phase."""
    s, now = machine.streams[stream], machine.agenda.counters[COUNTER.now]
    step = machine.step_rows[s[STREAM.at]]
    if step[STEP.beside] == 0:
        peer = (step[STEP.peer] + s[STREAM.root]) % s[STREAM.n]
        size = bytes_of_step(machine, step, s)
        comes = leaving_time(
            machine, place_of(machine, stream, peer), s[STREAM.place], size, s[STREAM.share],
            s[STREAM.pace],
        )  # fmt: skip
        s[STREAM.comes] = max(s[STREAM.comes] + comes, now)
        if s[STREAM.comes] > now:
            later(machine, stream, s[STREAM.comes] - now, Event.TAKEN, stream, 0)
            return
    take_in(machine, stream)


@belongs_to(MESSAGES)
@called
def take_in(machine: Machine, stream: int) -> None:
    """Take in what has come: the time of a packet, and a reduction."""
    s = machine.streams[stream]
    step = machine.step_rows[s[STREAM.at]]
    size = bytes_of_step(machine, step, s)
    _go_on(machine, stream)
    reduces = step[STEP.kind] == StepKind.TAKE_AND_REDUCE
    pass_memory(machine, stream, size, reduces, Event.STEP, False, s[STREAM.todo] > 0)


@belongs_to(MESSAGES)
@called
def follow(machine: Machine, stream: int) -> bool:
    """Do the next steps of a stream until one has to wait; tells whether the phase is over."""
    s, now = machine.streams[stream], machine.agenda.counters[COUNTER.now]
    while s[STREAM.todo] > 0:
        step = machine.step_rows[s[STREAM.at]]
        peer = (step[STEP.peer] + s[STREAM.root]) % s[STREAM.n]
        if step[STEP.kind] >= StepKind.TAKE:
            receive(machine, stream, peer, step[STEP.place])
            return False
        if step[STEP.beside] == 0 and s[STREAM.leaving] > now:
            later(machine, stream, s[STREAM.leaving] - now, Event.STEP, stream, 0)
            return False
        size = bytes_of_step(machine, step, s)
        leaves = leaving_time(
            machine, s[STREAM.place], place_of(machine, stream, peer), size, s[STREAM.share],
            s[STREAM.pace],
        )  # fmt: skip
        s[STREAM.leaving] = max(s[STREAM.leaving], now + leaves)
        send(machine, stream, peer, size, step[STEP.place])
        _go_on(machine, stream)
    if s[STREAM.leaving] > now:
        later(machine, stream, s[STREAM.leaving] - now, Event.EXIT, stream, 0)
        return False
    return True


@belongs_to(MESSAGES)
@called
def begin_steps(machine: Machine, stream: int) -> None:
    """Begin with the first step; who begins by sending spends the time of a packet first."""
    s = machine.streams[stream]
    s[STREAM.comes] = machine.agenda.counters[COUNTER.now]
    if s[STREAM.todo] == 0:
        later(machine, stream, 0, Event.EXIT, stream, 0)
        return
    step = machine.step_rows[s[STREAM.at]]
    if step[STEP.kind] >= StepKind.TAKE:
        follow(machine, stream)
    else:
        size = bytes_of_step(machine, step, s)
        pass_memory(machine, stream, size, False, Event.STEP, True, False)


@called
def find_member_steps(
    machine: Machine, stream: int, phase: np.ndarray, root: int, turn: int
) -> None:
    """Find the steps of a member: counted from the root, none if its line does not hold that."""
    s = machine.streams[stream]
    program = machine.programs[phase[PHASE.steps] + turn % phase[PHASE.trees]]
    n, stride = s[STREAM.n], s[STREAM.stride]
    s[STREAM.root], s[STREAM.todo], s[STREAM.at], s[STREAM.leaving] = 0, 0, -1, 0
    if phase[PHASE.comm] >= Comm.BROADCAST:
        if root % stride != s[STREAM.line] % stride:
            return
        # broadcasts have gone through the dimensions above, and sums through those below
        s[STREAM.root] = root // stride % n
    start = program[PROGRAM.starts] + (s[STREAM.index] - s[STREAM.root]) % n
    s[STREAM.at] = s[STREAM.first] = machine.starts[start, START.first]
    s[STREAM.pieces] = 1
    if program[PROGRAM.piped] != 0:
        s[STREAM.pieces] = num_pieces(s[STREAM.size], n)
    s[STREAM.todo] = machine.starts[start, START.count] * s[STREAM.pieces]


@called
def steps_at_once(
    machine: Machine, times: np.ndarray, phase: np.ndarray, size: int, delay: int, turn: int, n: int
) -> None:
    """Work out when each member is done where nothing contends.

    Steps are listed in an order in which they can be done.
    """
    ends, busy = times[SCRATCH.ends], times[SCRATCH.next]
    comes, ranks = times[SCRATCH.hops], times[SCRATCH.members]
    share, pace = phase[PHASE.share], phase[PHASE.pace]
    program = machine.programs[phase[PHASE.steps] + turn % phase[PHASE.trees]]
    steps = machine.step_rows
    for i in range(n):
        first = machine.starts[program[PROGRAM.starts] + i, START.first]
        sends = steps[first, STEP.kind] < StepKind.TAKE
        ends[i] = times[SCRATCH.starts, i] + (delay if sends else 0)
        busy[i], comes[i] = 0, times[SCRATCH.starts, i]
    for k in range(program[PROGRAM.first], program[PROGRAM.last]):
        step = steps[k]
        i, peer = step[STEP.member], step[STEP.peer]
        message = step[STEP.count] * part_of(machine, size, max(step[STEP.parts], 1))
        if step[STEP.kind] >= StepKind.TAKE:
            ends[i] = max(ends[i], steps[step[STEP.source], STEP.arrives])
            if step[STEP.beside] == 0:
                long = leaving_time(machine, ranks[peer], ranks[i], message, share, pace)
                comes[i] = ends[i] = max(ends[i], comes[i] + long)
            reduces = step[STEP.kind] == StepKind.TAKE_AND_REDUCE
            ends[i] += delay + (reduction_time(machine, message) if reduces else 0)
            continue
        if step[STEP.beside] == 0:
            ends[i] = max(ends[i], busy[i])
        src, dst = ranks[i], ranks[peer]
        leaves = leaving_time(machine, src, dst, message, share, pace)
        step[STEP.arrives] = ends[i] + travel_time(machine, src, dst, message, share, pace)
        busy[i] = max(busy[i], ends[i] + leaves)
    for i in range(n):
        ends[i] = max(ends[i], busy[i])


_WAITS_FOR_PARENT = 1  # state of a rank in a tree


@belongs_to(MESSAGES)
@inner
def begin_tree(machine: Machine, stream: int) -> None:
    """Let a leaf send, and everybody else wait for the children."""
    s = machine.streams[stream]
    if s[STREAM.left] < 0:
        pass_memory(machine, stream, s[STREAM.size], False, Event.UP, True, False)
        return
    receive(machine, stream, s[STREAM.left], 1)
    if s[STREAM.right] >= 0:
        receive(machine, stream, s[STREAM.right], 2)


@belongs_to(MESSAGES)
@called
def take_in_tree(machine: Machine, stream: int) -> None:
    """Take a message of a child or of the parent."""
    s = machine.streams[stream]
    if s[STREAM.left] < 0:
        pass_memory(machine, stream, s[STREAM.size], False, Event.EXIT, False, False)
    elif s[STREAM.state] == _WAITS_FOR_PARENT or s[STREAM.parent] < 0:
        pass_memory(machine, stream, s[STREAM.size], True, Event.DOWN, False, True)
    else:
        s[STREAM.taken] += 1
        last = s[STREAM.taken] == (1 if s[STREAM.right] < 0 else 2)
        pass_memory(machine, stream, s[STREAM.size], True, Event.REDUCE, False, last)


@belongs_to(MESSAGES)
@inner
def tree_reduce(machine: Machine, stream: int) -> bool:
    """Count a child whose data is reduced; tells whether that was the last child."""
    s = machine.streams[stream]
    s[STREAM.reduced] += 1
    return s[STREAM.reduced] == (1 if s[STREAM.right] < 0 else 2)


@belongs_to(MESSAGES)
@inner
def tree_up(machine: Machine, stream: int) -> None:
    """Send to the parent, and wait for what comes back."""
    s = machine.streams[stream]
    s[STREAM.state] = _WAITS_FOR_PARENT
    parent = s[STREAM.parent]
    is_left = s[STREAM.index] < parent or parent == 0  # the root, first or last, has one child
    send(machine, stream, parent, s[STREAM.size], 1 if is_left else 2)
    receive(machine, stream, parent, 0)


@belongs_to(MESSAGES)
@inner
def tree_down(machine: Machine, stream: int) -> None:
    """Send to the children."""
    s = machine.streams[stream]
    send(machine, stream, s[STREAM.left], s[STREAM.size], 0)
    if s[STREAM.right] >= 0:
        send(machine, stream, s[STREAM.right], s[STREAM.size], 0)


@called
def find_in_tree(s: np.ndarray, root_is_last: bool) -> None:
    """Find parent and children: a complete tree in order over all but the root."""
    n, index = s[STREAM.n], s[STREAM.index]
    offset = 0 if root_is_last else 1
    root = n - 1 if root_is_last else 0
    s[STREAM.right] = -1
    low, high = offset, n - 2 + offset
    if index == root:
        s[STREAM.parent] = -1
        s[STREAM.left] = (low + high) // 2
        return
    parent = root
    middle = (low + high) // 2
    while middle != index:
        parent = middle
        if index < middle:
            high = middle - 1
        else:
            low = middle + 1
        middle = (low + high) // 2
    s[STREAM.parent] = parent
    s[STREAM.left] = -1
    if low < high:
        s[STREAM.left] = (low + middle - 1) // 2
        s[STREAM.right] = (middle + 1 + high) // 2
