"""All-reduce in a tree, as ASTRA-sim does it: sums to the root, and what comes of it back."""

from __future__ import annotations

import numpy as np

from nadi.kernels.jit import inner
from nadi.simulator.engine import machine_state as M
from nadi.simulator.engine.machine_state import Machine
from nadi.simulator.engine.mail import pass_memory, receive, send

__all__ = [
    "begin_tree",
    "find_in_tree",
    "take_in_tree",
    "tree_down",
    "tree_reduce",
    "tree_up",
]

_WAITS_FOR_PARENT = 1  # state of a rank in a tree


@inner
def begin_tree(machine: Machine, stream: int) -> None:
    """Let a leaf send, and everybody else wait for the children."""
    s = machine.streams[stream]
    if s[M.S_LEFT] < 0:
        pass_memory(machine, stream, s[M.S_SIZE], False, M.UP, True, False)
        return
    receive(machine, stream, s[M.S_LEFT], 1)
    if s[M.S_RIGHT] >= 0:
        receive(machine, stream, s[M.S_RIGHT], 2)


@inner
def take_in_tree(machine: Machine, stream: int) -> None:
    """Take a message of a child or of the parent."""
    s = machine.streams[stream]
    if s[M.S_LEFT] < 0:
        pass_memory(machine, stream, s[M.S_SIZE], False, M.EXIT, False, False)
    elif s[M.S_STATE] == _WAITS_FOR_PARENT or s[M.S_PARENT] < 0:
        pass_memory(machine, stream, s[M.S_SIZE], True, M.DOWN, False, True)
    else:
        s[M.S_TAKEN] += 1
        last = s[M.S_TAKEN] == (1 if s[M.S_RIGHT] < 0 else 2)
        pass_memory(machine, stream, s[M.S_SIZE], True, M.REDUCE, False, last)


@inner
def tree_reduce(machine: Machine, stream: int) -> bool:
    """Count a child whose data is reduced; tells whether that was the last child."""
    s = machine.streams[stream]
    s[M.S_REDUCED] += 1
    return s[M.S_REDUCED] == (1 if s[M.S_RIGHT] < 0 else 2)


@inner
def tree_up(machine: Machine, stream: int) -> None:
    """Send to the parent, and wait for what comes back."""
    s = machine.streams[stream]
    s[M.S_STATE] = _WAITS_FOR_PARENT
    parent = s[M.S_PARENT]
    is_left = s[M.S_INDEX] < parent or parent == 0  # the root, first or last, has one child
    send(machine, stream, parent, s[M.S_SIZE], 1 if is_left else 2)
    receive(machine, stream, parent, 0)


@inner
def tree_down(machine: Machine, stream: int) -> None:
    """Send to the children."""
    s = machine.streams[stream]
    send(machine, stream, s[M.S_LEFT], s[M.S_SIZE], 0)
    if s[M.S_RIGHT] >= 0:
        send(machine, stream, s[M.S_RIGHT], s[M.S_SIZE], 0)


@inner
def find_in_tree(s: np.ndarray, root_is_last: bool) -> None:
    """Find parent and children: a complete tree in order over all but the root."""
    n, index = s[M.S_N], s[M.S_INDEX]
    offset = 0 if root_is_last else 1
    root = n - 1 if root_is_last else 0
    s[M.S_RIGHT] = -1
    low, high = offset, n - 2 + offset
    if index == root:
        s[M.S_PARENT] = -1
        s[M.S_LEFT] = (low + high) // 2
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
    s[M.S_PARENT] = parent
    s[M.S_LEFT] = -1
    if low < high:
        s[M.S_LEFT] = (low + middle - 1) // 2
        s[M.S_RIGHT] = (middle + 1 + high) // 2
