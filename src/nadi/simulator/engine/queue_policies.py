"""Who comes first in queues with another policy than first come, first served.

A phase starts on all its members at once, when all their queues have room. Those that wait for
the same queues wait in one line, of which only the first has to be looked at. While any waits, one
of these queues is full: the line stands there and nowhere else, and what the other members do
does not concern it.
"""

from __future__ import annotations

from nadi.kernels.jit import called, inner
from nadi.simulator.engine import machine_state as M
from nadi.simulator.engine.machine_state import Machine
from nadi.simulator.engine.mail import rank_of

__all__ = ["has_to_wait", "next_with_room", "put_in_line", "queues_of"]


@inner
def queues_of(machine: Machine, rank: int) -> int:
    """Give the first queue of a rank; of a difference of ranks, how far apart these are."""
    world = machine.world
    of_rank = world[M.W_SETS] * machine.dims.shape[0] * world[M.W_QUEUES]
    return rank * of_rank * world[M.W_WAYS]


@inner
def _line_of(machine: Machine, stream: int) -> int:
    """Give the line of a stream's phase, whose members are those of a line in their group.

    It has the number of the first of them; if they are all of the group that of the last, which
    is never the first of a dimension's.
    """
    s = machine.streams[stream]
    if machine.world[M.W_ALIKE] != 0:
        return s[M.S_QUEUE]
    group = machine.groups[s[M.S_GROUP]]
    is_in_dimension = machine.phases[s[M.S_RECIPE], s[M.S_PHASE], M.P_DIM] >= 0
    member = group[M.U_MEMBERS] + (s[M.S_LINE] if is_in_dimension else group[M.U_SIZE] - 1)
    return s[M.S_QUEUE] + queues_of(machine, member - s[M.S_RANK])


@inner
def _queue_of(machine: Machine, stream: int, index: int) -> int:
    """Give the queue in which a stream's phase waits on a member."""
    s = machine.streams[stream]
    return s[M.S_QUEUE] + queues_of(machine, rank_of(machine, stream, index) - s[M.S_RANK])


@called
def _full_member(machine: Machine, stream: int, first: int) -> int:
    """Give a member of a phase whose queue is full, looking from one of them on; -1 if none is."""
    n = machine.streams[stream, M.S_N]
    for k in range(first, first + n):
        index = k if k < n else k - n
        queue = _queue_of(machine, stream, index)
        if machine.queues[queue, M.Q_RUNNING] >= machine.world[M.W_LIMIT]:
            return index
    return -1


@inner
def _stand(machine: Machine, line: int, queue: int, index: int) -> None:
    """Let a line stand at the queue of a member, till that has room."""
    machine.lines[line, M.X_NEXT] = machine.queues[queue, M.Q_HEAD]
    machine.lines[line, M.X_FULL] = index
    machine.queues[queue, M.Q_HEAD] = line


# a line is a heap: so the first is found without a walk past those that wait


@inner
def _comes_before(machine: Machine, a: int, b: int) -> bool:
    waiting = machine.waiting
    if waiting[a, M.I_PRIORITY] != waiting[b, M.I_PRIORITY]:
        return waiting[a, M.I_PRIORITY] > waiting[b, M.I_PRIORITY]
    return waiting[a, M.I_ORDER] < waiting[b, M.I_ORDER]


@inner
def _joined(machine: Machine, a: int, b: int) -> int:
    """Put of two streams the later under the earlier, with all that is under it."""
    waiting = machine.waiting
    if _comes_before(machine, b, a):
        a, b = b, a
    waiting[b, M.I_BESIDE] = waiting[a, M.I_UNDER]
    waiting[a, M.I_UNDER] = b
    return a


@called
def _take_first(machine: Machine, line: int) -> int:
    """Take the first out of a line. O(log(those that wait)) on average over a run."""
    waiting = machine.waiting
    first = machine.lines[line, M.X_FIRST]
    left, pairs, rest = waiting[first, M.I_UNDER], -1, -1
    while left >= 0:
        pair, left = left, waiting[left, M.I_BESIDE]
        if left >= 0:
            other, left = left, waiting[left, M.I_BESIDE]
            pair = _joined(machine, pair, other)
        waiting[pair, M.I_BESIDE] = pairs
        pairs = pair
    while pairs >= 0:
        pair, pairs = pairs, waiting[pairs, M.I_BESIDE]
        rest = pair if rest < 0 else _joined(machine, rest, pair)
    machine.lines[line, M.X_FIRST] = rest
    return first


@called
def put_in_line(machine: Machine, stream: int) -> None:
    """Let a phase wait in its line, as a stream of it."""
    own, lines, counters = machine.waiting[stream], machine.lines, machine.agenda.counters
    counters[M.WAITED] += 1
    own[M.I_PRIORITY], own[M.I_ORDER] = 0, -counters[M.WAITED]
    if machine.world[M.W_POLICY] == M.EXPLICIT:
        own[M.I_PRIORITY] = machine.nodes[machine.streams[stream, M.S_NODE], M.N_SIZE]
        own[M.I_ORDER] = counters[M.WAITED]
    own[M.I_UNDER] = own[M.I_BESIDE] = -1
    line = _line_of(machine, stream)
    first = lines[line, M.X_FIRST]
    lines[line, M.X_FIRST] = stream if first < 0 else _joined(machine, first, stream)


@called
def has_to_wait(machine: Machine, stream: int) -> bool:
    """Put a phase into its line if not all its members have room; tells whether that is so."""
    line = _line_of(machine, stream)
    if machine.lines[line, M.X_FULL] < 0:  # nobody waits in it
        full = _full_member(machine, stream, 0)
        if full < 0:
            return False
        _stand(machine, line, _queue_of(machine, stream, full), full)
    put_in_line(machine, stream)
    return True


@called
def next_with_room(machine: Machine, queue: int) -> int:
    """Take out the first phase that waits for a queue and has room on all members; -1 if none.

    For a queue that was full and has room for one. So lines that have room as well stay here, where
    it is full again; the others stand at another queue from now on.
    """
    lines, best = machine.lines, -1
    if machine.world[M.W_ALIKE] != 0:  # there is one member
        return _take_first(machine, queue) if lines[queue, M.X_FIRST] >= 0 else -1
    line = machine.queues[queue, M.Q_HEAD]
    machine.queues[queue, M.Q_HEAD] = -1
    while line >= 0:
        following, stream = lines[line, M.X_NEXT], lines[line, M.X_FIRST]
        if stream < 0:
            lines[line, M.X_FULL] = -1
        else:
            # those before the member that had no room are asked last: many may come free till then
            full = _full_member(machine, stream, lines[line, M.X_FULL])
            if full >= 0:
                _stand(machine, line, _queue_of(machine, stream, full), full)
            else:
                _stand(machine, line, queue, lines[line, M.X_FULL])
                if best < 0 or _comes_before(machine, stream, lines[best, M.X_FIRST]):
                    best = line
        line = following
    return _take_first(machine, best) if best >= 0 else -1
