"""All-reduce in a tree, as ASTRA-sim does it: sums to the root, and what comes of it back."""

from __future__ import annotations

import numpy as np

from nadi.kernels.jit import called, inner
from nadi.simulation.engine.codes import Event
from nadi.simulation.engine.machine_state import STREAM, Machine
from nadi.simulation.engine.mailboxes import pass_memory, receive, send
from nadi.simulation.engine.parts import MESSAGES, belongs_to

_WAITS_FOR_PARENT = 1  # state of a rank in a tree


@belongs_to(MESSAGES)
@inner
def begin_tree(machine: Machine, stream: int) -> None:
    """Let a leaf send, and everybody else wait for the children."""
    s = machine.streams[stream]
    if s[STREAM.left] < 0:
        pass_memory(machine, stream, s[STREAM.size], False, Event.UP, True, False)
        return
    receive(machine, stream, s[STREAM.left], 1)
    if s[STREAM.right] >= 0:
        receive(machine, stream, s[STREAM.right], 2)


@belongs_to(MESSAGES)
@called
def take_in_tree(machine: Machine, stream: int) -> None:
    """Take a message of a child or of the parent."""
    s = machine.streams[stream]
    if s[STREAM.left] < 0:
        pass_memory(machine, stream, s[STREAM.size], False, Event.EXIT, False, False)
    elif s[STREAM.state] == _WAITS_FOR_PARENT or s[STREAM.parent] < 0:
        pass_memory(machine, stream, s[STREAM.size], True, Event.DOWN, False, True)
    else:
        s[STREAM.taken] += 1
        last = s[STREAM.taken] == (1 if s[STREAM.right] < 0 else 2)
        pass_memory(machine, stream, s[STREAM.size], True, Event.REDUCE, False, last)


@belongs_to(MESSAGES)
@inner
def tree_reduce(machine: Machine, stream: int) -> bool:
    """Count a child whose data is reduced; tells whether that was the last child."""
    s = machine.streams[stream]
    s[STREAM.reduced] += 1
    return s[STREAM.reduced] == (1 if s[STREAM.right] < 0 else 2)


@belongs_to(MESSAGES)
@inner
def tree_up(machine: Machine, stream: int) -> None:
    """Send to the parent, and wait for what comes back."""
    s = machine.streams[stream]
    s[STREAM.state] = _WAITS_FOR_PARENT
    parent = s[STREAM.parent]
    is_left = s[STREAM.index] < parent or parent == 0  # the root, first or last, has one child
    send(machine, stream, parent, s[STREAM.size], 1 if is_left else 2)
    receive(machine, stream, parent, 0)


@belongs_to(MESSAGES)
@inner
def tree_down(machine: Machine, stream: int) -> None:
    """Send to the children."""
    s = machine.streams[stream]
    send(machine, stream, s[STREAM.left], s[STREAM.size], 0)
    if s[STREAM.right] >= 0:
        send(machine, stream, s[STREAM.right], s[STREAM.size], 0)


@called
def find_in_tree(s: np.ndarray, root_is_last: bool) -> None:
    """Find parent and children: a complete tree in order over all but the root."""
    n, index = s[STREAM.n], s[STREAM.index]
    offset = 0 if root_is_last else 1
    root = n - 1 if root_is_last else 0
    s[STREAM.right] = -1
    low, high = offset, n - 2 + offset
    if index == root:
        s[STREAM.parent] = -1
        s[STREAM.left] = (low + high) // 2
        return
    parent = root
    middle = (low + high) // 2
    while middle != index:
        parent = middle
        if index < middle:
            high = middle - 1
        else:
            low = middle + 1
        middle = (low + high) // 2
    s[STREAM.parent] = parent
    s[STREAM.left] = -1
    if low < high:
        s[STREAM.left] = (low + middle - 1) // 2
        s[STREAM.right] = (middle + 1 + high) // 2
