"""Types of collectives, each declared once.

A new type is a line in :data:`COLLECTIVES`: recordings, jobs in code, what-ifs and simulations then
have it. It runs by the algorithms of its stand-in, until it has a code in
:class:`nadi.simulation.engine.codes.Comm` and steps in
:mod:`nadi.simulation.collectives.step_tables`.
"""

from collections.abc import Callable, Container
from typing import Any, NamedTuple


class Collective(NamedTuple):
    """One type of collectives, as the column ``comm_type`` of nodes names it."""

    name: str
    # bytes that pass the busiest of n members on a ring, for each byte that a member gives; n is a
    # number or an array
    moved: Callable[[Any], Any]
    # the column of nodes with its root: ``src`` if the root has the data, ``dst`` if it gets it
    root: str = ""
    # the type that moves as much through the busiest member, and runs where this one cannot
    stand_in: str = ""


COLLECTIVES = {
    one.name: one
    for one in (
        Collective("all_reduce", lambda n: 2 * (n - 1) / n),
        Collective("reduce", lambda n: n / n, "dst", "reduce_scatter"),
        Collective("all_gather", lambda n: n - 1),
        Collective("gather", lambda n: n - 1, "dst", "all_gather"),
        Collective("scatter", lambda n: (n - 1) / n, "src", "reduce_scatter"),
        Collective("broadcast", lambda n: n / n, "src", "all_gather"),
        Collective("all_to_all", lambda n: (n - 1) / n),
        Collective("reduce_scatter", lambda n: (n - 1) / n),
        Collective("barrier", lambda n: 0 * n, stand_in="all_reduce"),
    )
}
"""All types by name."""

FROM_ROOT = tuple(one.name for one in COLLECTIVES.values() if one.root == "src")
TO_ROOT = tuple(one.name for one in COLLECTIVES.values() if one.root == "dst")


def run_as(name: str, known: Container[str]) -> str:
    """Return a type of collectives, or the first of its stand-ins that is known."""
    while name not in known:
        name = COLLECTIVES[name].stand_in
    return name
