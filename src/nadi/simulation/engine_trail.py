"""What the engine recorded about nodes besides their times, to explain their start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nadi.simulation.collectives.phases import Recipe
from nadi.simulation.engine.machine_state import NODE, PS, WORLD, Machine
from nadi.simulation.flows.flow_state import COUNT, EDGE
from nadi.simulation.lowering.task_tables import Tables
from nadi.trace.arrays import Ints

_KEPT = {
    "rank": NODE.rank,
    "kind": NODE.kind,
    "slot": NODE.slot,
    "time": NODE.time,
    "size": NODE.size,
    "peer": NODE.peer,
    "key": NODE.key,
    "number": NODE.number,
    "latency": NODE.left,
}


@dataclass(frozen=True, eq=False)
class Trail:
    """What each node did; nodes of custom collectives follow those of the program."""

    # rank, kind, slot, time, size, peer, key, number: int64, shape (nodes,): as the columns of
    # ``machine_state``
    rank: Ints
    kind: Ints
    slot: Ints
    time: Ints
    size: Ints
    peer: Ints
    key: Ints
    number: Ints
    latency: Ints  # of a TRANSFER, ns
    shapes: Ints  # of collectives, as there; ``recipes`` are what they name
    recipes: tuple[Recipe, ...]
    group_members: list[Ints]  # the ranks of each group; the first is all ranks
    links: Ints  # of the network as they were left, as there; one row without congestion
    # int64 ns, shape (links of ``AllLinks``,): for how long each kept transfers from being faster;
    # empty where transfers do not share links
    full: Ints


def trail_of(tables: Tables, machine: Machine) -> Trail:
    """Return what explains the times of a finished machine, whose nodes it keeps."""
    return Trail(
        **{name: machine.nodes[:, column] for name, column in _KEPT.items()},
        shapes=tables.shapes,
        recipes=tables.recipes,
        group_members=tables.group_members,
        links=machine.links.copy(),
        full=_full(machine),
    )


def _full(machine: Machine) -> Ints:
    flows = machine.flows
    num_links = int(flows.counts[COUNT.links]) if machine.world[WORLD.flows] else 0
    return np.asarray(flows.links[:num_links, EDGE.full] // PS)
