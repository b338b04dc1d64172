"""Times of a program of messages in a LogGP model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nadi.errors import InputError, PairError
from nadi.files.message_programs import Action, MessageProgram
from nadi.simulation.loggp.loggp_kernels import Costs, Operations, State, run_messages
from nadi.simulation.loggp.loggp_machine import LogGP
from nadi.trace.arrays import Bools, Ints

__all__ = ["LogGPTimes", "loggp_times"]

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


def _operations(program: MessageProgram) -> Operations:
    rank = np.repeat(np.arange(program.num_ranks), np.diff(program.first))
    cpus = int(program.cpu.max(initial=0)) + 1
    return Operations(
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
