"""The arrays of a simulation, message by message: who is where, and how far.

Each array has a row per thing. Its columns are declared here, once: ``nodes[node, NODE.start]``
is when a node was issued. Times are in ns. A reference is a row number, and -1 is nothing.
"""

from typing import NamedTuple

import numpy as np

from nadi.kernels.columns import Columns, column, same_as
from nadi.simulation.engine.event_queue import Agenda
from nadi.simulation.flows.flow_state import Flows

NUM_SLOTS = 4
KINDS = 32  # more than there are kinds of events: two of them fit in one number
WHOLE_LINK = 1 << 20  # PHASE.share of messages that have their links for themselves
NS_PER_BYTE = 1 << 40  # PHASE.pace of 1 byte per ns
BY_HOPS = -1  # PHASE.pace where a link is shared as often as there are hops
PIECE = 1 << 16  # bytes of a piece of a chunk, if there are not too many
MOST_PIECES = 64
DEEPEST = 64  # things to be done on buses at one time
HANDSHAKE = 8192  # bytes of a request of the rendezvous protocol
PS = 1000  # flows count their times in ps


class WORLD(Columns, of="world"):
    """The numbers that hold for all of a simulation. Flags are 0 or 1."""

    ranks = column("how many ranks are simulated")
    queues = column("queues of streams, for each dimension of a rank")
    limit = column("streams that may run at once in a queue")
    aware = column("flag: links contend")
    rendezvous = column("flag: a message leaves when its receiver has asked for it")
    meet = column("flag: times of phases are worked out at once")
    bus = column("flag: packets go over the memory bus")
    latency = column("of the bus: from leaving one side to reaching the other", "ns")
    overhead = column("of the bus: spent on a transfer by each side", "ns")
    pause = column("of the bus: from one transfer of a side to its next, at least", "ns")
    reduction = column("of the bus: 100 bytes reduced", "ns")
    start = column("time before a collective's first packet", "ns")
    sets = column("sets of queues that a rank has: one for each slot, if there are several")
    ordered = column("flag: all ranks start the chunks of a queue in one order")
    gather = column("flag: a phase is put into queues when its last member has come to it")
    ways = column("2 if streams that go the other way round have queues of their own, else 1")
    policy = column("QueuePolicy; with another than FIFO all members of a phase start at once")
    rounds_down = column("flag: bytes that do not divide by the members are lost (ASTRA-sim)")
    lowest_only = column("flag: only the lowest dimension of a message's way counts (ASTRA-sim)")
    relays_parts = column("flag: all-to-all rings send one part a message (ASTRA-sim)")
    issues_late = column("flag: what comes free as a rank issues waits for an end (ASTRA-sim)")
    flows = column("flag: transfers that share links slow each other down")
    units = column("in how many units a byte per ns is counted as the rate of a flow")
    base = column("from when on flows count their times", "ns")
    wake = column("when flows are looked at next, as far as an event was added for it", "ns")


class RATE(Columns, of="rates"):
    """Of a dimension; the last row is of local memory and its bus. float64."""

    bandwidth = column("of a link, or of local memory", "bytes/ns")
    latency = column("of a hop; in the last row the bus's time of a byte", "ns")


class DIM(Columns, of="dims"):
    """Of a dimension of the network."""

    topology = column("Topology")
    n = column("how many ranks differ in it")
    stride = column("how far apart these are in number")
    links = column("its first link")


class RANK(Columns, of="ranks"):
    """Of a rank."""

    busy = column("flag: the slot is busy; one column each", span=NUM_SLOTS)
    ready = column("how many nodes are ready for each slot", span=NUM_SLOTS)
    base = column("where these are kept in ``ready``", span=NUM_SLOTS)
    ongoing = column("how many nodes are issued and not completed")
    left = column("how many nodes are not completed")
    finish = column("when it had nothing more to do; -1 before", "ns")
    loop = column("flag: it is issuing, and what comes free waits in ``deferred``")
    deferred = column("the first node that came free meanwhile")
    place = column("where it is in the network; one that stands for others is not where it is here")


class NODE(Columns, of="nodes"):
    """Of a node of the job; after those of the program come those of collectives of their own."""

    rank = column("whose it is")
    kind = column("NodeKind")
    slot = column("Slot")
    time = column("how long a DELAY or ACCESS takes, and a TRANSFER alone", "ns")
    size = column(
        "of a message or TRANSFER, bytes; of a COLLECTIVE its priority; of a CUSTOM its first node"
    )
    peer = column("where the other rank is, or the group of a collective")
    key = column(
        "its row of ``keys``; of a COLLECTIVE its shape; of an ACCESS its server; of a TRANSFER "
        "its way's number in ``pairs``"
    )
    member = column("the rank's place in its group")
    waits = column("how many nodes it waits for")
    first = column("its first place in ``children``")
    last = column("behind its last place in ``children``")
    start = column("when it was issued; -1 before", "ns")
    end = column("when it was completed; -1 before", "ns")
    cause = column("the node whose completion let it be issued")
    next = column("the node that waits behind it for the same")
    left = column(
        "chunks of a COLLECTIVE, or nodes of a CUSTOM, that are not done; of a TRANSFER its latency"
    )
    number = column("counts a member's collectives of a group; -1: in the order they are issued")
    parent = column("the CUSTOM node that it is part of, and 1 more; 0 if none")
    # what was issued waits for no other node
    transfer = same_as(waits, "of a COLLECTIVE worked out as a whole: its transfer, and 1 more")


class KEY(Columns, of="keys"):
    """Of what is sent under one key: two ranks, a tag and a size."""

    arrived = column("messages that are there and not taken")
    head = column("the first receive that waits")
    tail = column("the last receive that waits")
    asked = column("by rendezvous: requests that are there")
    sends = column("by rendezvous: the first message that waits for a request")
    last = column("by rendezvous: the last message that waits for a request")


class SHAPE(Columns, of="shapes"):
    """Of collectives of one type, size, group and root."""

    recipe = column("how it is done")
    chunks = column("how many chunks it is cut into")
    chunk = column("of a chunk", "bytes")
    whole = column("flag: worked out as a whole when the last member begins")
    rest = column("how many of the chunks have a byte more")
    root = column("the root's place in its group")
    time = column("of a TIMED phase, from when the last member begins", "ns")


class GROUP(Columns, of="groups"):
    """Of a process group; the first is all ranks."""

    members = column("its first row of ``members``")
    size = column("how many members it has")
    mail = column("its first row of ``mail``")
    region = column("rows of mail that one collective has")
    window = column("collectives that may be under way")
    meetings = column("its first row of ``meetings``")
    here = column("members that wait for the others of a collective worked out as a whole")
    seats = column("its first row of ``seats``")
    rows = column("seats that one collective has")
    alike = column("flag: one rank stands for all members")


class MEMBER(Columns, of="members"):
    """Of a member of a group."""

    rank = column("who it is, or who stands for it")
    place = column("where it is in the network")
    begun = column("how many collectives of the group it began")
    came = column("when it began the one that waits for others", "ns")
    node = column("its node of that")


class MEETING(Columns, of="meetings"):
    """Of one collective of a group."""

    number = column("which of the group's collectives it is")
    node = column("the node that came first")
    left = column("members that have not done their part")


class RECIPE(Columns, of="recipes"):
    """Of a way to do a collective."""

    phases = column("how many phases it has")
    slots = column("senders that a member tells apart in a phase, at most")
    delay = column("what a member spends on a packet", "ns")
    group = column("flag: of a process group, as ASTRA-sim does it")


class PHASE(Columns, of="phases"):
    """Of a phase of a recipe, done by each line of ``size`` members ``stride`` places apart."""

    dim = column("the dimension in which they differ; -1: all are one line; of TIMED its queue's")
    comm = column("Comm")
    half = column("column of TURN: which of a dimension's queues it takes in turn")
    algorithm = column("PhaseKind")
    window = column("messages of a DIRECT phase at once; -1: all")
    tree = column("its column of ``trees``")
    size = column("members of a line")
    stride = column("places between them in their group")
    share = column("messages that share a link at once, in parts of WHOLE_LINK")
    pace = column("what a byte takes at least, in parts of NS_PER_BYTE; or BY_HOPS")
    both = column("flag: every second stream goes the other way round, in a queue of its own")
    steps = column("the first of its programs")
    trees = column("how many programs it has, which chunks take in turn")
    before = column("phases before it that share its queue")
    beside = column("chunks of it that share links at once")


class PROGRAM(Columns, of="programs"):
    """Of a program of steps."""

    starts = column("its first row of ``starts``")
    first = column("its first step")
    last = column("behind its last step")
    piped = column("flag: its chunk goes in pieces")


class START(Columns, of="starts"):
    """Of a member of a program."""

    first = column("its first step; -1 if it has none")
    count = column("how many steps it does; after its last it begins again")


class STEP(Columns, of="step_rows"):
    """Of a step of a program, in an order in which they can be done."""

    kind = column("StepKind")
    member = column("whose it is")
    peer = column("with whom")
    count = column("how many parts of the chunk")
    parts = column("of how many parts; 0: it is a piece")
    place = column("in the receiver's mail")
    source = column("of what is taken, the step that sends it")
    next = column("the member's next step")
    arrives = column("when what it sends has arrived", "ns")
    beside = column("flag: it shares the link with others, and does not wait for them")


class STREAM(Columns, of="streams"):
    """Of a stream: one chunk of a collective on one rank.

    From ``mail`` on what only those need whose messages are events.
    """

    rank = column("whose it is")
    node = column("its collective")
    group = column("the group of that")
    recipe = column("the recipe of that")
    phase = column("which phase of the recipe it is in")
    size = column("of the chunk, as the phase begins", "bytes")
    queue = column("where it waits or runs")
    next = column("the stream behind it in the queue")
    algorithm = column("PhaseKind of the phase")
    comm = column("Comm of the phase")
    n = column("members of its line")
    index = column("its place in the line")
    line = column("the place in the group of the first of the line")
    stride = column("places between members of the line")
    step = column("1 for a clockwise ring or the first tree, else -1")
    seats = column("its chunk's first row of ``seats``")
    number = column("which of the collective's chunks it is")
    transfer = column("of a phase worked out at once: its transfer, and 1 more; 0 if none")
    mail = column("its phase's first row of ``mail``")
    place = column("where its rank is in the network")
    window = column("packets at once")
    block = column("inserts of a pair beyond the window")
    max = column("packets that it sends in the phase")
    delay = column("what it spends on a packet", "ns")
    inserted = column("packets that were taken in")
    free = column("slots that packets have left")
    taken = column("messages that were received")
    sends = column("packets that were sent")
    parent = column("in a tree")
    left = column("left child in a tree")
    right = column("right child in a tree")
    reduced = column("children whose data is reduced")
    state = column("in a tree, whether it waits for its parent")
    slots = column("rows of mail that a member of the phase has")
    share = column("PHASE.share")
    pace = column("PHASE.pace")
    # what follows steps needs no tree
    at = same_as(left, "its next step")
    first = same_as(parent, "its first step")
    todo = same_as(block, "how many steps are left")
    root = same_as(right, "the root's place in the line")
    pieces = same_as(reduced, "how many pieces of the chunk are left")
    leaving = same_as(state, "till when what it sent leaves; in a ring, when it arrives", "ns")
    comes = same_as(sends, "till when something comes in", "ns")


class PLAN(Columns, of="plans"):
    """Of a phase of a stream, where a queue is chosen. int32."""

    queue = column("which of its rank's queues")
    clockwise = column("flag: a ring goes clockwise, or it is the first tree or program")


class SEAT(Columns, of="seats"):
    """Of a member in a phase that meets."""

    came = column("when it began", "ns")
    stream = column("its stream")


class QUEUE(Columns, of="queues"):
    """Of a queue of streams."""

    running = column("streams that run")
    head = column("the first stream that waits; by another policy than FIFO the first line")
    tail = column("the last stream that waits")
    next = column("which start is the next, where chunks start in order")


class LINE(Columns, of="lines"):
    """Of the phases that wait for the same queues. Only by another policy than FIFO."""

    first = column("a stream of the one that comes first")
    full = column("the member at whose queue it stands")
    next = column("the next line that stands there")


class WAITER(Columns, of="waiting"):
    """Of a stream that waits in a line. Only by another policy than FIFO."""

    priority = column("the highest comes first")
    order = column("of equal priorities the lowest")
    under = column("the first of those under it in the heap")
    beside = column("the next of those that are under the same")


class TURN(Columns, of="turns"):
    """Of a rank and dimension: the queue whose turn it is."""

    of_all = column("of all queues")
    first_half = column("of those of the first half of an all-reduce")
    second_half = column("of those of the second half")


class MAIL(Columns, of="mail"):
    """Of a place where a member gets messages of a phase."""

    balance = column("messages that came, less those that were asked for")
    stream = column("who asked")
    asked = column("by rendezvous: requests that are there")
    sends = column("by rendezvous: the first message that waits for a request")
    last = column("by rendezvous: the last message that waits for a request")


class MESSAGE(Columns, of="messages"):
    """Of a message on its way, or waiting to be sent; also of a transfer on a bus."""

    next = column("the message behind it")
    size = column("of the message", "bytes")
    at = column("where it is; on a bus, a flag: to be reduced")
    dst = column("where it goes; on a bus, a flag: to be sent back")
    kind = column("Event that happens when it is there")
    a = column("what that is about")
    b = column("what else there is to know")
    switch = column("flag: it is at a switch")
    dim = column("the dimension of its link")
    link = column("the link that it takes")


class TRANSFER(Columns, of="transfers"):
    """Of what is under way over links that others may use: a message, or a phase that meets."""

    next = column("the free row behind this one")
    kind = column("Event that happens when all bytes are there; MET and MET_PHASE of a phase")
    a = column("what that is about; of a phase the first of the members that wait for the end")
    b = column("what else there is to know; of a phase how many members have not ended")
    end = column("when its bytes are there if nothing slows them down", "ns")
    after = column("from then to what happens: latency", "ns")
    flow = column("its row of flows; -1: its bytes are there")


class LINK(Columns, of="links"):
    """Of a link, where these contend."""

    busy = column("flag: it sends")
    head = column("the first message that waits")
    tail = column("the last message that waits")
    bytes = column("sent in all", "bytes")
    time = column("in which it sent", "ns")
    waiting = column("how many messages wait")
    peak = column("how many waited at most")


class SERVER(Columns, of="servers"):
    """Of a server of remote memory."""

    busy = column("flag: it serves")
    head = column("the first node that waits")
    tail = column("the last node that waits")


class SIDE(Columns, of="sides"):
    """Of a side of a bus: four to a rank, of which the last two are of its memory's."""

    state = column("BusState")
    before = column("BusState before that")
    last = column("when it last changed", "ns")
    in_a_row = column("transfers sent since it received")
    count = column("transfers on their way to it")
    reduces = column("flag: it reduces")
    sends = column("the first transfer to send")
    sends_last = column("the last transfer to send")
    receives = column("the first transfer on its way")
    receives_last = column("the last transfer on its way")
    reductions = column("the first transfer to reduce")
    reductions_last = column("the last transfer to reduce")


class TODO(Columns, of="todo"):
    """Of what is to be done on buses, the last first."""

    what = column("one of the codes of :mod:`nadi.simulation.engine.memory_bus`")
    side = column("where")
    transfer = column("of what, if anything")


class SCRATCH(Columns, of="scratch"):
    """Rows, and not columns, of the times of a phase's members that are worked out at once."""

    starts = column("when each begins", "ns")
    ends = column("when each ends", "ns")
    next = column("when each ends the step at hand, or is done sending", "ns")
    members = column("the rank of each")
    hops = column("how long a message to each takes, or till when one comes in", "ns")


class Machine(NamedTuple):
    """All arrays of a simulation; int64, except where their columns are declared otherwise.

    Those without columns: ``children`` (dependencies,), who waits for a node. ``ready`` (nodes,),
    a heap for each slot of a rank. ``here`` (seats x phases,), int32, at its first member how many
    have come to a phase. ``trees`` (ranks, types x dimensions), which tree comes next.

    ``ways`` (groups, recipes, phases, 2), int32, has the first route of the lines of a phase, in
    the order of their first members, for each of its directions or trees; -1: none. ``pairs``
    (pairs,) has in order sender and receiver, as sender x ranks + receiver, and behind them the
    ways between ranks and memory tiers: each has the route of its place there. ``shares`` (routes,
    3) float64: of a route how many of the bytes of a phase's member go over one of its links, the
    most that a rate may be, and what this link carries, both in WORLD.units.

    Others are (rows, columns), but ``world`` (columns,), ``phases`` (recipes, phases, columns),
    ``plans`` (streams, phases, columns), ``turns`` (ranks, dimensions, columns) and ``scratch``
    (rows, members at most). For each group, collective under way and chunk there is a seat of each
    member. A line has the number of its first member's queue (see ``queue_policies``).
    """

    agenda: Agenda
    world: np.ndarray
    rates: np.ndarray
    dims: np.ndarray
    ranks: np.ndarray
    nodes: np.ndarray
    children: np.ndarray
    ready: np.ndarray
    keys: np.ndarray
    shapes: np.ndarray
    groups: np.ndarray
    members: np.ndarray
    meetings: np.ndarray
    recipes: np.ndarray
    phases: np.ndarray
    streams: np.ndarray
    plans: np.ndarray
    queues: np.ndarray
    lines: np.ndarray
    waiting: np.ndarray
    turns: np.ndarray
    trees: np.ndarray
    mail: np.ndarray
    seats: np.ndarray
    here: np.ndarray
    messages: np.ndarray
    links: np.ndarray
    flows: Flows
    transfers: np.ndarray
    ways: np.ndarray
    pairs: np.ndarray
    shares: np.ndarray
    servers: np.ndarray
    scratch: np.ndarray
    sides: np.ndarray
    todo: np.ndarray
    programs: np.ndarray
    starts: np.ndarray
    step_rows: np.ndarray


class SharingMachine(Machine):
    """A machine whose collectives are all worked out at once, and share links with messages."""

    leaves_out = frozenset({"messages"})


class ApartMachine(Machine):
    """A machine whose links nobody shares, or whose messages wait for each other there."""

    leaves_out = frozenset({"flows"})


class MeetingMachine(Machine):
    """A machine whose collectives are all worked out at once, and whose links nobody shares."""

    leaves_out = frozenset({"messages", "flows"})


class HostMachine(Machine):
    """A machine of ranks that have nothing to do with each other."""

    leaves_out = frozenset({"messages", "collectives", "flows"})
