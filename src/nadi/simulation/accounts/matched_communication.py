"""Matched communication of a simulation: members of collectives, sends and receives."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.simulation.engine.codes import NodeKind
from nadi.simulation.engine.machine_state import SHAPE
from nadi.simulation.simulation import Simulation
from nadi.trace.arrays import Ints
from nadi.trace.distinct_rows import number_rows

__all__ = ["Meetings", "Messages", "meetings_of", "messages_of_nodes"]


class Meetings(NamedTuple):
    """Members of collectives: node, and number of the collective from 0; int64, shape (parts,)."""

    node: Ints
    number: Ints


class Messages(NamedTuple):
    """Sends and their receives, as nodes; int64, shape (messages,), in order of arrival."""

    send: Ints
    receive: Ints


def meetings_of(simulation: Simulation) -> Meetings:
    """Find the nodes of each collective. O(nodes log nodes).

    The k-th collectives of a group's members are one. Where only some dimensions take part,
    those ranks are that have the same place in the others.
    """
    trail, size = simulation.trail, simulation.program.num_nodes
    node = np.flatnonzero(trail.kind[:size] == NodeKind.COLLECTIVE)
    place = _places(simulation, node)
    whole = np.flatnonzero(trail.kind[:size] == NodeKind.CUSTOM)
    number, _ = number_rows([
        np.concatenate([trail.peer[node], np.full(whole.size, -1)]),
        np.concatenate([trail.number[node], _counted(simulation, whole)]),
        np.concatenate([place, np.zeros(whole.size, dtype=np.int64)]),
    ])  # fmt: skip
    return Meetings(np.concatenate([node, whole]), number)


def _places(simulation: Simulation, node: Ints) -> Ints:
    """Return the lowest rank of the collective of each member, among all ranks."""
    trail = simulation.trail
    place = np.zeros(node.size, dtype=np.int64)
    for number, recipe in enumerate(trail.recipes):
        dims = {phase.dim for phase in recipe.phases}
        if -1 in dims:
            continue
        mine = trail.shapes[trail.key[node], SHAPE.recipe] == number
        mine = np.flatnonzero(mine & (trail.peer[node] == 0))
        rank = trail.rank[node[mine]]
        place[mine], stride = rank, 1
        for d, dimension in enumerate(simulation.system.network.dimensions):
            if d in dims:
                place[mine] -= rank // stride % dimension.size * stride
            stride *= dimension.size
    return place


def _counted(simulation: Simulation, node: Ints) -> Ints:
    """Count nodes of each rank from 0, in order of their start."""
    rank = simulation.trail.rank[node]
    order = np.lexsort((simulation.start[node], rank))
    _, first = np.unique(rank[order], return_index=True)
    number = np.empty(node.size, dtype=np.int64)
    sizes = np.diff(np.append(first, node.size))
    number[order] = np.arange(node.size) - np.repeat(first, sizes)
    return number


def messages_of_nodes(simulation: Simulation) -> Messages:
    """Find the receive of each send. O(nodes log nodes).

    Of those with the same ranks, size and tag the first to arrive is for the first receive.
    """
    trail, size = simulation.trail, simulation.program.num_nodes
    send = np.flatnonzero(trail.kind[:size] == NodeKind.SEND)
    receive = np.flatnonzero(trail.kind[:size] == NodeKind.RECEIVE)
    sent = np.lexsort((simulation.start[send], simulation.end[send], trail.key[send]))
    received = np.lexsort((simulation.start[receive], trail.key[receive]))
    send, receive = send[sent], receive[received]
    if send.size == receive.size:
        return Messages(send, receive)
    return _paired(trail.key, send, receive)


def _paired(key: Ints, send: Ints, receive: Ints) -> Messages:
    """Pair sends with receives where some messages are never received."""
    first_send = np.searchsorted(key[send], key[send])
    nth = np.arange(send.size) - first_send
    at = np.searchsorted(key[receive], key[send]) + nth
    there = at < np.searchsorted(key[receive], key[send], side="right")
    return Messages(send[there], receive[at[there]])
