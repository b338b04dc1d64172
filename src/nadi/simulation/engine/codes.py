"""What numbers in the arrays of a simulation stand for: kinds of nodes, events, algorithms."""

from nadi.kernels.columns import Codes, code


class Problem(Codes, first=1):
    """Why a simulation stopped, in COUNTER.problem; 0 is none."""

    TOO_SMALL = code("the arrays of events, streams or messages are full")
    TOO_MANY = code("more collectives of a group are under way than GROUP.window")
    UNLIKE = code("collectives that differ met as one")
    NO_ROUTE = code("a message takes a way that was not foreseen")
    LEFT_OUT = code("a part of the engine is needed that this one was compiled without")


class Event(Codes, first=1):
    """What happens; 0 is a rank's chain of callbacks.

    From GENERAL to REDUCE packets have passed the memory; what begins with BUS is last.
    """

    ARRIVE = code("a message of a collective is in the mail")
    HOP = code("a message has come to the next device on its way")
    LINK_FREE = code("a link has sent a message")
    RECEIVED = code("a stream has a message that was there before it asked")
    COMPLETE = code("a node is completed")
    CHARGE = code("a packet has passed the memory, and is reduced")
    GENERAL = code("a packet of a ring, direct exchange or halving has passed the memory")
    UP = code("a packet goes up a tree")
    DOWN = code("a packet goes down a tree")
    EXIT = code("a stream leaves its phase")
    STEP = code("a stream does its next steps")
    TAKEN = code("a step's message has come in, and has yet to pass the memory")
    REDUCE = code("a child's data is reduced")
    MEMORY = code("an access of remote memory is done")
    SENT = code("the message of a send has arrived")
    REQUEST = code("a member's request for a message has arrived")
    REQUESTED = code("a receive's request for a message has arrived")
    REAL_SEND = code("a message leaves that has waited for its request")
    MET = code("a member's collective, worked out as a whole, is about to end")
    MET_PHASE = code("a member's phase, worked out at once, is about to end")
    BEGIN = code("a collective begins, after its start time")
    ISSUE = code("a rank goes on to issue, after others have issued a collective")
    FLOWS = code("a flow may have ended: these are looked at before the events of a time")
    BUS_SENT = code("a side of a bus has sent")
    BUS_RECEIVED = code("a side of a bus has received")
    BUS_REDUCED = code("a side of a bus has reduced")


class NodeKind(Codes):
    """What is done when a node is issued."""

    DELAY = code("it takes NODE.time")
    SEND = code("it sends a message")
    RECEIVE = code("it waits for a message")
    COLLECTIVE = code("it takes part in a collective")
    ACCESS = code("it asks a server of remote memory")
    INSTANT = code("it is over at once")
    CUSTOM = code("it is a trace of its own, whose nodes need no slots")
    TRANSFER = code("it reads or writes a memory tier, and may share links")


class Slot(Codes):
    """What a rank has one of each; what needs none takes the last."""

    CPU = code("the host")
    COMP = code("computation of the device")
    COMM = code("communication of the device")
    NONE = code("no slot is needed")


class Comm(Codes):
    """Types of collectives; those from BROADCAST on have a root."""

    ALL_REDUCE = code("everybody gets the sum")
    REDUCE_SCATTER = code("everybody gets a part of the sum")
    ALL_GATHER = code("everybody gets what all have")
    ALL_TO_ALL = code("everybody sends a part to everybody")
    BROADCAST = code("everybody gets what the root has")
    REDUCE = code("the root gets the sum")
    GATHER = code("the root gets what all have")
    SCATTER = code("everybody gets a part of what the root has")


class PhaseKind(Codes):
    """Algorithms, as kernels do them."""

    RING = code("each member sends to the next")
    DIRECT = code("each member sends to every other")
    HALVING_DOUBLING = code("pairs at distances of powers of two")
    TREE = code("an all-reduce up and down a tree, as ASTRA-sim does it")
    STEPS = code("members follow a table of steps")
    TIMED = code("it takes SHAPE.time, once all members have begun")


class StepKind(Codes):
    """What a member does in a step."""

    SEND = code("it sends")
    TAKE = code("it takes a message")
    TAKE_AND_REDUCE = code("it takes a message and adds it to its own data")


class Topology(Codes):
    """How the ranks of a dimension are joined."""

    FULLY_CONNECTED = code("a link from each to each")
    SWITCH = code("all at one switch")
    RING = code("each to both neighbors")
    MESH = code("a ring that is open")


class QueuePolicy(Codes):
    """Who comes first in the queues of streams."""

    FIFO = code("first come, first served")
    LIFO = code("last come, first served")
    EXPLICIT = code("the highest priority")


class BusState(Codes):
    """What a side of a bus does."""

    FREE = code("nothing")
    SENDS = code("it sends")
    RECEIVES = code("it receives")
