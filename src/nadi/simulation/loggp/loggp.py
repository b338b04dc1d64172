"""Times of a program of messages in a LogGP model.

The messages of a collective: what one of its members sends and receives, and in which order.

All-reduces, reduce-scatters and all-gathers go round a ring, all-to-alls send to every member at
once, a barrier doubles its distance in each round, and what has a root is a binomial tree.

The machine of a LogGP model: six numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from nadi.errors import InputError, PairError, Parameter, UsageError
from nadi.files.goal import Action, MessageProgram
from nadi.results.declared import BLANK, NS, PLAIN, Column, Result, Rows
from nadi.simulation.collectives.step_tables import COMM, ROOTED, steps_of
from nadi.simulation.engine.codes import StepKind
from nadi.simulation.engine.machine_state import STEP
from nadi.simulation.loggp.loggp_kernels import Costs, LoggpOperations, State, run_messages
from nadi.trace.arrays import Bools, Ints
from nadi.trace.collectives import COLLECTIVES, run_as
from nadi.units import (
    format_bytes,
    format_count,
    format_counted,
    format_ns,
    parse_bytes,
    parse_ns,
    parse_rate,
)

_LARGEST = 2**40  # ns, of one parameter: 18 minutes


@dataclass(frozen=True)
class LogGP:
    """What a message costs.

    A send of s bytes occupies its processor for ``overhead + (s - 1) overhead_per_byte`` and its
    network interface for ``gap + (s - 1) gap_per_byte``. Its first byte arrives ``latency +
    overhead`` after it began. When a processor and an interface of the receiver are free, the
    message occupies them for ``overhead + (s - 1)`` times the larger of both times per byte, and
    ``gap + (s - 1) gap_per_byte``, whether it is waited for or not.

    Attributes
    ----------
    latency, overhead, gap
        ns; L, o and g of the model.
    gap_per_byte, overhead_per_byte
        Picoseconds; G and O. 20 ps per byte are 50 GB/s.
    eager_limit
        Bytes; S. A larger message has to wait for its receive: rendezvous.

    Raises
    ------
    UsageError
        If one is negative or above 2^40.

    Notes
    -----
    A. Alexandrov et al., LogGP: Incorporating Long Messages into the LogP Model (SPAA 1995); T.
    Hoefler et al., LogGOPSim (LSAP 2010), adds O and S.
    """

    latency: int
    overhead: int
    gap: int
    gap_per_byte: int
    overhead_per_byte: int = 0
    eager_limit: int = 65535

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value <= _LARGEST:
                raise UsageError(
                    Parameter(name, str(value)), "it is negative or too large",
                    "choose 0 to 2^40 ns, ps per byte, or bytes",
                )  # fmt: skip

    @staticmethod
    def of_texts(
        latency: str, overhead: str, gap: str, gap_per_byte: str, overhead_per_byte: str = "0 ns",
        eager_limit: str = "65535 B",
    ) -> LogGP:  # fmt: skip
        """Read quantities such as ``2.5us``, ``50GB/s`` or ``20ps`` per byte, and ``64KiB``.

        Raises
        ------
        UsageError
            If one is not such a quantity.
        """
        texts = {
            "latency": (latency, parse_ns), "overhead": (overhead, parse_ns),
            "gap": (gap, parse_ns), "gap_per_byte": (gap_per_byte, time_per_byte),
            "overhead_per_byte": (overhead_per_byte, time_per_byte),
            "eager_limit": (eager_limit, parse_bytes),
        }  # fmt: skip
        found = {}
        for name, (text, parse) in texts.items():
            try:
                found[name] = parse(text)
            except ValueError as error:
                raise UsageError(Parameter(name), str(error)) from None
        return LogGP(**found)


def time_per_byte(text: str) -> int:
    """Read a time per byte, such as ``6 ns`` or ``20 ps``, or a rate such as ``50 GB/s``; ps.

    - Raises ValueError if the text is neither; the message shows valid examples.
    """
    stripped = text.strip()
    if stripped.endswith("/s"):
        return round(1e12 / parse_rate(stripped))
    if stripped.endswith("ps"):
        return round(parse_ns(stripped[:-2] + "ns"))
    try:
        return parse_ns(stripped) * _PS
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time per byte such as 6ns or 20ps, or a rate such as 50GB/s"
        ) from None


_PS = 1000  # in a ns
_LONGEST = 2**62  # ps


@dataclass(frozen=True, eq=False)
class LogGPTimes:
    """When a program runs.

    Attributes
    ----------
    program, machine
        What ran, and on what.
    start, end
        int64, shape (operations,), ns: from when an operation may use its processor, or a receive
        waits, to when what depends on it may begin.
    finish
        int64, shape (ranks,), ns: when the last processor of each rank is free.
    sending, receiving, computing
        int64, shape (ranks,), ns: how long its processors send, receive and compute.
    """

    program: MessageProgram
    machine: LogGP
    start: Ints
    end: Ints
    finish: Ints
    sending: Ints
    receiving: Ints
    computing: Ints

    @property
    def makespan(self) -> int:
        """When the last rank finishes; ns."""
        return int(self.finish.max())


def loggp_times(program: MessageProgram, machine: LogGP) -> LogGPTimes:
    """Run a program of messages in a LogGP model. O(operations log operations).

    The rules are those of LogGOPSim for one processor a rank, its order of equal times included.
    With several, a dependency between processors holds, which it does not in LogGOPSim.

    Raises
    ------
    InputError
        If times exceed 53 days, or dependencies form a cycle.
    PairError
        If an operation never ends; the message names the first, and what it waits for.
    """
    operations, costs = _operations(program), _costs(program, machine)
    _check_length(program, costs)
    state = _state(program, costs)
    ended = run_messages(operations, costs, state)
    if ended < program.num_operations:
        raise _unended(program, state)
    finish = state.free.reshape(program.num_ranks, costs.cpus).max(axis=1)
    busy = _to_ns(state.busy)
    return LogGPTimes(
        program, machine, _to_ns(state.start), _to_ns(state.end), _to_ns(finish),
        busy[:, Action.SEND], busy[:, Action.RECEIVE], busy[:, Action.COMPUTE],
    )  # fmt: skip


def _to_ns(times: Ints) -> Ints:
    """Round up, so that nothing is faster than its bytes."""
    return -(-times // _PS)


def _costs(program: MessageProgram, machine: LogGP) -> Costs:
    return Costs(
        machine.latency * _PS, machine.overhead * _PS, machine.gap * _PS, machine.gap_per_byte,
        machine.overhead_per_byte, machine.eager_limit,
        int(program.cpu.max(initial=0)) + 1, int(program.interface.max(initial=0)) + 1,
    )  # fmt: skip


def _check_length(program: MessageProgram, costs: Costs) -> None:
    """Refuse what could exceed the largest time, if all of it came one after the other."""
    computes = program.action == Action.COMPUTE
    size = program.size.astype(np.float64)
    sent = size[~computes].sum() * max(costs.gap_per_byte, costs.overhead_per_byte)
    each = costs.latency + costs.overhead + costs.gap
    if size[computes].sum() * _PS + 3 * (sent + each * program.num_operations) > _LONGEST:
        raise InputError(
            "program", "all of it takes more than 53 days",
            "check the unit of its times, which are ns",
        )  # fmt: skip


def _operations(program: MessageProgram) -> LoggpOperations:
    rank = np.repeat(np.arange(program.num_ranks), np.diff(program.first))
    cpus = int(program.cpu.max(initial=0)) + 1
    return LoggpOperations(
        rank, program.action, program.size, program.peer, program.tag, rank * cpus + program.cpu,
        program.cpu, program.interface,
        *_waiting_for(program, program.at_start), *_waiting_for(program, ~program.at_start),
    )  # fmt: skip


def _waiting_for(program: MessageProgram, chosen: Bools) -> tuple[Ints, Ints]:
    """List who waits for each operation, by position."""
    waiting, awaited = program.waiting[chosen], program.awaited[chosen]
    order = np.lexsort((waiting, awaited))
    first = np.zeros(program.num_operations + 1, dtype=np.int64)
    np.cumsum(np.bincount(awaited, minlength=program.num_operations), out=first[1:])
    return first, waiting[order]


def _state(program: MessageProgram, costs: Costs) -> State:
    size, ranks = program.num_operations, program.num_ranks

    def zeros(*shape: int) -> Ints:
        return np.zeros(shape, dtype=np.int64)

    def nothing(*shape: int) -> Ints:
        return np.full(shape, -1, dtype=np.int64)

    return State(
        waits=np.bincount(program.waiting, minlength=size).astype(np.int64),
        ready=zeros(size), start=nothing(size), end=nothing(size),
        time=zeros(2 * size), stamp=zeros(2 * size), heap=zeros(2 * size), fresh=zeros(size),
        free=zeros(ranks * costs.cpus), sends=zeros(ranks * costs.interfaces),
        receives=zeros(ranks * costs.interfaces), posted=nothing(ranks, 2),
        arrived=nothing(ranks, 2), next=nothing(size), busy=zeros(ranks, 3),
        parts=zeros(128, 2), counts=zeros(4),
    )  # fmt: skip


def _unended(program: MessageProgram, state: State) -> InputError:
    """Say which operation never ends, and why."""
    begun = (state.start >= 0) & (state.end < 0)
    if not begun.any():
        k = int(np.argmax(state.end < 0))
        return InputError(
            program.describe(k), "its dependencies form a cycle", "remove one of them"
        )
    k = int(np.argmax(begun))
    if program.action[k] == Action.SEND:
        return PairError(
            program.describe(k), "no receive takes it, and it is too large to be sent eagerly",
            "add its receive, or raise the eager limit",
        )  # fmt: skip
    return PairError(
        program.describe(k), "its message never comes",
        "check that a send has its rank, tag and order, and that ranks do not wait for each other",
    )  # fmt: skip


_ON_RINGS = ("all_reduce", "reduce_scatter", "all_gather")


class MemberMessages(NamedTuple):
    """What one member of a collective does; int64, shape (operations,)."""

    action: Ints  # of ``Action``; a computation takes no time, and is there for others to wait for
    peer: Ints  # position of the other member
    # shares, parts: a message has the bytes of ``shares`` of ``parts`` parts of the size, rounded
    # up
    shares: Ints
    parts: Ints
    awaited: Ints  # which of these it waits for; -1 for those that the collective begins with
    lasts: Ints  # which of these have to end for the collective to end


@lru_cache(maxsize=4096)
def member_messages(comm_type: str, size: int, member: int, root: int = 0) -> MemberMessages:
    """Return what a member of a group of some size sends and receives. O(messages).

    - Raises UsageError if the type is unknown.
    """
    if comm_type not in COLLECTIVES:
        raise UsageError(
            "collective", f"the messages of {comm_type} are unknown",
            f"there are {', '.join(COLLECTIVES)}",
        )  # fmt: skip
    comm_type = run_as(comm_type, (*COMM, "barrier"))
    if size == 1:
        return _nothing()
    if comm_type == "all_to_all":
        return _all_to_all(size, member)
    if comm_type == "barrier":
        distance = 1 << np.arange((size - 1).bit_length(), dtype=np.int64)
        return _rounds((member + distance) % size, (member - distance) % size, 1)
    if COMM[comm_type] in ROOTED:
        return _tree(COMM[comm_type], size, member, root)
    rounds = np.ones((2 if comm_type == "all_reduce" else 1) * (size - 1), dtype=np.int64)
    parts = 1 if comm_type == "all_gather" else size
    return _rounds((member + rounds) % size, (member - rounds) % size, parts)


def _nothing() -> MemberMessages:
    one = np.zeros(1, dtype=np.int64)
    return MemberMessages(one + Action.COMPUTE, one, one, one + 1, one - 1, one)


def _rounds(to: Ints, source: Ints, parts: int) -> MemberMessages:
    """Send to one member and receive from another; go on when that has come."""
    number = np.arange(to.size)
    received = np.repeat(2 * number - 1, 2)  # in the round before, -1 in the first one
    return MemberMessages(
        np.tile(np.array([Action.SEND, Action.RECEIVE], dtype=np.int64), to.size),
        np.column_stack([to, source]).ravel(), np.ones(2 * to.size, dtype=np.int64),
        np.full(2 * to.size, parts, dtype=np.int64), received,
        np.array([2 * to.size - 2, 2 * to.size - 1]),
    )  # fmt: skip


def _all_to_all(size: int, member: int) -> MemberMessages:
    """Send to all others and receive from all, between a begin and an end."""
    distance = np.arange(1, size, dtype=np.int64)
    between = 2 * distance.size
    peers = np.column_stack([(member + distance) % size, (member - distance) % size]).ravel()
    action = np.tile(np.array([Action.SEND, Action.RECEIVE], dtype=np.int64), distance.size)
    awaited = np.zeros(between + 1, dtype=np.int64)
    awaited[0] = -1
    return MemberMessages(
        np.append(Action.COMPUTE, action), np.append(0, peers),
        np.append(0, np.ones(between, dtype=np.int64)), np.full(between + 1, size), awaited,
        1 + np.arange(between),
    )  # fmt: skip


def _tree(comm: int, size: int, member: int, root: int) -> MemberMessages:
    """Do the steps of a binomial tree one after the other."""
    rows = steps_of("halvingdoubling", comm, size, 0).rows
    rows = rows[rows[:, STEP.member] == (member - root) % size]
    sends = rows[:, STEP.kind] < StepKind.TAKE
    number = np.arange(len(rows))
    return MemberMessages(
        np.where(sends, Action.SEND, Action.RECEIVE).astype(np.int64),
        (rows[:, STEP.peer] + root) % size, rows[:, STEP.count].copy(),
        np.maximum(rows[:, STEP.parts], 1), number - 1, number[-1:],
    )  # fmt: skip


_SHOWN = 16  # ranks
_PARTS = {"computing": "compute", "sending": "send", "receiving": "receive"}


def _described(times: LogGPTimes) -> dict[str, Any]:
    """Describe when ranks finish, and what their processors do; times are ns."""
    program = times.program
    sends = program.action == Action.SEND
    return {
        "ranks": program.num_ranks,
        "operations": program.num_operations,
        "messages": int(sends.sum()),
        "bytes": int(program.size[sends].sum()),
        "makespan_ns": times.makespan,
        "rank_times": [
            {
                "rank": rank,
                "finish": int(times.finish[rank]),
                **{name: int(getattr(times, name)[rank]) for name in _PARTS},
            }
            for rank in range(program.num_ranks)
        ],
    }


def _last_first(data: dict[str, Any]) -> list[int]:
    rows = data["rank_times"]
    return sorted(range(len(rows)), key=lambda i: (-rows[i]["finish"], rows[i]["rank"]))


MESSAGES = Result(
    kind="messages", title="Program of messages", order=97, facts=_described,
    headline=lambda data: (
        f"{format_counted(data['ranks'], 'rank')}, {format_count(data['messages'])} messages, "
        f"{format_bytes(data['bytes'])}: {format_ns(data['makespan_ns'])}"
    ),
    parts=(
        BLANK,
        Rows("rank_times", "Time of processors, last rank first", None, (
            Column("rank", "rank", PLAIN), Column("finish", "finish", NS),
            *(Column(key, title, NS) for key, title in _PARTS.items()),
        ), pick=_last_first, top=_SHOWN),
    ),
)  # fmt: skip
