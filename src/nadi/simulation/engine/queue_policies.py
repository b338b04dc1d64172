"""Who comes first in queues with another policy than first come, first served.

A phase starts on all its members at once, when all their queues have room. Those that wait for
the same queues wait in one line, of which only the first has to be looked at. While any waits, one
of these queues is full: the line stands there and nowhere else, and what the other members do
does not concern it.
"""

from nadi.kernels.jit import called, inner
from nadi.simulation.engine.codes import PhaseKind, QueuePolicy
from nadi.simulation.engine.event_queue import COUNTER
from nadi.simulation.engine.machine_state import (
    GROUP,
    LINE,
    NODE,
    PHASE,
    QUEUE,
    STREAM,
    WAITER,
    WORLD,
    Machine,
)
from nadi.simulation.engine.mailboxes import is_alike, rank_of
from nadi.simulation.engine.parts import MESSAGES, belongs_to


@inner
def queues_of(machine: Machine, rank: int) -> int:
    """Give the first queue of a rank; of a difference of ranks, how far apart these are."""
    world = machine.world
    of_rank = world[WORLD.sets] * machine.dims.shape[0] * world[WORLD.queues]
    return rank * of_rank * world[WORLD.ways]


@inner
def _line_of(machine: Machine, stream: int) -> int:
    """Give the line of a stream's phase, whose members are those of a line in their group.

    It has the number of the first of them; if they are all of the group that of the last, which
    is never the first of a dimension's.
    """
    s = machine.streams[stream]
    if is_alike(machine, stream):
        return s[STREAM.queue]
    group = machine.groups[s[STREAM.group]]
    phase = machine.phases[s[STREAM.recipe], s[STREAM.phase]]
    is_in_dimension = phase[PHASE.dim] >= 0 and phase[PHASE.algorithm] != PhaseKind.TIMED
    member = group[GROUP.members] + (s[STREAM.line] if is_in_dimension else group[GROUP.size] - 1)
    return s[STREAM.queue] + queues_of(machine, member - s[STREAM.rank])


@inner
def _queue_of(machine: Machine, stream: int, index: int) -> int:
    """Give the queue in which a stream's phase waits on a member."""
    s = machine.streams[stream]
    return s[STREAM.queue] + queues_of(machine, rank_of(machine, stream, index) - s[STREAM.rank])


@called
def _full_member(machine: Machine, stream: int, first: int) -> int:
    """Give a member of a phase whose queue is full, looking from one of them on; -1 if none is."""
    n = machine.streams[stream, STREAM.n]
    for k in range(first, first + n):
        index = k if k < n else k - n
        queue = _queue_of(machine, stream, index)
        if machine.queues[queue, QUEUE.running] >= machine.world[WORLD.limit]:
            return index
    return -1


@inner
def _stand(machine: Machine, line: int, queue: int, index: int) -> None:
    """Let a line stand at the queue of a member, till that has room."""
    machine.lines[line, LINE.next] = machine.queues[queue, QUEUE.head]
    machine.lines[line, LINE.full] = index
    machine.queues[queue, QUEUE.head] = line


# a line is a heap: so the first is found without a walk past those that wait


@inner
def _comes_before(machine: Machine, a: int, b: int) -> bool:
    waiting = machine.waiting
    if waiting[a, WAITER.priority] != waiting[b, WAITER.priority]:
        return waiting[a, WAITER.priority] > waiting[b, WAITER.priority]
    return waiting[a, WAITER.order] < waiting[b, WAITER.order]


@inner
def _joined(machine: Machine, a: int, b: int) -> int:
    """Put of two streams the later under the earlier, with all that is under it."""
    waiting = machine.waiting
    if _comes_before(machine, b, a):
        a, b = b, a
    waiting[b, WAITER.beside] = waiting[a, WAITER.under]
    waiting[a, WAITER.under] = b
    return a


@called
def _take_first(machine: Machine, line: int) -> int:
    """Take the first out of a line. O(log(those that wait)) on average over a run."""
    waiting = machine.waiting
    first = machine.lines[line, LINE.first]
    left, pairs, rest = waiting[first, WAITER.under], -1, -1
    while left >= 0:
        pair, left = left, waiting[left, WAITER.beside]
        if left >= 0:
            other, left = left, waiting[left, WAITER.beside]
            pair = _joined(machine, pair, other)
        waiting[pair, WAITER.beside] = pairs
        pairs = pair
    while pairs >= 0:
        pair, pairs = pairs, waiting[pairs, WAITER.beside]
        rest = pair if rest < 0 else _joined(machine, rest, pair)
    machine.lines[line, LINE.first] = rest
    return first


@belongs_to(MESSAGES)
@called
def put_in_line(machine: Machine, stream: int) -> None:
    """Let a phase wait in its line, as a stream of it."""
    own, lines, counters = machine.waiting[stream], machine.lines, machine.agenda.counters
    counters[COUNTER.waited] += 1
    own[WAITER.priority], own[WAITER.order] = 0, -counters[COUNTER.waited]
    if machine.world[WORLD.policy] == QueuePolicy.EXPLICIT:
        own[WAITER.priority] = machine.nodes[machine.streams[stream, STREAM.node], NODE.size]
        own[WAITER.order] = counters[COUNTER.waited]
    own[WAITER.under] = own[WAITER.beside] = -1
    line = _line_of(machine, stream)
    first = lines[line, LINE.first]
    lines[line, LINE.first] = stream if first < 0 else _joined(machine, first, stream)


@belongs_to(MESSAGES)
@called
def has_to_wait(machine: Machine, stream: int) -> bool:
    """Put a phase into its line if not all its members have room; tells whether that is so."""
    line = _line_of(machine, stream)
    if machine.lines[line, LINE.full] < 0:  # nobody waits in it
        full = _full_member(machine, stream, 0)
        if full < 0:
            return False
        _stand(machine, line, _queue_of(machine, stream, full), full)
    put_in_line(machine, stream)
    return True


@belongs_to(MESSAGES)
@called
def next_with_room(machine: Machine, queue: int) -> int:
    """Take out the first phase that waits for a queue and has room on all members; -1 if none.

    For a queue that was full and has room for one. So lines that have room as well stay here, where
    it is full again; the others stand at another queue from now on.
    """
    lines, best = machine.lines, -1
    if machine.groups[0, GROUP.alike] != 0:  # there is one member of all
        return _take_first(machine, queue) if lines[queue, LINE.first] >= 0 else -1
    line = machine.queues[queue, QUEUE.head]
    machine.queues[queue, QUEUE.head] = -1
    while line >= 0:
        following, stream = lines[line, LINE.next], lines[line, LINE.first]
        if stream < 0:
            lines[line, LINE.full] = -1
        else:
            # those before the member that had no room are asked last: many may come free till then
            full = _full_member(machine, stream, lines[line, LINE.full])
            if full >= 0:
                _stand(machine, line, _queue_of(machine, stream, full), full)
            else:
                _stand(machine, line, queue, lines[line, LINE.full])
                if best < 0 or _comes_before(machine, stream, lines[best, LINE.first]):
                    best = line
        line = following
    return _take_first(machine, best) if best >= 0 else -1
