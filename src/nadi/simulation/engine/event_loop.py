"""The event engine: nodes of all ranks, issued as their dependencies and slots allow.

Every message of every collective is an event. This is the engine that leaves nothing out.
Where nothing contends, :mod:`nadi.simulation.engine.ring_direct_halving` works out many at
once.
"""

from nadi.kernels.jit import apart, called, inner, kernel, lent, prefetch
from nadi.kernels.sequences import put_in, take_first
from nadi.simulation.engine.codes import Event, NodeKind, PhaseKind, Problem, Slot
from nadi.simulation.engine.collective_streams import (
    begin_queues,
    enter,
    new_stream,
    next_phase,
    received,
    serve,
    stays_in_phase,
)
from nadi.simulation.engine.event_queue import (
    COUNTER,
    LISTED,
    add_event_of,
    after,
    content_of,
    end_list,
    event_ahead,
    find,
    find_list,
    forget,
    free_row,
    has_events,
    home_of_list,
    next_callback,
    next_event,
    pop_time,
    put_behind,
    take_queued,
)
from nadi.simulation.engine.machine_state import (
    GROUP,
    KINDS,
    MEETING,
    MEMBER,
    MESSAGE,
    NODE,
    NUM_SLOTS,
    PHASE,
    PLAN,
    QUEUE,
    RANK,
    RECIPE,
    SCRATCH,
    SERVER,
    SHAPE,
    STREAM,
    WORLD,
    Machine,
)
from nadi.simulation.engine.mailboxes import (
    arrive,
    issue_receive,
    issue_send,
    place_at,
    receiver_of,
    request_arrives,
    request_of_node_arrives,
    send_now,
)
from nadi.simulation.engine.memory_bus import begin_bus_event, run_bus
from nadi.simulation.engine.network_links import free_link, free_message, put_on_link
from nadi.simulation.engine.parts import COLLECTIVES, MESSAGES, belongs_to
from nadi.simulation.engine.ring_direct_halving import finish_times, general
from nadi.simulation.engine.shared_transfers import (
    begin_message,
    begin_phase,
    end_flows,
    is_held,
    settle_flows,
)
from nadi.simulation.engine.stepwise_algorithms import (
    follow,
    take_in,
    tree_down,
    tree_reduce,
    tree_up,
)


@called
def _leave(machine: Machine, node: int) -> None:
    """End a node: its slot is free, and its children may be ready."""
    nodes = machine.nodes
    rank = nodes[node, NODE.rank]
    r = machine.ranks[rank]
    nodes[node, NODE.end] = machine.agenda.counters[COUNTER.now]
    r[RANK.ongoing] -= 1
    r[RANK.left] -= 1
    r[RANK.busy + nodes[node, NODE.slot]] = 0
    for k in range(nodes[node, NODE.first], nodes[node, NODE.last]):
        child = machine.children[k]
        nodes[child, NODE.waits] -= 1
        if nodes[child, NODE.waits] == 0:
            if r[RANK.loop] != 0:  # what is being issued is what was ready before
                nodes[child, NODE.next] = r[RANK.deferred]
                r[RANK.deferred] = child
            else:
                push_ready(machine, rank, child)


# issuing


@called
def _meet(machine: Machine, node: int) -> None:
    """Count a collective of a group: those of a number are one and the same."""
    nodes, counters = machine.nodes, machine.agenda.counters
    group = machine.groups[nodes[node, NODE.peer]]
    member = group[GROUP.members] + nodes[node, NODE.member]
    number = machine.members[member, MEMBER.begun]
    machine.members[member, MEMBER.begun] = number + 1
    if nodes[node, NODE.number] < 0:
        nodes[node, NODE.number] = number
    number = nodes[node, NODE.number]
    t = machine.meetings[group[GROUP.meetings] + number % group[GROUP.window]]
    if t[MEETING.number] != number:
        if t[MEETING.left] != 0:
            counters[COUNTER.problem] = Problem.TOO_MANY
            return
        t[MEETING.number], t[MEETING.node] = number, node
        t[MEETING.left] = group[GROUP.size] if group[GROUP.alike] == 0 else 1
    elif nodes[t[MEETING.node], NODE.key] != nodes[node, NODE.key]:
        counters[COUNTER.problem], counters[COUNTER.culprit] = Problem.UNLIKE, node


@inner
def _part(machine: Machine, node: int) -> None:
    """Note that a member has done its part of a collective."""
    group = machine.groups[machine.nodes[node, NODE.peer]]
    number = machine.nodes[node, NODE.number]
    machine.meetings[group[GROUP.meetings] + number % group[GROUP.window], MEETING.left] -= 1


@called
def _meet_as_a_whole(machine: Machine, node: int) -> None:
    """Wait for the other members of a collective; the last to come works out when each ends."""
    nodes, members, times, agenda = (
        machine.nodes, machine.members, machine.scratch, machine.agenda
    )  # fmt: skip
    number = nodes[node, NODE.peer]
    group = machine.groups[number]
    first, n = group[GROUP.members], group[GROUP.size]
    own = first + nodes[node, NODE.member]
    members[own, MEMBER.came] = agenda.counters[COUNTER.now] + machine.world[WORLD.start]
    members[own, MEMBER.node] = node
    present = n if group[GROUP.alike] == 0 else 1
    group[GROUP.here] += 1
    if group[GROUP.here] < present:
        return
    group[GROUP.here] = 0
    shape = machine.shapes[nodes[node, NODE.key]]
    recipe = machine.recipes[shape[SHAPE.recipe]]
    phase = machine.phases[shape[SHAPE.recipe], 0]
    gather, now = machine.world[WORLD.gather], agenda.counters[COUNTER.now]
    for i in range(n):
        came = own if gather != 0 or present == 1 else first + i
        times[SCRATCH.starts, i] = members[came, MEMBER.came]
        times[SCRATCH.members, i] = place_at(machine, number, i)
    early = 0
    # as many chunks at once as a queue lets run; the others follow them one by one
    for k in range(-(-shape[SHAPE.chunks] // machine.world[WORLD.limit])):
        size = shape[SHAPE.chunk] + (1 if k < shape[SHAPE.rest] else 0)
        if phase[PHASE.algorithm] == PhaseKind.TIMED:
            size = shape[SHAPE.time]
        second = phase[PHASE.algorithm] == PhaseKind.STEPS and k % phase[PHASE.trees] == 1
        early = finish_times(
            machine, times, present, phase, size, recipe[RECIPE.delay], -1 if second else 1,
            recipe[RECIPE.group],
        )  # fmt: skip
        for i in range(present):
            times[SCRATCH.starts, i] = times[SCRATCH.ends, i]
    last = now
    for i in range(present):
        last = max(last, times[SCRATCH.ends, i])
    transfer = 0
    if machine.world[WORLD.flows] != 0:
        total = shape[SHAPE.chunks] * shape[SHAPE.chunk] + shape[SHAPE.rest]
        transfer = begin_phase(machine, node, 0, 0, 0, total, last, present)
    for i in range(present):
        end = times[SCRATCH.ends, i]
        time = max(end - early, now)
        member = own if present == 1 else first + i
        rank, of_member = members[member, MEMBER.rank], members[member, MEMBER.node]
        nodes[of_member, NODE.transfer] = transfer
        add_event_of(agenda, rank, time, Event.MET, of_member, end)


@belongs_to(COLLECTIVES)
@called
def _start_collective(machine: Machine, rank: int, node: int) -> None:
    agenda, shape = machine.agenda, machine.shapes[machine.nodes[node, NODE.key]]
    _meet(machine, node)
    if agenda.counters[COUNTER.problem] != 0:
        return
    if machine.recipes[shape[SHAPE.recipe], RECIPE.phases] == 0:
        _part(machine, node)
        now = agenda.counters[COUNTER.now]
        after(agenda, rank, now, Event.COMPLETE, node, 0)
        return
    if shape[SHAPE.whole] != 0:
        _meet_as_a_whole(machine, node)
        return
    if machine.world[WORLD.start] > 0:
        start = agenda.counters[COUNTER.now] + machine.world[WORLD.start]
        if machine.world[WORLD.gather] != 0:  # beside those of other ranks, in the order of issue
            add_event_of(agenda, rank, start, Event.BEGIN, node, 0)
        else:
            after(agenda, rank, start, Event.BEGIN, node, 0)
    else:
        _begin_collective(machine, rank, node)


@belongs_to(COLLECTIVES)
@called
def _begin_collective(machine: Machine, rank: int, node: int) -> None:
    """Cut a collective into streams, and let the first of them go."""
    shape = machine.shapes[machine.nodes[node, NODE.key]]
    machine.nodes[node, NODE.left] = shape[SHAPE.chunks]
    begin_queues(machine, rank, node)
    for number in range(shape[SHAPE.chunks]):
        stream = new_stream(machine, rank, node, number)
        if stream < 0:
            return
        enter(machine, stream, next_phase(machine, stream))


@called
def _issue_simple(machine: Machine, rank: int, node: int) -> None:
    """Issue what takes a time of its own, a send or a receive."""
    agenda, nodes = machine.agenda, machine.nodes
    kind = nodes[node, NODE.kind]
    nodes[node, NODE.start] = agenda.counters[COUNTER.now]
    if kind == NodeKind.DELAY:
        time = agenda.counters[COUNTER.now] + nodes[node, NODE.time]
        after(agenda, rank, time, Event.COMPLETE, node, 0)
    elif kind == NodeKind.SEND:
        issue_send(machine, rank, node)
    else:
        issue_receive(machine, rank, node)


@called
def _issue(machine: Machine, rank: int, node: int) -> None:
    nodes = machine.nodes
    kind = nodes[node, NODE.kind]
    if kind <= NodeKind.RECEIVE:
        _issue_simple(machine, rank, node)
    elif kind == NodeKind.COLLECTIVE:
        _start_collective(machine, rank, node)
    elif kind == NodeKind.ACCESS:
        access_memory(machine, node)
    elif kind == NodeKind.TRANSFER:
        access_tier(machine, rank, node)
    elif kind == NodeKind.CUSTOM:  # a trace of its own, whose nodes need no slots
        first = nodes[node, NODE.size]
        for part in range(first, first + nodes[node, NODE.left]):
            if nodes[part, NODE.waits] == 0:
                _issue_simple(machine, rank, part)
    else:
        _leave(machine, node)


@called
def _end_part(machine: Machine, part: int) -> int:
    """End a node of a collective that is a trace of its own; gives the collective if it is over."""
    nodes = machine.nodes
    nodes[part, NODE.end] = machine.agenda.counters[COUNTER.now]
    for k in range(nodes[part, NODE.first], nodes[part, NODE.last]):
        child = machine.children[k]
        nodes[child, NODE.waits] -= 1
        if nodes[child, NODE.waits] == 0:
            _issue_simple(machine, nodes[child, NODE.rank], child)
    whole = nodes[part, NODE.parent] - 1
    nodes[whole, NODE.left] -= 1
    return whole if nodes[whole, NODE.left] == 0 else -1


@called
def _gives_way(machine: Machine, rank: int, node: int, cause: int) -> bool:
    """Let other ranks issue collectives of this time before a rank issues more than one.

    Else the order of groups on shared links would be that of the numbers of their last members.
    """
    r, agenda = machine.ranks[rank], machine.agenda
    if machine.world[WORLD.gather] == 0 or machine.nodes[node, NODE.kind] != NodeKind.COLLECTIVE:
        return False
    if r[RANK.ready] + r[RANK.ready + 1] + r[RANK.ready + 2] + r[RANK.ready + 3] == 0:
        return False
    add_event_of(agenda, rank, agenda.counters[COUNTER.now], Event.ISSUE, 0, cause)
    return True


@called
def _issue_all(machine: Machine, rank: int, cause: int) -> None:
    """Issue what is ready and has a free slot, in order of id."""
    r = machine.ranks[rank]
    again, gives_way = True, False
    while again:
        r[RANK.loop] = 1
        node = next_to_issue(machine, rank)
        while node >= 0:
            r[RANK.ongoing] += 1
            slot = machine.nodes[node, NODE.slot]
            if slot != Slot.NONE:
                r[RANK.busy + slot] = 1
            machine.nodes[node, NODE.start] = machine.agenda.counters[COUNTER.now]
            machine.nodes[node, NODE.cause] = cause
            _issue(machine, rank, node)
            gives_way = _gives_way(machine, rank, node, cause)
            node = -1 if gives_way else next_to_issue(machine, rank)
        r[RANK.loop] = 0
        again = r[RANK.deferred] >= 0 and machine.world[WORLD.issues_late] == 0 and not gives_way
        while r[RANK.deferred] >= 0:
            node = r[RANK.deferred]
            r[RANK.deferred] = machine.nodes[node, NODE.next]
            push_ready(machine, rank, node)
    num_ready = r[RANK.ready] + r[RANK.ready + 1] + r[RANK.ready + 2] + r[RANK.ready + 3]
    if num_ready == 0 and r[RANK.ongoing] == 0:
        r[RANK.finish] = machine.agenda.counters[COUNTER.now]


@called
def _complete(machine: Machine, node: int) -> None:
    if machine.nodes[node, NODE.parent] != 0:
        node = _end_part(machine, node)
        if node < 0:
            return
    _leave(machine, node)
    _issue_all(machine, machine.nodes[node, NODE.rank], node)


@belongs_to(COLLECTIVES)
@called
def _leave_phase(machine: Machine, stream: int) -> None:
    """End a stream's phase: it goes on to the next, and its place in the queue is free."""
    if machine.world[WORLD.flows] != 0 and stays_in_phase(machine, stream):
        return
    s = machine.streams[stream]
    old, node = s[STREAM.queue], s[STREAM.node]
    last = s[STREAM.phase] + 1 == machine.recipes[s[STREAM.recipe], RECIPE.phases]
    if last:
        machine.nodes[node, NODE.left] -= 1
        if machine.nodes[node, NODE.left] == 0:
            _part(machine, node)
            _complete(machine, node)
    machine.queues[old, QUEUE.running] -= 1
    if last:
        counters = machine.agenda.counters
        free_row(counters, COUNTER.free_stream, machine.streams, STREAM.next, stream)
        serve(machine, old)
    else:
        queue = next_phase(machine, stream)
        serve(machine, old)
        enter(machine, stream, queue)


# events


@called
def _passed(machine: Machine, kind: int, stream: int) -> None:
    """Go on with a packet that has passed the memory of its rank."""
    if kind == Event.GENERAL:
        if general(machine, stream):
            _leave_phase(machine, stream)
    elif kind == Event.EXIT:
        _leave_phase(machine, stream)
    elif kind == Event.STEP:
        if follow(machine, stream):
            _leave_phase(machine, stream)
    elif kind == Event.TAKEN:
        take_in(machine, stream)
    elif kind == Event.UP:
        tree_up(machine, stream)
    elif kind == Event.REDUCE:
        if tree_reduce(machine, stream):
            tree_up(machine, stream)
    else:
        tree_down(machine, stream)
        _leave_phase(machine, stream)


@belongs_to(MESSAGES)
@called
def _bus_event(machine: Machine, kind: int, side: int) -> None:
    """Something has happened on a bus: packets may have passed it."""
    begin_bus_event(machine, kind, side)
    transfer = run_bus(machine, 0)
    while transfer >= 0:
        stream, code = machine.messages[transfer, MESSAGE.a], machine.messages[transfer, MESSAGE.b]
        free_message(machine, transfer)
        kind, cost = code // 2 % KINDS, code // 2 // KINDS
        if code % 2 == 0:
            _passed(machine, kind, stream)
        else:
            agenda, rank = machine.agenda, machine.streams[stream, STREAM.rank]
            time = agenda.counters[COUNTER.now] + cost
            after(agenda, rank, time, kind, stream, 0)
        transfer = run_bus(machine, 0)


@belongs_to(COLLECTIVES)
@inner
def _end_is_near(machine: Machine, kind: int, rank: int, what: int, end: int) -> None:
    """Add the callback that ends a member's collective or phase, when its rank would add it."""
    if machine.world[WORLD.flows] != 0 and is_held(machine, kind, what):
        return
    if kind == Event.MET:
        _part(machine, what)
        after(machine.agenda, rank, end, Event.COMPLETE, what, 0)
    else:
        machine.streams[what, STREAM.transfer] = 0
        after(machine.agenda, rank, end, Event.EXIT, what, 0)


@called
def _happen(machine: Machine, kind: int, a: int, b: int) -> None:
    """Let one event happen, or one callback of a rank."""
    if kind >= Event.GENERAL and kind <= Event.REDUCE:
        _passed(machine, kind, a)
    elif kind == Event.ARRIVE:
        stream = arrive(machine, a)
        if stream >= 0:
            received(machine, stream)
    elif kind == Event.CHARGE:
        agenda, rank = machine.agenda, machine.streams[a, STREAM.rank]
        time = agenda.counters[COUNTER.now] + b // KINDS
        after(agenda, rank, time, b % KINDS, a, 0)
    elif kind == Event.COMPLETE:
        _complete(machine, a)
    elif kind == Event.RECEIVED:
        received(machine, a)
    elif kind == Event.SENT:
        _message_of_nodes_arrives(machine, a)
    elif kind == Event.BEGIN:
        _begin_collective(machine, machine.nodes[a, NODE.rank], a)
    elif kind == Event.MEMORY:
        _complete(machine, a)
        free_memory(machine, machine.nodes[a, NODE.key])
    elif kind == Event.REQUEST:
        request_arrives(machine, a, b)
    elif kind == Event.REQUESTED:
        request_of_node_arrives(machine, a)
    elif kind == Event.REAL_SEND:
        send_now(machine, a)
    elif kind >= Event.BUS_SENT:
        _bus_event(machine, kind, a)


@belongs_to(COLLECTIVES)
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
    at = find_list(agenda, rank, agenda.counters[COUNTER.now])
    while kind != 0:
        agenda.counters[COUNTER.events] += 1
        _happen(machine, kind, a, b)
        if agenda.counters[COUNTER.problem] != 0:
            return
        kind, a, b = next_callback(agenda, at)
    end_list(agenda, at)


@inner
def _hop(machine: Machine, message: int) -> None:
    """Go on with a message that has come to the next device on its way."""
    row = machine.messages[message]
    if row[MESSAGE.switch] != 0 or row[MESSAGE.at] != row[MESSAGE.dst]:
        put_on_link(machine, message)
        return
    kind, a, b = row[MESSAGE.kind], row[MESSAGE.a], row[MESSAGE.b]
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
        prefetch(agenda.lists, home_of_list(agenda, rank, agenda.counters[COUNTER.now]), 0)
        if kind == Event.EXIT:
            prefetch(machine.streams, a, STREAM.rank)
            prefetch(machine.streams, a, STREAM.algorithm)
            # those of a rank stand side by side, and the next of them may begin then
            prefetch(machine.streams, a + 1, STREAM.rank)
            prefetch(machine.streams, a + 1, STREAM.algorithm)
            prefetch(machine.plans, a, PLAN.queue)
            prefetch(
                machine.queues, rank * (machine.queues.shape[0] // machine.world[WORLD.ranks]), 0
            )
    elif kind == Event.MET_PHASE:
        prefetch(agenda.lists, home_of_list(agenda, rank, b), 0)


@inner
def _begin_time(machine: Machine, now: int) -> None:
    """End what flows have brought till a time, before its events happen."""
    if machine.world[WORLD.flows] != 0:
        end_flows(machine, now)


@inner
def _end_time(machine: Machine, now: int) -> None:
    """Give flows their rates, after the events of a time."""
    if machine.world[WORLD.flows] != 0:
        settle_flows(machine, now)


@called
def _run(machine: Machine) -> int:
    """Run a machine that is lent."""
    apart()
    agenda, nodes = machine.agenda, machine.nodes
    counters = agenda.counters
    for node in range(nodes.shape[0]):
        if nodes[node, NODE.waits] == 0 and nodes[node, NODE.parent] == 0:
            push_ready(machine, nodes[node, NODE.rank], node)
    for rank in range(machine.ranks.shape[0]):
        _issue_all(machine, rank, -1)
    _end_time(machine, 0)
    while counters[COUNTER.heap] > 0 and counters[COUNTER.problem] == 0:
        now = agenda.heap[0]
        counters[COUNTER.now] = now
        _begin_time(machine, now)
        at, size = find(agenda, now), counters[COUNTER.times]
        while has_events(agenda, at) and counters[COUNTER.problem] == 0:
            what, b = next_event(agenda, at)
            kind, a, rank = content_of(what)
            _foresee(machine, at)
            if what & LISTED:
                _run_list(machine, rank, kind, a, b)
            else:
                counters[COUNTER.events] += 1
                if kind == Event.HOP:
                    _hop(machine, a)
                elif kind == Event.LINK_FREE:
                    free_link(machine, a)
                elif kind == Event.MET or kind == Event.MET_PHASE:
                    _end_is_near(machine, kind, rank, a, b)
                elif kind == Event.ISSUE:
                    _issue_all(machine, rank, b)
                elif kind != Event.FLOWS:
                    _happen(machine, kind, a, b)
            if counters[COUNTER.times] != size:  # chains are somewhere else now
                at, size = find(agenda, now), counters[COUNTER.times]
        _end_time(machine, now)
        forget(agenda, find(agenda, now))
        pop_time(agenda)
    return counters[COUNTER.problem]


@kernel
def run_machine(machine: Machine) -> int:
    """Run a simulation to its end.

    - ``machine``: The arrays of :class:`nadi.simulation.engine.machine_state.Machine`; those of
      ranks and nodes hold the answer afterwards. Nodes are numbered in the order of rank and id.
    - Returns: 0, or a problem, with which nothing holds: TOO_SMALL are the arrays of events,
      streams or messages, TOO_MANY collectives of one group were under way, or UNLIKE ones met.
      What never happens has a time of -1. O(events log(different times)).
    """
    return _run(lent(machine))


@inner
def push_ready(machine: Machine, rank: int, node: int) -> None:
    """Put a node among those of its slot that are ready."""
    r, slot = machine.ranks[rank], machine.nodes[node, NODE.slot]
    put_in(machine.ready, r[RANK.base + slot], r[RANK.ready + slot], node)
    r[RANK.ready + slot] += 1


@called
def next_to_issue(machine: Machine, rank: int) -> int:
    """Take the lowest ready node whose slot is free; -1 if there is none."""
    r = machine.ranks[rank]
    best, lowest = -1, 0
    for slot in range(NUM_SLOTS):
        if r[RANK.ready + slot] > 0 and r[RANK.busy + slot] == 0:
            node = machine.ready[r[RANK.base + slot]]
            if best < 0 or node < lowest:
                best, lowest = slot, node
    if best < 0:
        return -1
    r[RANK.ready + best] -= 1
    return take_first(machine.ready, r[RANK.base + best], r[RANK.ready + best])


@inner
def _serve_memory(machine: Machine, node: int) -> None:
    nodes, agenda = machine.nodes, machine.agenda
    time = agenda.counters[COUNTER.now] + nodes[node, NODE.time]
    after(agenda, nodes[node, NODE.rank], time, Event.MEMORY, node, 0)


@belongs_to(MESSAGES)
@inner
def access_memory(machine: Machine, node: int) -> None:
    """Ask a server: it begins now, or when it is done with those before."""
    nodes, servers = machine.nodes, machine.servers
    server = nodes[node, NODE.key]
    if servers[server, SERVER.busy] == 0:
        servers[server, SERVER.busy] = 1
        _serve_memory(machine, node)
        return
    put_behind(servers, server, SERVER.head, nodes, NODE.next, node)


@belongs_to(MESSAGES)
@inner
def free_memory(machine: Machine, server: int) -> None:
    """End an access of a server, which goes on to the next."""
    servers = machine.servers
    node = take_queued(servers, server, SERVER.head, machine.nodes, NODE.next)
    if node < 0:
        servers[server, SERVER.busy] = 0
    else:
        _serve_memory(machine, node)


@called
def access_tier(machine: Machine, rank: int, node: int) -> None:
    """Read or write a memory tier: it takes its time alone, or longer where links are shared."""
    nodes, agenda = machine.nodes, machine.agenda
    time, latency = nodes[node, NODE.time], nodes[node, NODE.left]
    if machine.world[WORLD.flows] != 0:
        way, size = nodes[node, NODE.key], nodes[node, NODE.size]
        alone = float(time - latency)
        if begin_message(machine, way, size, alone, time, Event.COMPLETE, node, 0):
            return
    after(agenda, rank, agenda.counters[COUNTER.now] + time, Event.COMPLETE, node, 0)
