"""Collectives, message by message: the streams that a rank cuts them into, and their phases.

A stream is one chunk of a collective on one rank. It goes through its phases one after the
other, each an algorithm in one dimension, and waits in the queue of that dimension for its turn.
"""

import numpy as np

from nadi.kernels.jit import called, inner
from nadi.simulation.engine.codes import Comm, Event, PhaseKind, QueuePolicy
from nadi.simulation.engine.event_queue import COUNTER, add_event_of, new_row
from nadi.simulation.engine.machine_state import (
    GROUP,
    MAIL,
    NODE,
    PHASE,
    PLAN,
    QUEUE,
    RANK,
    RECIPE,
    SCRATCH,
    SEAT,
    SHAPE,
    STREAM,
    TURN,
    WORLD,
    Machine,
)
from nadi.simulation.engine.mailboxes import is_alike, mail_of, place_at
from nadi.simulation.engine.message_times import part_of
from nadi.simulation.engine.parts import FLOWS, MESSAGES, belongs_to
from nadi.simulation.engine.queue_policies import (
    has_to_wait,
    next_with_room,
    put_in_line,
    queues_of,
)
from nadi.simulation.engine.ring_direct_halving import can_meet, finish_times, insert
from nadi.simulation.engine.shared_transfers import begin_phase, is_held
from nadi.simulation.engine.stepwise_algorithms import (
    begin_steps,
    begin_tree,
    come_in,
    find_in_tree,
    find_member_steps,
    take_in_tree,
)


@belongs_to(MESSAGES)
@inner
def received(machine: Machine, stream: int) -> None:
    """Take a message that a stream waits for."""
    s = machine.streams[stream]
    if s[STREAM.algorithm] == PhaseKind.STEPS:
        come_in(machine, stream)
    elif s[STREAM.algorithm] != PhaseKind.TREE:
        s[STREAM.taken] += 1
        insert(machine, stream)
    else:
        take_in_tree(machine, stream)


@called
def new_stream(machine: Machine, rank: int, node: int, number: int) -> int:
    """Make a stream of a collective, and choose its queues and trees."""
    counters, streams = machine.agenda.counters, machine.streams
    stream = new_row(counters, COUNTER.free_stream, streams, STREAM.next)
    if stream < 0:
        return -1
    s = streams[stream]
    shape = machine.shapes[machine.nodes[node, NODE.key]]
    recipe = shape[SHAPE.recipe]
    s[STREAM.rank], s[STREAM.node], s[STREAM.group] = rank, node, machine.nodes[node, NODE.peer]
    s[STREAM.recipe], s[STREAM.number], s[STREAM.phase] = recipe, number, -1
    group = machine.groups[s[STREAM.group]]
    meeting = machine.nodes[node, NODE.number] % group[GROUP.window]
    s[STREAM.seats] = group[GROUP.seats] + meeting * group[GROUP.rows]
    s[STREAM.seats] += number * group[GROUP.size] if group[GROUP.alike] == 0 else 0
    s[STREAM.size] = shape[SHAPE.chunk] + (1 if number < shape[SHAPE.rest] else 0)
    num_queues, turns = machine.world[WORLD.queues], machine.turns
    is_ordered = machine.world[WORLD.ordered] != 0
    # where ranks may begin collectives in orders of their own, none counts its turns
    by_number = machine.world[WORLD.gather] != 0
    turn = machine.nodes[node, NODE.number] * shape[SHAPE.chunks] + number
    for p in range(machine.recipes[recipe, RECIPE.phases]):
        phase = machine.phases[recipe, p]
        dim, half = max(phase[PHASE.dim], 0), phase[PHASE.half]
        queue = dim * num_queues
        clockwise = half != TURN.second_half
        if machine.world[WORLD.sets] > 1:
            queue += machine.nodes[node, NODE.slot] * machine.dims.shape[0] * num_queues
        if num_queues > 1:
            first = num_queues // 2 if half == TURN.second_half else 0
            size = num_queues if half == TURN.of_all else num_queues // 2
            size = num_queues - num_queues // 2 if half == TURN.second_half else size
            if by_number:
                place = first + turn % size
            elif is_ordered:  # by its number, so that all members choose the same
                place = first + number % size
            else:
                place = first + turns[rank, dim, half]
                turns[rank, dim, half] = (turns[rank, dim, half] + 1) % size
            queue += place
            clockwise = place < num_queues // 2
        flag = 1 if clockwise else 0
        if phase[PHASE.both] != 0:
            flag = 1 - number % 2
            queue += number % 2 * machine.dims.shape[0] * num_queues
        if phase[PHASE.algorithm] == PhaseKind.TREE:
            tree = turn % 2 if by_number else machine.trees[rank, phase[PHASE.tree]]
            machine.trees[rank, phase[PHASE.tree]] = 1 - tree
            flag = 1 - tree
        elif phase[PHASE.algorithm] == PhaseKind.STEPS:
            flag = 1 - number % phase[PHASE.trees]
        machine.plans[stream, p, PLAN.queue] = queue
        machine.plans[stream, p, PLAN.clockwise] = flag
    return stream


@inner
def _place_in_phase(machine: Machine, stream: int, phase: np.ndarray) -> None:
    """Find the line of members that does a stream's phase, and its own place among them."""
    s = machine.streams[stream]
    n, stride = phase[PHASE.size], phase[PHASE.stride]
    place = machine.nodes[s[STREAM.node], NODE.member]
    s[STREAM.n], s[STREAM.stride] = n, stride
    s[STREAM.index] = place // stride % n
    s[STREAM.line] = place - s[STREAM.index] * stride


@called
def _prepare_messages(machine: Machine, stream: int, phase: np.ndarray) -> None:
    """Set what a stream needs in a phase whose messages are events."""
    s = machine.streams[stream]
    recipe, group = machine.recipes[s[STREAM.recipe]], machine.groups[s[STREAM.group]]
    p, n, comm, algorithm = s[STREAM.phase], s[STREAM.n], s[STREAM.comm], s[STREAM.algorithm]
    s[STREAM.share], s[STREAM.pace] = phase[PHASE.share], phase[PHASE.pace]
    meeting = machine.nodes[s[STREAM.node], NODE.number] % group[GROUP.window]
    num_members = group[GROUP.size] if group[GROUP.alike] == 0 else 1
    s[STREAM.place] = machine.ranks[s[STREAM.rank], RANK.place]
    of_phase = num_members * recipe[RECIPE.slots]
    s[STREAM.slots] = recipe[RECIPE.slots]
    s[STREAM.mail] = group[GROUP.mail] + meeting * group[GROUP.region]
    s[STREAM.mail] += (s[STREAM.number] * recipe[RECIPE.phases] + p) * of_phase
    s[STREAM.delay] = recipe[RECIPE.delay]
    s[STREAM.window], s[STREAM.block], s[STREAM.max] = 1, n - 1, n - 1
    if comm == Comm.ALL_REDUCE:
        s[STREAM.max] = 2 * (n - 1)
    elif comm == Comm.ALL_TO_ALL and machine.world[WORLD.relays_parts] != 0:  # in a ring
        s[STREAM.max] = n * (n - 1) // 2 if algorithm == PhaseKind.RING else n - 1
    if algorithm == PhaseKind.DIRECT:
        window = phase[PHASE.window]
        s[STREAM.window] = n - 1 if window < 0 else min(window, n - 1)
        s[STREAM.block] = s[STREAM.window] * (n - 1 if recipe[RECIPE.group] != 0 else 1)
    elif algorithm == PhaseKind.HALVING_DOUBLING:
        levels = 0
        while 2 << levels <= n:
            levels += 1
        s[STREAM.block] = levels - 1
        s[STREAM.max] = 2 * levels if comm == Comm.ALL_REDUCE else levels
    elif algorithm == PhaseKind.TREE:
        find_in_tree(s, machine.plans[stream, p, PLAN.clockwise] != 0)
    s[STREAM.inserted] = s[STREAM.free] = s[STREAM.taken] = s[STREAM.sends] = 0
    s[STREAM.reduced] = s[STREAM.state] = 0
    if algorithm == PhaseKind.STEPS:
        root = machine.shapes[machine.nodes[s[STREAM.node], NODE.key], SHAPE.root]
        find_member_steps(
            machine, stream, phase, root, 1 - machine.plans[stream, p, PLAN.clockwise]
        )


@called
def next_phase(machine: Machine, stream: int) -> int:
    """Bring a stream to its next phase, for :func:`enter`; gives its queue, -1 if there is none."""
    s = machine.streams[stream]
    number = s[STREAM.recipe]
    s[STREAM.phase] += 1
    p = s[STREAM.phase]
    if p == machine.recipes[number, RECIPE.phases]:
        return -1
    phase = machine.phases[number, p]
    if p > 0 and s[STREAM.algorithm] != PhaseKind.TREE:
        if s[STREAM.comm] == Comm.REDUCE_SCATTER or s[STREAM.comm] == Comm.SCATTER:
            s[STREAM.size] = part_of(machine, s[STREAM.size], s[STREAM.n])
        elif s[STREAM.comm] == Comm.ALL_GATHER or s[STREAM.comm] == Comm.GATHER:
            s[STREAM.size] *= s[STREAM.n]
    _place_in_phase(machine, stream, phase)
    n = s[STREAM.n]
    comm, algorithm = phase[PHASE.comm], phase[PHASE.algorithm]
    s[STREAM.comm], s[STREAM.algorithm] = comm, algorithm
    s[STREAM.step] = 1 if machine.plans[stream, p, PLAN.clockwise] != 0 else -1
    meets = machine.world[WORLD.meet] != 0 and machine.world[WORLD.gather] == 0
    if not (meets and can_meet(algorithm, comm, phase[PHASE.window], n)):
        _prepare_messages(machine, stream, phase)
    queue = queues_of(machine, s[STREAM.rank]) + machine.plans[stream, p, PLAN.queue]
    s[STREAM.queue], s[STREAM.next] = queue, -1
    if machine.world[WORLD.gather] == 0 or is_alike(machine, stream):
        if machine.world[WORLD.policy] != QueuePolicy.FIFO:
            put_in_line(machine, stream)
        else:
            _put_in_queue(machine, queue, stream)
    return queue


@called
def enter(machine: Machine, stream: int, queue: int) -> None:
    """Serve the queue of a stream's phase, or of all members once the last has come to it.

    Members that are put into their queues together stand there in one order: so none waits in
    one queue for what waits for it in another, whatever order they came in.
    """
    if machine.world[WORLD.gather] == 0 or is_alike(machine, stream):
        serve(machine, queue)
        return
    streams, mail = machine.streams, machine.mail
    s = streams[stream]
    own, first = mail_of(machine, stream, s[STREAM.index], 0), mail_of(machine, stream, 0, 0)
    n, apart = s[STREAM.n], s[STREAM.slots] * s[STREAM.stride]
    mail[own, MAIL.stream] = stream
    mail[first, MAIL.asked] += 1
    if mail[first, MAIL.asked] < n:
        return
    mail[first, MAIL.asked] = 0
    if machine.world[WORLD.policy] != QueuePolicy.FIFO:
        if not has_to_wait(machine, stream):
            _start_together(machine, stream)
        return
    for i in range(n):
        member = mail[first + i * apart, MAIL.stream]
        _put_in_queue(machine, streams[member, STREAM.queue], member)
    for i in range(n):
        # each lies still where it was put: only a stream that runs gets mail
        member = mail[first + i * apart, MAIL.stream]
        serve(machine, streams[member, STREAM.queue])


@called
def _turn_of(machine: Machine, stream: int) -> int:
    """Give which start in its queue is a stream's: all of a phase come before those of the next.

    The same for all where chunks start as they come.
    """
    if machine.world[WORLD.ordered] == 0:
        return 0
    s, num_queues = machine.streams[stream], machine.world[WORLD.queues]
    phase = machine.phases[s[STREAM.recipe], s[STREAM.phase]]
    if num_queues == 1:
        num_chunks = machine.shapes[machine.nodes[s[STREAM.node], NODE.key], SHAPE.chunks]
        return phase[PHASE.before] * num_chunks + s[STREAM.number]
    size = num_queues
    if phase[PHASE.half] != TURN.of_all:
        is_first = phase[PHASE.half] == TURN.first_half
        size = num_queues // 2 if is_first else num_queues - num_queues // 2
    return s[STREAM.number] // size


@called
def _put_in_queue(machine: Machine, queue: int, stream: int) -> None:
    """Put a stream behind those that wait in a queue and whose turn comes before its own."""
    queues, streams = machine.queues, machine.streams
    own = _turn_of(machine, stream)
    head, tail = queues[queue, QUEUE.head], queues[queue, QUEUE.tail]
    streams[stream, STREAM.next] = -1
    if head < 0:
        queues[queue, QUEUE.head] = queues[queue, QUEUE.tail] = stream
    elif _turn_of(machine, tail) <= own:  # always so if not ordered, where all have the same turn
        streams[tail, STREAM.next] = stream
        queues[queue, QUEUE.tail] = stream
    elif own < _turn_of(machine, head):
        streams[stream, STREAM.next] = head
        queues[queue, QUEUE.head] = stream
    else:
        before = head
        while _turn_of(machine, streams[before, STREAM.next]) <= own:
            before = streams[before, STREAM.next]
        streams[stream, STREAM.next] = streams[before, STREAM.next]
        streams[before, STREAM.next] = stream


@inner
def begin_queues(machine: Machine, rank: int, node: int) -> None:
    """Let the first chunk of a collective have the first turn in the queues of its slot."""
    world = machine.world
    of_slot = machine.dims.shape[0] * world[WORLD.queues]
    first = queues_of(machine, rank)
    if world[WORLD.sets] > 1:
        first += machine.nodes[node, NODE.slot] * of_slot
    for queue in range(first, first + of_slot):
        machine.queues[queue, QUEUE.next] = 0


@called
def _meet_in_phase(machine: Machine, stream: int) -> None:
    """Wait for the other members of a phase; the last to come works out when each ends."""
    streams, seats, here, times = machine.streams, machine.seats, machine.here, machine.scratch
    s, agenda = streams[stream], machine.agenda
    n, index, number = s[STREAM.n], s[STREAM.index], s[STREAM.group]
    group = machine.groups[number]
    first, apart = s[STREAM.line], s[STREAM.stride]
    seat = s[STREAM.seats]
    present = 1
    if group[GROUP.alike] == 0:
        present = n
        seat += first
        own = seats[seat + index * apart]
        own[SEAT.came], own[SEAT.stream] = agenda.counters[COUNTER.now], stream
        meeting = s[STREAM.seats] * machine.phases.shape[1] + first
        meeting += s[STREAM.phase] * group[GROUP.size]
        here[meeting] += 1
        if here[meeting] < n:
            return
        here[meeting] = 0
    for i in range(n):
        came = seats[seat + i * apart, SEAT.came] if present > 1 else agenda.counters[COUNTER.now]
        times[SCRATCH.starts, i] = came
        times[SCRATCH.members, i] = place_at(machine, number, first + i * apart)
    recipe = machine.recipes[s[STREAM.recipe]]
    amount = s[STREAM.size]
    if s[STREAM.algorithm] == PhaseKind.TIMED:
        amount = machine.shapes[machine.nodes[s[STREAM.node], NODE.key], SHAPE.time]
    early = finish_times(
        machine, times, present, machine.phases[s[STREAM.recipe], s[STREAM.phase]], amount,
        recipe[RECIPE.delay], s[STREAM.step], recipe[RECIPE.group],
    )  # fmt: skip
    last = agenda.counters[COUNTER.now]
    for i in range(present):
        last = max(last, times[SCRATCH.ends, i])
    transfer = 0
    if machine.world[WORLD.flows] != 0:
        transfer = begin_phase(
            machine, s[STREAM.node], s[STREAM.phase], first, 0 if s[STREAM.step] > 0 else 1,
            s[STREAM.size], last, present,
        )  # fmt: skip
    for i in range(present):
        end = times[SCRATCH.ends, i]
        member = seats[seat + i * apart, SEAT.stream] if present > 1 else stream
        time = max(end - early, agenda.counters[COUNTER.now])
        streams[member, STREAM.transfer] = transfer
        add_event_of(agenda, streams[member, STREAM.rank], time, Event.MET_PHASE, member, end)


@belongs_to(FLOWS)
@called
def _share_in_phase(machine: Machine, stream: int) -> None:
    """Let the bytes of a phase whose messages are followed share links, once all are there.

    Its messages take the time that they take if nobody else uses their links. If others slow the
    phase, members do not leave it before its bytes have passed all links.
    """
    streams, seats, here = machine.streams, machine.seats, machine.here
    s = streams[stream]
    s[STREAM.transfer] = 0
    if s[STREAM.algorithm] == PhaseKind.STEPS and s[STREAM.todo] == 0:
        return  # a line that does not hold what the root has, or wants
    n, number, p = s[STREAM.n], s[STREAM.group], s[STREAM.phase]
    group = machine.groups[number]
    first, apart = s[STREAM.line], s[STREAM.stride]
    present, seat = 1, s[STREAM.seats]
    if group[GROUP.alike] == 0:
        seat += first
        seats[seat + s[STREAM.index] * apart, SEAT.stream] = stream
        meeting = s[STREAM.seats] * machine.phases.shape[1] + first + p * group[GROUP.size]
        here[meeting] += 1
        if here[meeting] < n:
            return
        here[meeting] = 0
        present = 0
        for i in range(n):
            member = seats[seat + i * apart, SEAT.stream]
            present += 1 if member >= 0 and streams[member, STREAM.phase] == p else 0
    transfer = begin_phase(
        machine, s[STREAM.node], p, first, 0 if s[STREAM.step] > 0 else 1, s[STREAM.size], -1,
        present,
    )  # fmt: skip
    if group[GROUP.alike] != 0:
        s[STREAM.transfer] = transfer
        return
    for i in range(n):
        member = seats[seat + i * apart, SEAT.stream]
        if member >= 0 and streams[member, STREAM.phase] == p:
            streams[member, STREAM.transfer] = transfer


@belongs_to(FLOWS)
@called
def stays_in_phase(machine: Machine, stream: int) -> bool:
    """Tell whether a member that is done with its messages stays, as others slow its phase."""
    s = machine.streams[stream]
    if s[STREAM.transfer] > 0 and is_held(machine, Event.MET_PHASE, stream):
        return True
    s[STREAM.transfer] = 0
    if machine.groups[s[STREAM.group], GROUP.alike] == 0:
        machine.seats[s[STREAM.seats] + s[STREAM.line] + s[STREAM.index] * s[STREAM.stride],
                      SEAT.stream] = -1  # fmt: skip
    return False


@called
def serve(machine: Machine, queue: int) -> None:
    """Start streams that wait in a queue, as many as may run at once."""
    queues = machine.queues
    if machine.world[WORLD.policy] != QueuePolicy.FIFO:
        _serve_by_policy(machine, queue)
        return
    is_ordered, limit = machine.world[WORLD.ordered] != 0, machine.world[WORLD.limit]
    while queues[queue, QUEUE.running] < limit and queues[queue, QUEUE.head] >= 0:
        stream = queues[queue, QUEUE.head]
        # all ranks start them in one order, whichever comes first: so none waits for another
        s = machine.streams[stream]
        if is_ordered and _turn_of(machine, stream) != queues[queue, QUEUE.next]:
            return
        queues[queue, QUEUE.next] += 1
        queues[queue, QUEUE.head] = s[STREAM.next]
        queues[queue, QUEUE.running] += 1
        _begin_phase(machine, stream)


@called
def _begin_phase(machine: Machine, stream: int) -> None:
    """Begin a stream's phase, which has its place in the queue."""
    s = machine.streams[stream]
    window = machine.phases[s[STREAM.recipe], s[STREAM.phase], PHASE.window]
    meets = can_meet(s[STREAM.algorithm], s[STREAM.comm], window, s[STREAM.n])
    if s[STREAM.algorithm] == PhaseKind.TIMED or (machine.world[WORLD.meet] != 0 and meets):
        _meet_in_phase(machine, stream)
        return
    if machine.world[WORLD.flows] != 0:
        _share_in_phase(machine, stream)
    if s[STREAM.algorithm] == PhaseKind.STEPS:
        begin_steps(machine, stream)
    elif s[STREAM.algorithm] != PhaseKind.TREE:
        for _ in range(s[STREAM.window]):
            insert(machine, stream)
    else:
        begin_tree(machine, stream)


@called
def _serve_by_policy(machine: Machine, queue: int) -> None:
    """Start what waits for a queue, in its order, and has room in the queues of all its members.

    None that runs waits for one that does not, and whenever room comes free all that wait there
    may start: so as long as anything waits, something runs.
    """
    while machine.queues[queue, QUEUE.running] < machine.world[WORLD.limit]:
        stream = next_with_room(machine, queue)
        if stream < 0:
            return
        _start_together(machine, stream)


@belongs_to(MESSAGES)
@called
def _start_together(machine: Machine, stream: int) -> None:
    """Start a phase on all its members, whose queues have room."""
    streams, queues, mail = machine.streams, machine.queues, machine.mail
    s = streams[stream]
    if is_alike(machine, stream):
        queues[s[STREAM.queue], QUEUE.running] += 1
        _begin_phase(machine, stream)
        return
    first = mail_of(machine, stream, 0, 0)
    n, apart = s[STREAM.n], s[STREAM.slots] * s[STREAM.stride]
    for i in range(n):
        member = mail[first + i * apart, MAIL.stream]
        queues[streams[member, STREAM.queue], QUEUE.running] += 1
    for i in range(n):
        # each lies still where it was put: only a stream that runs gets mail
        _begin_phase(machine, mail[first + i * apart, MAIL.stream])
