"""The arrays of a simulation, message by message: who is where, and how far.

Each array is a table of int64, one row per thing; what its columns are is said here once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.simulator.engine.event_queue import Agenda

# the columns are used as machine.N_RANK and so on, and not imported one by one
__all__ = ["Machine"]

# of the counters of the agenda, beyond its own
FREE_STREAM, USED_STREAM, FREE_MESSAGE, USED_MESSAGE, CULPRIT, DEPTH = range(8, 14)
WAITED = 18  # how many phases have waited in lines
# problems: arrays too small, too many collectives of a group under way, unlike ones that meet
TOO_SMALL, TOO_MANY, UNLIKE = range(1, 4)
# what happens; 0 is a rank's chain of callbacks; from GENERAL to REDUCE packets have passed the
# memory (TAKEN have yet to), and what begins with BUS is last
(
    ARRIVE, HOP, LINK_FREE, RECEIVED, COMPLETE, CHARGE, GENERAL, UP, DOWN, EXIT, STEP, TAKEN,
    REDUCE, MEMORY, SENT, REQUEST, REQUESTED, REAL_SEND, MET, MET_PHASE, BEGIN, BUS_SENT,
    BUS_RECEIVED, BUS_REDUCED,
) = range(1, 25)  # fmt: skip
KINDS = 32  # more than there are: two of them fit in one number

# what kind of node: by what is done when it is issued
DELAY, SEND, RECEIVE, COLLECTIVE, ACCESS, INSTANT, CUSTOM = range(7)
# slots, of which a rank has one each; what needs none takes the last
CPU, COMP, COMM, NO_SLOT = range(4)
NUM_SLOTS = 4
# of a node; KEY is what a send or receive is matched by, the shape of a collective, the server of
# an access; PEER is the other rank, or the group; NUMBER counts a member's collectives of a group,
# and is -1 where the order in which they are issued counts;
# SIZE of a collective is its priority; one that is a trace of its own begins there, and its nodes
# name it by 1 more as PARENT
(
    N_RANK, N_KIND, N_SLOT, N_TIME, N_SIZE, N_PEER, N_KEY, N_MEMBER, N_WAITS, N_FIRST, N_LAST,
    N_START, N_END, N_CAUSE, N_NEXT, N_LEFT, N_NUMBER, N_PARENT,
) = range(18)  # fmt: skip
NODE_FIELDS = 18
# of a rank: which slots are busy, how many nodes are ready for each, where they are kept
R_BUSY, R_READY, R_BASE = 0, 4, 8
R_ONGOING, R_LEFT, R_FINISH, R_LOOP, R_DEFERRED = range(12, 17)
RANK_FIELDS = 17
# of what is sent under one key: how many have come, nodes that wait for them; for rendezvous
# how many were asked for, and sends that wait to be
K_ARRIVED, K_HEAD, K_TAIL, K_ASKED, K_SENDS, K_LAST = range(6)
KEY_FIELDS = 6
# of a shape of collectives: those of one type and size; WHOLE are worked out as a whole; so many
# as REST says of their chunks have a byte more; ROOT is the place of a member in its group
H_RECIPE, H_CHUNKS, H_CHUNK, H_WHOLE, H_REST, H_ROOT = range(6)
SHAPE_FIELDS = 6
# of a group: where its members are listed, how many, where its mail lies, how much each of its
# collectives has of it, how many of them may be under way, where their meetings are listed, how
# many members wait for the others, where its seats are, and how many each collective has
U_MEMBERS, U_SIZE, U_MAIL, U_REGION, U_WINDOW, U_MEETINGS, U_HERE, U_SEATS, U_ROWS = range(9)
GROUP_FIELDS = 9
# of a meeting, one collective of a group: its number, the node that came first, who has left
T_NUMBER, T_NODE, T_LEFT = range(3)
MEETING_FIELDS = 3
# of a phase of a recipe; it is done by every line of SIZE members that stand STRIDE places apart
# in their group, in dimension DIM, or -1 for all members as one line; SHARE is how many
# messages share a link at once, in parts of WHOLE_LINK; PACE is how long a byte takes at least, in
# parts of NS_PER_BYTE, or BY_HOPS if links are shared as often as there are hops;
# of BOTH every second stream goes the other way round, in a queue of its own;
# STEPS is the first of so many programs as TREES says, which chunks take in turn; BEFORE counts
# the phases before it that share its queue
(
    P_DIM, P_COMM, P_HALF, P_ALGORITHM, P_WINDOW, P_TREE, P_SIZE, P_STRIDE, P_SHARE, P_PACE,
    P_BOTH, P_STEPS, P_TREES, P_BEFORE,
) = range(14)  # fmt: skip
PHASE_FIELDS = 14
WHOLE_LINK = 1 << 20  # the SHARE of a phase whose messages have their links for themselves
NS_PER_BYTE = 1 << 40  # the PACE of 1 byte per ns
BY_HOPS = -1
# of a recipe
C_PHASES, C_SLOTS, C_DELAY, C_GROUP = range(4)
RECIPE_FIELDS = 4
# those from BROADCAST on have a root
ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, ALL_TO_ALL, BROADCAST, REDUCE_TO, GATHER, SCATTER = range(8)
RING, DIRECT, HALVING_DOUBLING, TREE, STEPS = range(5)
# of a program of steps: where its members' starts are, where its steps begin and end, whether
# its chunk goes in pieces
A_STARTS, A_FIRST, A_LAST, A_PIPED = range(4)
PROGRAM_FIELDS = 4
# of a step: of whom, with whom; so many of so many parts of the chunk, a piece if 0; the place in
# the receiver's mail; of what is taken, the step that sends it; the member's next; when what it
# sends has arrived; whether it is beside others, which share the link: else a member sends one
# after the other, and takes one after the other
(
    E_KIND, E_MEMBER, E_PEER, E_COUNT, E_PARTS, E_PLACE, E_FROM, E_NEXT, E_ARRIVES, E_BESIDE,
) = range(10)  # fmt: skip
STEP_FIELDS = 10
SEND_STEP, TAKE_STEP, TAKE_AND_REDUCE = range(3)
PIECE = 1 << 16  # bytes of a piece, if there are not too many
MOST_PIECES = 64
# of a stream: what it is, where it waits, and who works on its phase; then what only those need
# whose messages are events; SEATS is where those of its chunk are, LINE the place in the group of
# the first in its line
(
    S_RANK, S_NODE, S_GROUP, S_RECIPE, S_PHASE, S_SIZE, S_QUEUE, S_NEXT, S_ALGORITHM, S_COMM,
    S_N, S_INDEX, S_LINE, S_STRIDE, S_STEP, S_SEATS, S_NUMBER,
    S_MAIL, S_WINDOW, S_BLOCK, S_MAX, S_DELAY, S_INSERTED, S_FREE, S_TAKEN,
    S_SENDS, S_PARENT, S_LEFT, S_RIGHT, S_REDUCED, S_STATE, S_SLOTS, S_SHARE, S_PACE,
) = range(34)  # fmt: skip
STREAM_FIELDS = 34
MEETING_STREAM_FIELDS = 17
# of a seat of a member in a phase that meets: when it came, and its stream
Z_CAME, Z_STREAM = range(2)
SEAT_FIELDS = 2
# what follows steps uses columns of trees: its next step and its first, how many are left, the
# root's place, how many pieces there are, until when what it has sent is leaving (in a ring,
# when it arrives), and until when something comes in
S_AT, S_FIRST, S_TODO, S_ROOT, S_PIECES, S_BUSY, S_COMES = (
    S_LEFT, S_PARENT, S_BLOCK, S_RIGHT, S_REDUCED, S_STATE, S_SENDS
)  # fmt: skip
# of a queue of streams: how many run, and those that wait, with another policy than FIFO in lines;
# which is to start next
Q_RUNNING, Q_HEAD, Q_TAIL, Q_NEXT = range(4)
QUEUE_FIELDS = 4
# of a line, the phases that wait for the same queues: a stream of the first, the member at whose
# queue it stands, and the next line there; each -1 if there is none
X_FIRST, X_FULL, X_NEXT = range(3)
LINE_FIELDS = 3
# of a stream that waits in a line: the highest priority comes first, and of equal ones the lowest
# ORDER; the first of those under it in the heap, and the next of those that are under the same
I_PRIORITY, I_ORDER, I_UNDER, I_BESIDE = range(4)
WAITING_FIELDS = 4
# of mail: how many have come less how many were asked for, and who asked; for rendezvous as K_
M_BALANCE, M_STREAM, M_ASKED, M_SENDS, M_LAST = range(5)
MAIL_FIELDS = 5
# of a message on its way, or waiting to be sent
G_NEXT, G_SIZE, G_AT, G_DST, G_KIND, G_A, G_B, G_SWITCH, G_DIM, G_LINK = range(10)
MESSAGE_FIELDS = 10
# of a link
L_BUSY, L_HEAD, L_TAIL, L_BYTES, L_TIME, L_WAITING, L_PEAK = range(7)
LINK_FIELDS = 7
# of a dimension
D_TOPOLOGY, D_N, D_STRIDE, D_LINKS = range(4)
DIM_FIELDS = 4
FULLY_CONNECTED, SWITCH, RING_LINKS, MESH = range(4)
# of a memory server: whether it is busy, and nodes that wait
V_BUSY, V_HEAD, V_TAIL = range(3)
# of the numbers that hold for all: ALIKE is one rank that stands for all, MEET works out times of
# phases at once; START is the time in ns before a collective's first packet; SETS are those of
# queues that a rank has, one for each slot if there are several; with ORDERED all ranks start the
# chunks of a queue in one order, for which a slot has one collective at a time; with GATHER a
# phase is put into the queues of its members when the last of them has come to it; WAYS is 2 if
# streams that go the other way round have queues of their own; POLICY says who comes first in a
# queue, and with another than FIFO a phase starts on all its members at once
(
    W_RANKS, W_QUEUES, W_LIMIT, W_AWARE, W_RENDEZVOUS, W_COMPAT, W_ALIKE, W_MEET,
    W_BUS, W_LATENCY, W_OVERHEAD, W_PAUSE, W_REDUCTION, W_START, W_SETS, W_ORDERED, W_GATHER,
    W_WAYS, W_POLICY,
) = range(19)  # fmt: skip
WORLD_FIELDS = 19
FIFO, LIFO, EXPLICIT = range(3)
# of a side of a bus: four to a rank, of which the last two are of its memory's
(
    B_STATE, B_BEFORE, B_LAST, B_IN_A_ROW, B_COUNT, B_REDUCES, B_SENDS, B_SENDS_LAST,
    B_RECEIVES, B_RECEIVES_LAST, B_REDUCTIONS, B_REDUCTIONS_LAST,
) = range(12)  # fmt: skip
SIDE_FIELDS = 12
BUS_FREE, BUS_SENDS, BUS_RECEIVES = range(3)
DEEPEST = 64  # things to be done on buses at one time
HANDSHAKE = 8192  # bytes of a request of the rendezvous protocol


class Machine(NamedTuple):
    """All arrays of a simulation; int64 but for ``rates``, float64, ``plans`` and ``here``, int32.

    ``rates`` (dimensions + 1, 2): bytes per ns and latency in ns; last those of local memory,
    and of its bus the ns per byte.
    ``todo`` (DEEPEST, 3): for :mod:`nadi.simulator.engine.memory_bus`.
    ``plans`` (streams, phases, 2): the queue of each phase, and its direction or tree; int32.
    ``seats`` (SEAT_FIELDS each): for each group, collective under way and chunk one of each member.
    ``here``: for each of these and each phase, at its first member how many have come.
    ``members`` (members of all groups, 4): their ranks, how many collectives each began, when it
    began the one that waits for others, and its node.
    ``scratch`` (5, members at most): for :mod:`nadi.simulator.engine.collective_closed_forms`.
    ``lines`` (queues, and for each group those of a rank): that of a dimension's members has the
    number of the first member's queue; ``waiting`` (streams). Both with another policy than FIFO.
    ``turns`` (ranks, dimensions, 3): the next queue of all, of the first half, of the second.
    ``trees`` (ranks, types, dimensions): which of the two trees comes next.
    ``starts`` (members of all programs, 2): the first step of each, and how many it does.
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
    servers: np.ndarray
    scratch: np.ndarray
    sides: np.ndarray
    todo: np.ndarray
    programs: np.ndarray
    starts: np.ndarray
    steps: np.ndarray
