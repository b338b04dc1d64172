"""The rendezvous protocol: a message leaves when its receiver has asked for it.

Requests and messages are matched at a row of the mail, or of the keys of sends and receives. It
has three columns side by side: requests that are there, the first and the last message that wait.
"""

from __future__ import annotations

import numpy as np

from nadi.kernels.jit import inner
from nadi.simulation.engine.codes import Event
from nadi.simulation.engine.event_queue import COUNTER, add_event
from nadi.simulation.engine.linked_queues import put_behind, take_first
from nadi.simulation.engine.machine_state import MESSAGE, Machine
from nadi.simulation.engine.network_links import free_message, send_message
from nadi.simulation.engine.parts import MESSAGES, belongs_to

__all__ = ["send_now", "send_when_asked", "take_request"]


@inner
def send_when_asked(
    machine: Machine, table: np.ndarray, row: int, asked: int, message: int
) -> None:
    """Send a message when its request is there, which may be so already."""
    if table[row, asked] > 0:
        table[row, asked] -= 1
        now = machine.agenda.counters[COUNTER.now]
        add_event(machine.agenda, now, Event.REAL_SEND, message, 0)
    else:
        put_behind(table, row, asked + 1, machine.messages, MESSAGE.next, message)


@inner
def take_request(machine: Machine, table: np.ndarray, row: int, asked: int) -> None:
    """Take a request: it is for the first message that waits, or for one to come."""
    message = take_first(table, row, asked + 1, machine.messages, MESSAGE.next)
    if message < 0:
        table[row, asked] += 1
    else:
        send_now(machine, message)


@belongs_to(MESSAGES)
@inner
def send_now(machine: Machine, message: int) -> None:
    """Send a message that has waited for its receiver to ask."""
    row = machine.messages[message]
    src, dst, size = row[MESSAGE.at], row[MESSAGE.dst], row[MESSAGE.size]
    kind, a, b = row[MESSAGE.kind], row[MESSAGE.a], row[MESSAGE.b]
    free_message(machine, message)
    send_message(machine, src, dst, size, kind, a, b)
