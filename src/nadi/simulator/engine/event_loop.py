"""The event engine: nodes of all ranks, issued as their dependencies and slots allow.

Every message of every collective is an event. This is the engine that leaves nothing out;
:mod:`nadi.simulator.engine.collective_closed_forms` works out many at once where nothing contends.
"""

from __future__ import annotations

from nadi.kernels.jit import called, inner, kernel
from nadi.kernels.numba_lending import apart, lent
from nadi.simulator.engine import machine_state as M
from nadi.simulator.engine.collective_closed_forms import ENDS, MEMBERS, STARTS, finish_times
from nadi.simulator.engine.collective_streams import (
    begin_queues,
    enter,
    new_stream,
    next_phase,
    received,
    serve,
)
from nadi.simulator.engine.event_queue import (
    EVENTS,
    HEAP,
    LISTED,
    NOW,
    PROBLEM,
    TIMES,
    add_event_of,
    after,
    content_of,
    end_list,
    event_ahead,
    find,
    find_list,
    forget,
    has_events,
    home_of_list,
    next_callback,
    next_event,
    pop_time,
    prefetch,
)
from nadi.simulator.engine.issue_slots import next_to_issue, push_ready
from nadi.simulator.engine.machine_state import Machine
from nadi.simulator.engine.mail import arrive, request_arrives, send_now
from nadi.simulator.engine.memory_bus import begin_bus_event, run_bus
from nadi.simulator.engine.network_links import free_link, free_message, put_on_link
from nadi.simulator.engine.remote_memory import access_memory, free_memory
from nadi.simulator.engine.ring_direct_halving import general
from nadi.simulator.engine.send_receive import (
    issue_receive,
    issue_send,
    receiver_of,
    request_of_node_arrives,
)
from nadi.simulator.engine.stepwise_algorithms import follow, take_in
from nadi.simulator.engine.tree_all_reduce import tree_down, tree_reduce, tree_up

__all__ = ["run_machine"]


@called
def _leave(machine: Machine, node: int) -> None:
    """End a node: its slot is free, and its children may be ready."""
    nodes = machine.nodes
    rank = nodes[node, M.N_RANK]
    r = machine.ranks[rank]
    nodes[node, M.N_END] = machine.agenda.counters[NOW]
    r[M.R_ONGOING] -= 1
    r[M.R_LEFT] -= 1
    r[M.R_BUSY + nodes[node, M.N_SLOT]] = 0
    for k in range(nodes[node, M.N_FIRST], nodes[node, M.N_LAST]):
        child = machine.children[k]
        nodes[child, M.N_WAITS] -= 1
        if nodes[child, M.N_WAITS] == 0:
            if r[M.R_LOOP] != 0:  # what is being issued is what was ready before
                nodes[child, M.N_NEXT] = r[M.R_DEFERRED]
                r[M.R_DEFERRED] = child
            else:
                push_ready(machine, rank, child)


# issuing


@inner
def _meet(machine: Machine, node: int) -> None:
    """Count a collective of a group: those of a number are one and the same."""
    nodes, counters = machine.nodes, machine.agenda.counters
    group = machine.groups[nodes[node, M.N_PEER]]
    member = group[M.U_MEMBERS] + nodes[node, M.N_MEMBER]
    number = machine.members[member, 1]
    machine.members[member, 1] = number + 1
    if nodes[node, M.N_NUMBER] < 0:
        nodes[node, M.N_NUMBER] = number
    number = nodes[node, M.N_NUMBER]
    t = machine.meetings[group[M.U_MEETINGS] + number % group[M.U_WINDOW]]
    if t[M.T_NUMBER] != number:
        if t[M.T_LEFT] != 0:
            counters[PROBLEM] = M.TOO_MANY
            return
        t[M.T_NUMBER], t[M.T_NODE] = number, node
        t[M.T_LEFT] = group[M.U_SIZE] if machine.world[M.W_ALIKE] == 0 else 1
    elif nodes[t[M.T_NODE], M.N_KEY] != nodes[node, M.N_KEY]:
        counters[PROBLEM], counters[M.CULPRIT] = M.UNLIKE, node


@inner
def _part(machine: Machine, node: int) -> None:
    """Note that a member has done its part of a collective."""
    group = machine.groups[machine.nodes[node, M.N_PEER]]
    number = machine.nodes[node, M.N_NUMBER]
    machine.meetings[group[M.U_MEETINGS] + number % group[M.U_WINDOW], M.T_LEFT] -= 1


@called
def _meet_as_a_whole(machine: Machine, node: int) -> None:
    """Wait for the other members of a collective; the last to come works out when each ends."""
    nodes, members, times, agenda = (
        machine.nodes, machine.members, machine.scratch, machine.agenda
    )  # fmt: skip
    group = machine.groups[nodes[node, M.N_PEER]]
    first, n = group[M.U_MEMBERS], group[M.U_SIZE]
    own = first + nodes[node, M.N_MEMBER]
    members[own, 2], members[own, 3] = agenda.counters[NOW] + machine.world[M.W_START], node
    group[M.U_HERE] += 1
    if group[M.U_HERE] < n:
        return
    group[M.U_HERE] = 0
    shape = machine.shapes[nodes[node, M.N_KEY]]
    recipe = machine.recipes[shape[M.H_RECIPE]]
    phase = machine.phases[shape[M.H_RECIPE], 0]
    gather, now = machine.world[M.W_GATHER], agenda.counters[NOW]
    for i in range(n):
        times[STARTS, i] = members[own if gather != 0 else first + i, 2]
        times[MEMBERS, i] = members[first + i, 0]
    early = 0
    # as many chunks at once as a queue lets run; the others follow them one by one
    for k in range(-(-shape[M.H_CHUNKS] // machine.world[M.W_LIMIT])):
        size = shape[M.H_CHUNK] + (1 if k < shape[M.H_REST] else 0)
        second = phase[M.P_ALGORITHM] == M.STEPS and k % phase[M.P_TREES] == 1
        early = finish_times(
            machine, times, n, phase, size, recipe[M.C_DELAY], -1 if second else 1,
            recipe[M.C_GROUP],
        )  # fmt: skip
        for i in range(n):
            times[STARTS, i] = times[ENDS, i]
    for i in range(n):
        end = times[ENDS, i]
        time = max(end - early, now)
        add_event_of(agenda, members[first + i, 0], time, M.MET, members[first + i, 3], end)


@called
def _start_collective(machine: Machine, rank: int, node: int) -> None:
    agenda, shape = machine.agenda, machine.shapes[machine.nodes[node, M.N_KEY]]
    _meet(machine, node)
    if agenda.counters[PROBLEM] != 0:
        return
    if machine.recipes[shape[M.H_RECIPE], M.C_PHASES] == 0:
        _part(machine, node)
        now = agenda.counters[NOW]
        after(agenda, rank, machine.world[M.W_RANKS], now, M.COMPLETE, node, 0)
        return
    if shape[M.H_WHOLE] != 0:
        _meet_as_a_whole(machine, node)
        return
    if machine.world[M.W_START] > 0:
        start = agenda.counters[NOW] + machine.world[M.W_START]
        after(agenda, rank, machine.world[M.W_RANKS], start, M.BEGIN, node, 0)
    else:
        _begin_collective(machine, rank, node)


@called
def _begin_collective(machine: Machine, rank: int, node: int) -> None:
    """Cut a collective into streams, and let the first of them go."""
    shape = machine.shapes[machine.nodes[node, M.N_KEY]]
    machine.nodes[node, M.N_LEFT] = shape[M.H_CHUNKS]
    begin_queues(machine, rank, node)
    for number in range(shape[M.H_CHUNKS]):
        stream = new_stream(machine, rank, node, number)
        if stream < 0:
            return
        enter(machine, stream, next_phase(machine, stream))


@called
def _issue_simple(machine: Machine, rank: int, node: int) -> None:
    """Issue what takes a time of its own, a send or a receive."""
    agenda, nodes = machine.agenda, machine.nodes
    kind = nodes[node, M.N_KIND]
    nodes[node, M.N_START] = agenda.counters[NOW]
    if kind == M.DELAY:
        time = agenda.counters[NOW] + nodes[node, M.N_TIME]
        after(agenda, rank, machine.world[M.W_RANKS], time, M.COMPLETE, node, 0)
    elif kind == M.SEND:
        issue_send(machine, rank, node)
    else:
        issue_receive(machine, rank, node)


@inner
def _issue(machine: Machine, rank: int, node: int) -> None:
    nodes = machine.nodes
    kind = nodes[node, M.N_KIND]
    if kind <= M.RECEIVE:
        _issue_simple(machine, rank, node)
    elif kind == M.COLLECTIVE:
        _start_collective(machine, rank, node)
    elif kind == M.ACCESS:
        access_memory(machine, node)
    elif kind == M.CUSTOM:  # a trace of its own, whose nodes need no slots
        first = nodes[node, M.N_SIZE]
        for part in range(first, first + nodes[node, M.N_LEFT]):
            if nodes[part, M.N_WAITS] == 0:
                _issue_simple(machine, rank, part)
    else:
        _leave(machine, node)


@called
def _end_part(machine: Machine, part: int) -> int:
    """End a node of a collective that is a trace of its own; gives the collective if it is over."""
    nodes = machine.nodes
    nodes[part, M.N_END] = machine.agenda.counters[NOW]
    for k in range(nodes[part, M.N_FIRST], nodes[part, M.N_LAST]):
        child = machine.children[k]
        nodes[child, M.N_WAITS] -= 1
        if nodes[child, M.N_WAITS] == 0:
            _issue_simple(machine, nodes[child, M.N_RANK], child)
    whole = nodes[part, M.N_PARENT] - 1
    nodes[whole, M.N_LEFT] -= 1
    return whole if nodes[whole, M.N_LEFT] == 0 else -1


@called
def _issue_all(machine: Machine, rank: int, cause: int) -> None:
    """Issue what is ready and has a free slot, in order of id."""
    r = machine.ranks[rank]
    again = True
    while again:
        r[M.R_LOOP] = 1
        node = next_to_issue(machine, rank)
        while node >= 0:
            r[M.R_ONGOING] += 1
            slot = machine.nodes[node, M.N_SLOT]
            if slot != M.NO_SLOT:
                r[M.R_BUSY + slot] = 1
            machine.nodes[node, M.N_START] = machine.agenda.counters[NOW]
            machine.nodes[node, M.N_CAUSE] = cause
            _issue(machine, rank, node)
            node = next_to_issue(machine, rank)
        r[M.R_LOOP] = 0
        # ASTRA-sim leaves what came free meanwhile until something else is completed
        again = r[M.R_DEFERRED] >= 0 and machine.world[M.W_COMPAT] == 0
        while r[M.R_DEFERRED] >= 0:
            node = r[M.R_DEFERRED]
            r[M.R_DEFERRED] = machine.nodes[node, M.N_NEXT]
            push_ready(machine, rank, node)
    num_ready = r[M.R_READY] + r[M.R_READY + 1] + r[M.R_READY + 2] + r[M.R_READY + 3]
    if num_ready == 0 and r[M.R_ONGOING] == 0:
        r[M.R_FINISH] = machine.agenda.counters[NOW]


@called
def _complete(machine: Machine, node: int) -> None:
    if machine.nodes[node, M.N_PARENT] != 0:
        node = _end_part(machine, node)
        if node < 0:
            return
    _leave(machine, node)
    _issue_all(machine, machine.nodes[node, M.N_RANK], node)


@called
def _leave_phase(machine: Machine, stream: int) -> None:
    """End a stream's phase: it goes on to the next, and its place in the queue is free."""
    s = machine.streams[stream]
    old, node = s[M.S_QUEUE], s[M.S_NODE]
    last = s[M.S_PHASE] + 1 == machine.recipes[s[M.S_RECIPE], M.C_PHASES]
    if last:
        machine.nodes[node, M.N_LEFT] -= 1
        if machine.nodes[node, M.N_LEFT] == 0:
            _part(machine, node)
            _complete(machine, node)
    machine.queues[old, M.Q_RUNNING] -= 1
    if last:
        s[M.S_NEXT] = machine.agenda.counters[M.FREE_STREAM]
        machine.agenda.counters[M.FREE_STREAM] = stream
        serve(machine, old)
    else:
        queue = next_phase(machine, stream)
        serve(machine, old)
        enter(machine, stream, queue)


# events


@called
def _passed(machine: Machine, kind: int, stream: int) -> None:
    """Go on with a packet that has passed the memory of its rank."""
    if kind == M.GENERAL:
        if general(machine, stream):
            _leave_phase(machine, stream)
    elif kind == M.EXIT:
        _leave_phase(machine, stream)
    elif kind == M.STEP:
        if follow(machine, stream):
            _leave_phase(machine, stream)
    elif kind == M.TAKEN:
        take_in(machine, stream)
    elif kind == M.UP:
        tree_up(machine, stream)
    elif kind == M.REDUCE:
        if tree_reduce(machine, stream):
            tree_up(machine, stream)
    else:
        tree_down(machine, stream)
        _leave_phase(machine, stream)


@inner
def _bus_event(machine: Machine, kind: int, side: int) -> None:
    """Something has happened on a bus: packets may have passed it."""
    begin_bus_event(machine, kind, side)
    transfer = run_bus(machine, 0)
    while transfer >= 0:
        stream, code = machine.messages[transfer, M.G_A], machine.messages[transfer, M.G_B]
        free_message(machine, transfer)
        kind, cost = code // 2 % M.KINDS, code // 2 // M.KINDS
        if code % 2 == 0:
            _passed(machine, kind, stream)
        else:
            agenda, rank = machine.agenda, machine.streams[stream, M.S_RANK]
            time = agenda.counters[NOW] + cost
            after(agenda, rank, machine.world[M.W_RANKS], time, kind, stream, 0)
        transfer = run_bus(machine, 0)


@inner
def _end_is_near(machine: Machine, kind: int, rank: int, what: int, end: int) -> None:
    """Add the callback that ends a member's collective or phase, when its rank would add it."""
    num_ranks = machine.world[M.W_RANKS]
    if kind == M.MET:
        _part(machine, what)
        after(machine.agenda, rank, num_ranks, end, M.COMPLETE, what, 0)
    else:
        after(machine.agenda, rank, num_ranks, end, M.EXIT, what, 0)


@called
def _happen(machine: Machine, kind: int, a: int, b: int) -> None:
    """Let one event happen, or one callback of a rank."""
    if kind >= M.GENERAL and kind <= M.REDUCE:
        _passed(machine, kind, a)
    elif kind == M.ARRIVE:
        stream = arrive(machine, a)
        if stream >= 0:
            received(machine, stream)
    elif kind == M.CHARGE:
        agenda, rank = machine.agenda, machine.streams[a, M.S_RANK]
        time = agenda.counters[NOW] + b // M.KINDS
        after(agenda, rank, machine.world[M.W_RANKS], time, b % M.KINDS, a, 0)
    elif kind == M.COMPLETE:
        _complete(machine, a)
    elif kind == M.RECEIVED:
        received(machine, a)
    elif kind == M.SENT:
        _message_of_nodes_arrives(machine, a)
    elif kind == M.BEGIN:
        _begin_collective(machine, machine.nodes[a, M.N_RANK], a)
    elif kind == M.MEMORY:
        _complete(machine, a)
        free_memory(machine, machine.nodes[a, M.N_KEY])
    elif kind == M.REQUEST:
        request_arrives(machine, a, b)
    elif kind == M.REQUESTED:
        request_of_node_arrives(machine, a)
    elif kind == M.REAL_SEND:
        send_now(machine, a)
    elif kind >= M.BUS_SENT:
        _bus_event(machine, kind, a)


@inner
def _message_of_nodes_arrives(machine: Machine, node: int) -> None:
    _complete(machine, node)
    waiting = receiver_of(machine, node)
    if waiting >= 0:
        _complete(machine, waiting)


@inner
def _run_list(machine: Machine, rank: int, kind: int, a: int, b: int) -> None:
    """Run a rank's callbacks of this time, also those that are added meanwhile."""
    agenda = machine.agenda
    at = find_list(agenda, rank, agenda.counters[NOW])
    while kind != 0:
        agenda.counters[EVENTS] += 1
        _happen(machine, kind, a, b)
        if agenda.counters[PROBLEM] != 0:
            return
        kind, a, b = next_callback(agenda, at)
    end_list(agenda, at)


@inner
def _hop(machine: Machine, message: int) -> None:
    """Go on with a message that has come to the next device on its way."""
    row = machine.messages[message]
    if row[M.G_SWITCH] != 0 or row[M.G_AT] != row[M.G_DST]:
        put_on_link(machine, message)
        return
    kind, a, b = row[M.G_KIND], row[M.G_A], row[M.G_B]
    free_message(machine, message)
    _happen(machine, kind, a, b)


@inner
def _foresee(machine: Machine, at: int) -> None:
    """Have fetched what an event further on in a chain will look at.

    Where there are many ranks, each was looked at last long ago.
    """
    agenda = machine.agenda
    what, b = event_ahead(agenda, at)
    if what == 0:
        return
    kind, a, rank = content_of(what)
    if what & LISTED:
        prefetch(agenda.lists, home_of_list(agenda, rank, agenda.counters[NOW]), 0)
        if kind == M.EXIT:
            prefetch(machine.streams, a, M.S_RANK)
            prefetch(machine.streams, a, M.S_ALGORITHM)
            # those of a rank stand side by side, and the next of them may begin then
            prefetch(machine.streams, a + 1, M.S_RANK)
            prefetch(machine.streams, a + 1, M.S_ALGORITHM)
            prefetch(machine.plans, a, 0)
            prefetch(
                machine.queues, rank * (machine.queues.shape[0] // machine.world[M.W_RANKS]), 0
            )
    elif kind == M.MET_PHASE:
        prefetch(agenda.lists, home_of_list(agenda, rank, b), 0)


@called
def _run(machine: Machine) -> int:
    """Run a machine that is lent."""
    apart()
    agenda, nodes = machine.agenda, machine.nodes
    counters = agenda.counters
    for node in range(nodes.shape[0]):
        if nodes[node, M.N_WAITS] == 0 and nodes[node, M.N_PARENT] == 0:
            push_ready(machine, nodes[node, M.N_RANK], node)
    for rank in range(machine.ranks.shape[0]):
        _issue_all(machine, rank, -1)
    while counters[HEAP] > 0 and counters[PROBLEM] == 0:
        now = agenda.heap[0]
        counters[NOW] = now
        at, size = find(agenda, now), counters[TIMES]
        while has_events(agenda, at) and counters[PROBLEM] == 0:
            what, b = next_event(agenda, at)
            kind, a, rank = content_of(what)
            _foresee(machine, at)
            if what & LISTED:
                _run_list(machine, rank, kind, a, b)
            else:
                counters[EVENTS] += 1
                if kind == M.HOP:
                    _hop(machine, a)
                elif kind == M.LINK_FREE:
                    free_link(machine, a)
                elif kind == M.MET or kind == M.MET_PHASE:
                    _end_is_near(machine, kind, rank, a, b)
                else:
                    _happen(machine, kind, a, b)
            if counters[TIMES] != size:  # chains are somewhere else now
                at, size = find(agenda, now), counters[TIMES]
        forget(agenda, at)
        pop_time(agenda)
    return counters[PROBLEM]


@kernel
def run_machine(machine: Machine) -> int:
    """Run a simulation to its end.

    Parameters
    ----------
    machine
        The arrays of :class:`nadi.simulator.engine.machine_state.Machine`; those of ranks and
        nodes hold the answer afterwards. Nodes are numbered in the order of rank and id.

    Returns
    -------
    int
        0, or a problem, with which nothing holds: TOO_SMALL are the arrays of events, streams
        or messages, TOO_MANY collectives of one group were under way, or UNLIKE ones met.
        What never happens has a time of -1. O(events log(different times)).
    """
    return _run(lent(machine))
