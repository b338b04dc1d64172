"""Rings, direct exchanges and halving: message by message, or at once where nothing contends.

Message by message they are packets, as many of them under way as have slots. All members do the
same, and so the next packet follows from how many were sent. What differs between members is a
table of steps (:mod:`nadi.simulation.engine.stepwise_algorithms`).

Every member of a phase waits for every other, directly or by way of others. So where nothing
contends, nothing is lost if the times of all its messages are worked out when the last member
begins: step by step for all members, without an event a message.
"""

import numpy as np

from nadi.kernels.jit import called, inner
from nadi.simulation.engine.codes import Comm, Event, PhaseKind
from nadi.simulation.engine.machine_state import PHASE, SCRATCH, STREAM, WORLD, Machine
from nadi.simulation.engine.mailboxes import is_alike, pass_memory, receive, send
from nadi.simulation.engine.message_times import part_of, reduction_time, travel_time
from nadi.simulation.engine.parts import MESSAGES, belongs_to
from nadi.simulation.engine.stepwise_algorithms import steps_at_once


@called
def halving_size(machine: Machine, comm: int, size: int, levels: int, step: int) -> int:
    """Give the bytes of a step's messages in halving and doubling; after the last a next one.

    ASTRA-sim halves once more before an all-reduce doubles, and what is cut off stays lost. Only
    its bus asks for a size after the last step: it goes on halving or doubling.
    """
    if machine.world[WORLD.rounds_down] != 0:
        if comm == Comm.ALL_GATHER:
            return size << step
        if comm == Comm.ALL_REDUCE and step >= levels:
            return size >> (levels + 1) << (step - levels + 1)
        return size >> (step + 1)
    step = min(step, (2 * levels if comm == Comm.ALL_REDUCE else levels) - 1)
    if comm == Comm.ALL_GATHER:
        return size << step
    return part_of(machine, size, 2 << (step if step < levels else 2 * levels - step - 1))


@called
def _message_size(machine: Machine, stream: int) -> int:
    """Give the size of the next message of a stream's phase."""
    s = machine.streams[stream]
    comm, size, n = s[STREAM.comm], s[STREAM.size], s[STREAM.n]
    if s[STREAM.algorithm] == PhaseKind.HALVING_DOUBLING:
        return halving_size(machine, comm, size, s[STREAM.block] + 1, s[STREAM.sends])
    if comm == Comm.ALL_GATHER:
        return size
    part = part_of(machine, size, n)
    if comm == Comm.ALL_TO_ALL and s[STREAM.algorithm] == PhaseKind.RING and s[STREAM.max] == n - 1:
        return max(n - 1 - s[STREAM.sends], 1) * part  # what is there stays there
    return part


@belongs_to(MESSAGES)
@called
def insert(machine: Machine, stream: int) -> None:
    """Take in a packet: inserts come in blocks, first a free one, then one that may reduce."""
    s = machine.streams[stream]
    window, block = s[STREAM.window], s[STREAM.block]
    place = s[STREAM.inserted] % (window + block)
    pair = s[STREAM.inserted] // (window + block)
    s[STREAM.inserted] += 1
    reduces = place >= window and (
        s[STREAM.comm] == Comm.REDUCE_SCATTER
        or (s[STREAM.comm] == Comm.ALL_REDUCE and pair % 2 == 0)
    )
    pass_memory(
        machine, stream, _message_size(machine, stream), reduces, Event.GENERAL, place < window,
        window <= place < block,
    )  # fmt: skip


@called
def _ready(machine: Machine, stream: int) -> None:
    """Send the next packet, if there is one and a slot for it is free."""
    s = machine.streams[stream]
    sends, n, index = s[STREAM.sends], s[STREAM.n], s[STREAM.index]
    if sends == s[STREAM.max] or s[STREAM.free] == 0 or sends >= s[STREAM.inserted]:
        return
    size = _message_size(machine, stream)
    algorithm = s[STREAM.algorithm]
    place = 0
    if algorithm == PhaseKind.HALVING_DOUBLING:
        levels = s[STREAM.block] + 1
        if s[STREAM.comm] == Comm.ALL_GATHER:
            distance = n >> (sends + 1)
            place = levels - 1 - sends
        else:
            place = sends if sends < levels else 2 * levels - 1 - sends
            distance = 1 << place
        to = index + (distance if index // distance % 2 == 0 else -distance)
        by = to
        there = place
    else:
        distance = s[STREAM.step]
        if algorithm == PhaseKind.DIRECT:
            distance *= sends % (n - 1) + 1
        to = (index + distance) % n
        by = (index - distance) % n
        there = 0
        if algorithm == PhaseKind.DIRECT:
            place = by
            # of ranks that are all alike, this one gets what it sends itself
            there = by if is_alike(machine, stream) else index
    send(machine, stream, to, size, there)
    receive(machine, stream, by, place)
    s[STREAM.sends] = sends + 1
    s[STREAM.free] -= 1


@belongs_to(MESSAGES)
@called
def general(machine: Machine, stream: int) -> bool:
    """Free the slot of a packet that has passed the memory; tells whether the phase is over."""
    s = machine.streams[stream]
    s[STREAM.free] += 1
    n = s[STREAM.n]
    if (
        s[STREAM.algorithm] == PhaseKind.DIRECT
        and s[STREAM.comm] == Comm.ALL_REDUCE
        and s[STREAM.sends] >= n - 1
    ):
        if s[STREAM.taken] < n - 1:
            return False  # the second half waits for all of the first
        # as often as that does something: tried for every slot, all packets are n squared tries
        left = min(s[STREAM.max], s[STREAM.inserted]) - s[STREAM.sends]
        for _ in range(min(left, s[STREAM.free], s[STREAM.window])):
            _ready(machine, stream)
    else:
        _ready(machine, stream)
    return s[STREAM.sends] == s[STREAM.max] and s[STREAM.free] == s[STREAM.window]


@inner
def can_meet(algorithm: int, comm: int, window: int, n: int) -> bool:
    """Tell whether the times of a phase can be worked out here."""
    if algorithm == PhaseKind.DIRECT:
        return comm != Comm.ALL_REDUCE and (window < 0 or window >= n - 1)
    if algorithm == PhaseKind.STEPS:  # of those with a root, some are done before others begin
        return comm < Comm.BROADCAST
    return algorithm in (PhaseKind.RING, PhaseKind.HALVING_DOUBLING, PhaseKind.TIMED)


@inner
def _charged(comm: int, inserted: int, window: int, block: int) -> bool:
    """Tell whether an insert reduces, by its number in its phase."""
    place, pair = inserted % (window + block), inserted // (window + block)
    if place < window:
        return False
    return comm == Comm.REDUCE_SCATTER or (comm == Comm.ALL_REDUCE and pair % 2 == 0)


@inner
def _ring_steps(machine: Machine, comm: int, n: int) -> int:
    if comm == Comm.ALL_REDUCE:
        return 2 * (n - 1)
    if comm == Comm.ALL_TO_ALL and machine.world[WORLD.relays_parts] != 0:
        return n * (n - 1) // 2
    return n - 1


@inner
def _levels(n: int) -> int:
    levels = 0
    while 2 << levels <= n:
        levels += 1
    return levels


@inner
def _distance(comm: int, n: int, levels: int, step: int) -> int:
    """Give how far apart pairs are in a step of halving and doubling."""
    if comm == Comm.ALL_GATHER:
        return n >> (step + 1)
    return 1 << (step if step < levels else 2 * levels - 1 - step)


@called
def _ring(
    machine: Machine, times: np.ndarray, n: int, phase: np.ndarray, size: int, delay: int, step: int
) -> None:
    """Work out a ring: each member sends what it has got to the next."""
    ends, ranks, hops = times[SCRATCH.ends], times[SCRATCH.members], times[SCRATCH.hops]
    comm, share, pace = phase[PHASE.comm], phase[PHASE.share], phase[PHASE.pace]
    message = size if comm == Comm.ALL_GATHER else part_of(machine, size, n)
    num_steps = _ring_steps(machine, comm, n)
    lessens = comm == Comm.ALL_TO_ALL and machine.world[WORLD.relays_parts] == 0
    cost = reduction_time(machine, message)
    alike = True
    for i in range(n):
        before = (i - step) % n
        hops[i] = travel_time(machine, ranks[before], ranks[i], message, share, pace)
        ends[i] = times[SCRATCH.starts, i] + delay
        alike = alike and ends[i] == ends[0] and hops[i] == hops[0]
    if alike and not lessens:  # and stays so
        reduces = 0
        if comm == Comm.REDUCE_SCATTER or comm == Comm.ALL_REDUCE:
            reduces = n - 1
        end = ends[0] + num_steps * (hops[0] + delay) + reduces * cost
        for i in range(n):
            ends[i] = end
        return
    for k in range(num_steps):
        more = delay + (cost if _charged(comm, k + 1, 1, n - 1) else 0)
        if lessens:  # what is there stays there
            for i in range(n):
                src, left = ranks[(i - step) % n], (n - 1 - k) * message
                hops[i] = travel_time(machine, src, ranks[i], left, share, pace)
        if step > 0:
            last = ends[n - 1]
            for i in range(n):
                own = ends[i]
                ends[i] = max(last + hops[i], own) + more
                last = own
        else:
            last = ends[0]
            for i in range(n - 1, -1, -1):
                own = ends[i]
                ends[i] = max(last + hops[i], own) + more
                last = own


@called
def _halving_doubling(
    machine: Machine, times: np.ndarray, n: int, phase: np.ndarray, size: int, delay: int
) -> None:
    """Work out halving and doubling: pairs at distances of powers of two."""
    ends, other, ranks = times[SCRATCH.ends], times[SCRATCH.next], times[SCRATCH.members]
    comm, share, pace = phase[PHASE.comm], phase[PHASE.share], phase[PHASE.pace]
    levels = _levels(n)
    num_steps = 2 * levels if comm == Comm.ALL_REDUCE else levels
    for i in range(n):
        ends[i] = times[SCRATCH.starts, i] + delay
    for k in range(num_steps):
        distance = _distance(comm, n, levels, k)
        message = halving_size(machine, comm, size, levels, k)
        more = delay
        if _charged(comm, k + 1, 1, levels - 1):
            more += reduction_time(machine, halving_size(machine, comm, size, levels, k + 1))
        for i in range(n):
            partner = i + (distance if i // distance % 2 == 0 else -distance)
            there = ends[partner] + travel_time(
                machine, ranks[partner], ranks[i], message, share, pace
            )
            other[i] = max(there, ends[i]) + more
        for i in range(n):
            ends[i] = other[i]


@called
def _direct(
    machine: Machine, times: np.ndarray, n: int, phase: np.ndarray, size: int, delay: int,
    group: int,
) -> None:  # fmt: skip
    """Work out direct with all messages at once."""
    starts, ends, ranks = times[SCRATCH.starts], times[SCRATCH.ends], times[SCRATCH.members]
    comm, share, pace = phase[PHASE.comm], phase[PHASE.share], phase[PHASE.pace]
    message = size if comm == Comm.ALL_GATHER else part_of(machine, size, n)
    window = n - 1
    block = window * (n - 1 if group != 0 else 1)
    cost = reduction_time(machine, message)
    more = delay + (cost if _charged(comm, window, window, block) else 0)
    for i in range(n):
        latest = starts[i]
        for j in range(n):
            if j != i:
                there = starts[j] + travel_time(machine, ranks[j], ranks[i], message, share, pace)
                latest = max(latest, there)
        ends[i] = latest + delay + more


@called
def _of_one(
    machine: Machine, times: np.ndarray, n: int, phase: np.ndarray, size: int, delay: int,
    step: int, group: int,
) -> int:  # fmt: skip
    """Work out when the first member ends, if all do the same at the same time."""
    ranks = times[SCRATCH.members]
    comm, share, pace = phase[PHASE.comm], phase[PHASE.share], phase[PHASE.pace]
    algorithm, end = phase[PHASE.algorithm], times[SCRATCH.starts, 0] + delay
    if algorithm == PhaseKind.TIMED:
        return end - delay + size
    message = size if comm == Comm.ALL_GATHER else part_of(machine, size, n)
    if algorithm == PhaseKind.RING:
        src = ranks[n - 1 if step > 0 else 1]
        lessens = comm == Comm.ALL_TO_ALL and machine.world[WORLD.relays_parts] == 0
        hop = travel_time(machine, src, ranks[0], message, share, pace)
        for k in range(_ring_steps(machine, comm, n)):
            if lessens:
                left = (n - 1 - k) * message
                hop = travel_time(machine, src, ranks[0], left, share, pace)
            end += hop + delay
            if _charged(comm, k + 1, 1, n - 1):
                end += reduction_time(machine, message)
        return end
    if algorithm == PhaseKind.HALVING_DOUBLING:
        levels = _levels(n)
        for k in range(2 * levels if comm == Comm.ALL_REDUCE else levels):
            sent = halving_size(machine, comm, size, levels, k)
            partner = ranks[_distance(comm, n, levels, k)]
            end += travel_time(machine, partner, ranks[0], sent, share, pace) + delay
            if _charged(comm, k + 1, 1, levels - 1):
                end += reduction_time(machine, halving_size(machine, comm, size, levels, k + 1))
        return end
    latest = 0
    for j in range(1, n):
        latest = max(latest, travel_time(machine, ranks[j], ranks[0], message, share, pace))
    block = (n - 1) * (n - 1 if group != 0 else 1)
    if _charged(comm, n - 1, n - 1, block):
        latest += reduction_time(machine, message)
    return end + latest + delay


@called
def finish_times(
    machine: Machine, times: np.ndarray, present: int, phase: np.ndarray, size: int, delay: int,
    step: int, group: int,
) -> int:  # fmt: skip
    """Give when each member of a phase ends that began at ``times[SCRATCH.starts]``.

    - ``times``: int64, shape (5, at least members): starts and places are given, ends are filled.
    - ``present``: All members, or 1 if one member stands for all: only the end of the first one is
      filled.
    - ``phase``: A row of the machine's phases.
    - ``size``, ``delay``: Bytes of the chunk, of a TIMED phase its time in ns; time in ns that a
      member spends on a packet.
    - ``step``: 1 for a clockwise ring or the first tree, else -1.
    - ``group``: Whether it is of a process group, and not of all ranks.
    - Returns: How long before its end a member's last callback is registered.
    """
    comm, algorithm, n = phase[PHASE.comm], phase[PHASE.algorithm], phase[PHASE.size]
    if present < n:
        end = _of_one(machine, times, n, phase, size, delay, step, group)
        times[SCRATCH.ends, 0] = end
    elif algorithm == PhaseKind.RING:
        _ring(machine, times, n, phase, size, delay, step)
    elif algorithm == PhaseKind.HALVING_DOUBLING:
        _halving_doubling(machine, times, n, phase, size, delay)
    elif algorithm == PhaseKind.TIMED:
        last = 0
        for i in range(n):
            last = max(last, times[SCRATCH.starts, i])
        for i in range(n):
            times[SCRATCH.ends, i] = last + size
    elif algorithm == PhaseKind.STEPS:
        steps_at_once(machine, times, phase, size, delay, 0 if step > 0 else 1, n)
    else:
        _direct(machine, times, n, phase, size, delay, group)
    halves = algorithm == PhaseKind.HALVING_DOUBLING or algorithm == PhaseKind.STEPS
    if comm == Comm.REDUCE_SCATTER and not halves:
        return reduction_time(machine, part_of(machine, size, n))
    return delay
