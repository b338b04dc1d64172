"""Collectives, message by message: the streams that a rank cuts them into, and their phases.

A stream is one chunk of a collective on one rank. It goes through its phases one after the
other, each an algorithm in one dimension, and waits in the queue of that dimension for its turn.
"""

from __future__ import annotations

import numpy as np

from nadi.kernels.jit import called, inner
from nadi.simulator.engine import machine_state as M
from nadi.simulator.engine.collective_closed_forms import (
    ENDS,
    MEMBERS,
    STARTS,
    can_meet,
    finish_times,
)
from nadi.simulator.engine.event_queue import NOW, PROBLEM, add_event_of
from nadi.simulator.engine.machine_state import Machine
from nadi.simulator.engine.mail import mail_of
from nadi.simulator.engine.network_links import part_of
from nadi.simulator.engine.queue_policies import (
    has_to_wait,
    next_with_room,
    put_in_line,
    queues_of,
)
from nadi.simulator.engine.ring_direct_halving import insert
from nadi.simulator.engine.stepwise_algorithms import begin_steps, come_in, find_steps
from nadi.simulator.engine.tree_all_reduce import begin_tree, find_in_tree, take_in_tree

__all__ = ["begin_queues", "enter", "new_stream", "next_phase", "received", "serve"]


@inner
def received(machine: Machine, stream: int) -> None:
    """Take a message that a stream waits for."""
    s = machine.streams[stream]
    if s[M.S_ALGORITHM] == M.STEPS:
        come_in(machine, stream)
    elif s[M.S_ALGORITHM] != M.TREE:
        s[M.S_TAKEN] += 1
        insert(machine, stream)
    else:
        take_in_tree(machine, stream)


@called
def new_stream(machine: Machine, rank: int, node: int, number: int) -> int:
    """Make a stream of a collective, and choose its queues and trees."""
    counters, streams = machine.agenda.counters, machine.streams
    stream = counters[M.FREE_STREAM]
    if stream >= 0:
        counters[M.FREE_STREAM] = streams[stream, M.S_NEXT]
    else:
        stream = counters[M.USED_STREAM]
        if stream == streams.shape[0]:
            counters[PROBLEM] = M.TOO_SMALL
            return -1
        counters[M.USED_STREAM] = stream + 1
    s = streams[stream]
    shape = machine.shapes[machine.nodes[node, M.N_KEY]]
    recipe = shape[M.H_RECIPE]
    s[M.S_RANK], s[M.S_NODE], s[M.S_GROUP] = rank, node, machine.nodes[node, M.N_PEER]
    s[M.S_RECIPE], s[M.S_NUMBER], s[M.S_PHASE] = recipe, number, -1
    group = machine.groups[s[M.S_GROUP]]
    meeting = machine.nodes[node, M.N_NUMBER] % group[M.U_WINDOW]
    s[M.S_SEATS] = group[M.U_SEATS] + meeting * group[M.U_ROWS]
    s[M.S_SEATS] += number * group[M.U_SIZE]
    s[M.S_SIZE] = shape[M.H_CHUNK] + (1 if number < shape[M.H_REST] else 0)
    num_queues, turns = machine.world[M.W_QUEUES], machine.turns
    is_ordered = machine.world[M.W_ORDERED] != 0
    # where ranks may begin collectives in orders of their own, none counts its turns
    by_number = machine.world[M.W_GATHER] != 0
    turn = machine.nodes[node, M.N_NUMBER] * shape[M.H_CHUNKS] + number
    for p in range(machine.recipes[recipe, M.C_PHASES]):
        phase = machine.phases[recipe, p]
        dim, half = max(phase[M.P_DIM], 0), phase[M.P_HALF]
        queue = dim * num_queues
        clockwise = half != 2
        if machine.world[M.W_SETS] > 1:
            queue += machine.nodes[node, M.N_SLOT] * machine.dims.shape[0] * num_queues
        if num_queues > 1:
            first = num_queues // 2 if half == 2 else 0
            size = num_queues if half == 0 else num_queues // 2
            size = num_queues - num_queues // 2 if half == 2 else size
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
        if phase[M.P_BOTH] != 0:
            flag = 1 - number % 2
            queue += number % 2 * machine.dims.shape[0] * num_queues
        if phase[M.P_ALGORITHM] == M.TREE:
            tree = turn % 2 if by_number else machine.trees[rank, phase[M.P_TREE]]
            machine.trees[rank, phase[M.P_TREE]] = 1 - tree
            flag = 1 - tree
        elif phase[M.P_ALGORITHM] == M.STEPS:
            flag = 1 - number % phase[M.P_TREES]
        machine.plans[stream, p, 0] = queue
        machine.plans[stream, p, 1] = flag
    return stream


@inner
def _place_in_phase(machine: Machine, stream: int, phase: np.ndarray) -> None:
    """Find the line of members that does a stream's phase, and its own place among them."""
    s = machine.streams[stream]
    n, stride, place = phase[M.P_SIZE], phase[M.P_STRIDE], machine.nodes[s[M.S_NODE], M.N_MEMBER]
    s[M.S_N], s[M.S_STRIDE] = n, stride
    s[M.S_INDEX] = place // stride % n
    s[M.S_LINE] = place - s[M.S_INDEX] * stride


@inner
def _prepare_messages(machine: Machine, stream: int, phase: np.ndarray) -> None:
    """Set what a stream needs in a phase whose messages are events."""
    s = machine.streams[stream]
    recipe, group = machine.recipes[s[M.S_RECIPE]], machine.groups[s[M.S_GROUP]]
    p, n, comm, algorithm = s[M.S_PHASE], s[M.S_N], s[M.S_COMM], s[M.S_ALGORITHM]
    s[M.S_SHARE], s[M.S_PACE] = phase[M.P_SHARE], phase[M.P_PACE]
    meeting = machine.nodes[s[M.S_NODE], M.N_NUMBER] % group[M.U_WINDOW]
    num_members = group[M.U_SIZE] if machine.world[M.W_ALIKE] == 0 else 1
    of_phase = num_members * recipe[M.C_SLOTS]
    s[M.S_SLOTS] = recipe[M.C_SLOTS]
    s[M.S_MAIL] = group[M.U_MAIL] + meeting * group[M.U_REGION]
    s[M.S_MAIL] += (s[M.S_NUMBER] * recipe[M.C_PHASES] + p) * of_phase
    s[M.S_DELAY] = recipe[M.C_DELAY]
    s[M.S_WINDOW], s[M.S_BLOCK], s[M.S_MAX] = 1, n - 1, n - 1
    if comm == M.ALL_REDUCE:
        s[M.S_MAX] = 2 * (n - 1)
    elif comm == M.ALL_TO_ALL and algorithm == M.RING and machine.world[M.W_COMPAT] != 0:
        s[M.S_MAX] = n * (n - 1) // 2
    if algorithm == M.DIRECT:
        window = phase[M.P_WINDOW]
        s[M.S_WINDOW] = n - 1 if window < 0 else min(window, n - 1)
        s[M.S_BLOCK] = s[M.S_WINDOW] * (n - 1 if recipe[M.C_GROUP] != 0 else 1)
    elif algorithm == M.HALVING_DOUBLING:
        levels = 0
        while 2 << levels <= n:
            levels += 1
        s[M.S_BLOCK] = levels - 1
        s[M.S_MAX] = 2 * levels if comm == M.ALL_REDUCE else levels
    elif algorithm == M.TREE:
        find_in_tree(s, machine.plans[stream, p, 1] != 0)
    s[M.S_INSERTED] = s[M.S_FREE] = s[M.S_TAKEN] = s[M.S_SENDS] = 0
    s[M.S_REDUCED] = s[M.S_STATE] = 0
    if algorithm == M.STEPS:
        root = machine.shapes[machine.nodes[s[M.S_NODE], M.N_KEY], M.H_ROOT]
        find_steps(machine, stream, phase, root, 1 - machine.plans[stream, p, 1])


@called
def next_phase(machine: Machine, stream: int) -> int:
    """Bring a stream to its next phase, for :func:`enter`; gives its queue, -1 if there is none."""
    s = machine.streams[stream]
    number = s[M.S_RECIPE]
    s[M.S_PHASE] += 1
    p = s[M.S_PHASE]
    if p == machine.recipes[number, M.C_PHASES]:
        return -1
    phase = machine.phases[number, p]
    if p > 0 and s[M.S_ALGORITHM] != M.TREE:
        if s[M.S_COMM] == M.REDUCE_SCATTER or s[M.S_COMM] == M.SCATTER:
            s[M.S_SIZE] = part_of(machine, s[M.S_SIZE], s[M.S_N])
        elif s[M.S_COMM] == M.ALL_GATHER or s[M.S_COMM] == M.GATHER:
            s[M.S_SIZE] *= s[M.S_N]
    _place_in_phase(machine, stream, phase)
    n = s[M.S_N]
    comm, algorithm = phase[M.P_COMM], phase[M.P_ALGORITHM]
    s[M.S_COMM], s[M.S_ALGORITHM] = comm, algorithm
    s[M.S_STEP] = 1 if machine.plans[stream, p, 1] != 0 else -1
    meets = machine.world[M.W_MEET] != 0 and machine.world[M.W_GATHER] == 0
    if not (meets and can_meet(algorithm, comm, phase[M.P_WINDOW], n)):
        _prepare_messages(machine, stream, phase)
    queue = queues_of(machine, s[M.S_RANK]) + machine.plans[stream, p, 0]
    s[M.S_QUEUE], s[M.S_NEXT] = queue, -1
    if machine.world[M.W_GATHER] == 0 or machine.world[M.W_ALIKE] != 0:
        if machine.world[M.W_POLICY] != M.FIFO:
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
    if machine.world[M.W_GATHER] == 0 or machine.world[M.W_ALIKE] != 0:
        serve(machine, queue)
        return
    streams, mail = machine.streams, machine.mail
    s = streams[stream]
    own, first = mail_of(machine, stream, s[M.S_INDEX], 0), mail_of(machine, stream, 0, 0)
    n, apart = s[M.S_N], s[M.S_SLOTS] * s[M.S_STRIDE]
    mail[own, M.M_STREAM] = stream
    mail[first, M.M_ASKED] += 1
    if mail[first, M.M_ASKED] < n:
        return
    mail[first, M.M_ASKED] = 0
    if machine.world[M.W_POLICY] != M.FIFO:
        if not has_to_wait(machine, stream):
            _start_together(machine, stream)
        return
    for i in range(n):
        member = mail[first + i * apart, M.M_STREAM]
        _put_in_queue(machine, streams[member, M.S_QUEUE], member)
    for i in range(n):
        # each lies still where it was put: only a stream that runs gets mail
        member = mail[first + i * apart, M.M_STREAM]
        serve(machine, streams[member, M.S_QUEUE])


@inner
def _turn_of(machine: Machine, stream: int) -> int:
    """Give which start in its queue is a stream's: all of a phase come before those of the next.

    The same for all where chunks start as they come.
    """
    if machine.world[M.W_ORDERED] == 0:
        return 0
    s, num_queues = machine.streams[stream], machine.world[M.W_QUEUES]
    phase = machine.phases[s[M.S_RECIPE], s[M.S_PHASE]]
    if num_queues == 1:
        num_chunks = machine.shapes[machine.nodes[s[M.S_NODE], M.N_KEY], M.H_CHUNKS]
        return phase[M.P_BEFORE] * num_chunks + s[M.S_NUMBER]
    size = num_queues
    if phase[M.P_HALF] != 0:
        size = num_queues // 2 if phase[M.P_HALF] == 1 else num_queues - num_queues // 2
    return s[M.S_NUMBER] // size


@inner
def _put_in_queue(machine: Machine, queue: int, stream: int) -> None:
    """Put a stream behind those that wait in a queue and whose turn comes before its own."""
    queues, streams = machine.queues, machine.streams
    own = _turn_of(machine, stream)
    head, tail = queues[queue, M.Q_HEAD], queues[queue, M.Q_TAIL]
    streams[stream, M.S_NEXT] = -1
    if head < 0:
        queues[queue, M.Q_HEAD] = queues[queue, M.Q_TAIL] = stream
    elif _turn_of(machine, tail) <= own:  # always so if not ordered, where all have the same turn
        streams[tail, M.S_NEXT] = stream
        queues[queue, M.Q_TAIL] = stream
    elif own < _turn_of(machine, head):
        streams[stream, M.S_NEXT] = head
        queues[queue, M.Q_HEAD] = stream
    else:
        before = head
        while _turn_of(machine, streams[before, M.S_NEXT]) <= own:
            before = streams[before, M.S_NEXT]
        streams[stream, M.S_NEXT] = streams[before, M.S_NEXT]
        streams[before, M.S_NEXT] = stream


@inner
def begin_queues(machine: Machine, rank: int, node: int) -> None:
    """Let the first chunk of a collective have the first turn in the queues of its slot."""
    world = machine.world
    of_slot = machine.dims.shape[0] * world[M.W_QUEUES]
    first = queues_of(machine, rank)
    if world[M.W_SETS] > 1:
        first += machine.nodes[node, M.N_SLOT] * of_slot
    for queue in range(first, first + of_slot):
        machine.queues[queue, M.Q_NEXT] = 0


@called
def _meet_in_phase(machine: Machine, stream: int) -> None:
    """Wait for the other members of a phase; the last to come works out when each ends."""
    streams, seats, here, times = machine.streams, machine.seats, machine.here, machine.scratch
    s, agenda = streams[stream], machine.agenda
    n, index = s[M.S_N], s[M.S_INDEX]
    group = machine.groups[s[M.S_GROUP]]
    first, apart = s[M.S_LINE], s[M.S_STRIDE]
    seat = s[M.S_SEATS] + first
    own = seats[seat + index * apart]
    own[M.Z_CAME], own[M.Z_STREAM] = agenda.counters[NOW], stream
    meeting = s[M.S_SEATS] * machine.phases.shape[1] + s[M.S_PHASE] * group[M.U_SIZE] + first
    here[meeting] += 1
    if here[meeting] < n:
        return
    here[meeting] = 0
    for i in range(n):
        times[STARTS, i] = seats[seat + i * apart, M.Z_CAME]
        times[MEMBERS, i] = machine.members[group[M.U_MEMBERS] + first + i * apart, 0]
    recipe = machine.recipes[s[M.S_RECIPE]]
    early = finish_times(
        machine, times, n, machine.phases[s[M.S_RECIPE], s[M.S_PHASE]], s[M.S_SIZE],
        recipe[M.C_DELAY], s[M.S_STEP], recipe[M.C_GROUP],
    )  # fmt: skip
    for i in range(n):
        end, member = times[ENDS, i], seats[seat + i * apart, M.Z_STREAM]
        time = max(end - early, agenda.counters[NOW])
        add_event_of(agenda, times[MEMBERS, i], time, M.MET_PHASE, member, end)


@called
def serve(machine: Machine, queue: int) -> None:
    """Start streams that wait in a queue, as many as may run at once."""
    queues = machine.queues
    if machine.world[M.W_POLICY] != M.FIFO:
        _serve_by_policy(machine, queue)
        return
    is_ordered = machine.world[M.W_ORDERED] != 0
    while queues[queue, M.Q_RUNNING] < machine.world[M.W_LIMIT] and queues[queue, M.Q_HEAD] >= 0:
        stream = queues[queue, M.Q_HEAD]
        # all ranks start them in one order, whichever comes first: so none waits for another
        s = machine.streams[stream]
        if is_ordered and _turn_of(machine, stream) != queues[queue, M.Q_NEXT]:
            return
        queues[queue, M.Q_NEXT] += 1
        queues[queue, M.Q_HEAD] = s[M.S_NEXT]
        queues[queue, M.Q_RUNNING] += 1
        _begin_phase(machine, stream)


@inner
def _begin_phase(machine: Machine, stream: int) -> None:
    """Begin a stream's phase, which has its place in the queue."""
    s = machine.streams[stream]
    window = machine.phases[s[M.S_RECIPE], s[M.S_PHASE], M.P_WINDOW]
    if machine.world[M.W_MEET] != 0 and can_meet(s[M.S_ALGORITHM], s[M.S_COMM], window, s[M.S_N]):
        _meet_in_phase(machine, stream)
    elif s[M.S_ALGORITHM] == M.STEPS:
        begin_steps(machine, stream)
    elif s[M.S_ALGORITHM] != M.TREE:
        for _ in range(s[M.S_WINDOW]):
            insert(machine, stream)
    else:
        begin_tree(machine, stream)


@called
def _serve_by_policy(machine: Machine, queue: int) -> None:
    """Start what waits for a queue, in its order, and has room in the queues of all its members.

    None that runs waits for one that does not, and whenever room comes free all that wait there
    may start: so as long as anything waits, something runs.
    """
    while machine.queues[queue, M.Q_RUNNING] < machine.world[M.W_LIMIT]:
        stream = next_with_room(machine, queue)
        if stream < 0:
            return
        _start_together(machine, stream)


@called
def _start_together(machine: Machine, stream: int) -> None:
    """Start a phase on all its members, whose queues have room."""
    streams, queues, mail = machine.streams, machine.queues, machine.mail
    s = streams[stream]
    if machine.world[M.W_ALIKE] != 0:
        queues[s[M.S_QUEUE], M.Q_RUNNING] += 1
        _begin_phase(machine, stream)
        return
    first = mail_of(machine, stream, 0, 0)
    n, apart = s[M.S_N], s[M.S_SLOTS] * s[M.S_STRIDE]
    for i in range(n):
        member = mail[first + i * apart, M.M_STREAM]
        queues[streams[member, M.S_QUEUE], M.Q_RUNNING] += 1
    for i in range(n):
        # each lies still where it was put: only a stream that runs gets mail
        _begin_phase(machine, mail[first + i * apart, M.M_STREAM])
