"""Who sends how much to whom: as the engine counts it on links that join each pair of ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nadi.simulation.collectives.phases import messages_of
from nadi.simulation.engine.machine_state import LINK
from nadi.simulation.engine_driver import run_tables
from nadi.simulation.lowering.task_tables import tables_of
from nadi.simulation.rules import rules_of
from nadi.simulation.work.program import program_of
from nadi.systems import System
from nadi.systems.system import ASTRA_SIM_COLLECTIVES, Collectives, Dimension, Network
from nadi.trace.collectives import COLLECTIVES
from tests.simulator.cases import collective, trace_of

ALGORITHMS = ("ring", "direct", "direct2", "halvingDoubling", "doubleBinaryTree")


def system_with(algorithm: str, n: int, compat: Any) -> System:
    """Join each pair of ranks, and do all collectives with one algorithm."""
    return System(
        Network((Dimension("fully-connected", n, 10.0, 100.0),), congestion=True),
        collectives=Collectives(**dict.fromkeys(COLLECTIVES, (algorithm,))),
        compat=compat,
    )


def counted(system: System, comm_type: str, size: int, root: int) -> np.ndarray:
    """Give the bytes that the engine saw from each rank to each other, shape (n, n)."""
    n = system.network.num_ranks
    node = collective(0, comm_type, size, comm_src=root, comm_dst=root)
    machine = run_tables(tables_of(program_of([trace_of([node])] * n), system))
    return machine.links[:, LINK.bytes].reshape(n, n)


def said(system: System, comm_type: str, size: int, root: int) -> np.ndarray:
    """Give the bytes that are said to go from each rank to each other, shape (n, n)."""
    n = system.network.num_ranks
    (phase,) = rules_of(system).recipe_of(system, comm_type).phases
    src, dst, num_bytes = messages_of(
        phase, size, rounds_down=rules_of(system).rounds_down, root=root
    )
    assert (src != dst).all()
    found = np.zeros((n, n), dtype=np.int64)
    found[src, dst] = num_bytes
    return found


_ANY, _POWERS, _FOUR = (2, 3, 4, 5, 6, 8, 16), (2, 4, 8, 16), ASTRA_SIM_COLLECTIVES
# how many members ASTRA-sim's algorithms can do with
_IN_ASTRA_SIM = [
    *((name, comm, n) for name in ALGORITHMS[:3] for comm in _FOUR for n in _ANY),
    *(("halvingDoubling", comm, n) for comm in _FOUR[:3] for n in _POWERS),
    *(("doubleBinaryTree", comm, n) for comm in _FOUR for n in _POWERS),
]


@pytest.mark.parametrize(("algorithm", "comm_type", "n"), _IN_ASTRA_SIM)
def test_the_engine_counts_the_same_in_astra_sim(algorithm: str, comm_type: str, n: int) -> None:
    system, size = system_with(algorithm, n, "astra-sim"), 100_003
    assert (said(system, comm_type, size, 0) == counted(system, comm_type, size, 0)).all()


@pytest.mark.parametrize("n", [*_ANY, 31])
@pytest.mark.parametrize("comm_type", COLLECTIVES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_engine_counts_the_same(algorithm: str, comm_type: str, n: int) -> None:
    system = system_with(algorithm, n, "")
    size = 1 if comm_type == "barrier" else 100_003
    root = n // 2
    found = counted(system, comm_type, size, root)
    assert (said(system, comm_type, size, root) == found).all()
    _check_volume(comm_type, n, size, root, found)


def _check_volume(comm_type: str, n: int, size: int, root: int, found: np.ndarray) -> None:
    """Whoever lacks data gets as much at least, and gives as much as only it has."""
    gets, gives = found.sum(axis=0), found.sum(axis=1)
    others = np.arange(n) != root
    part = -(-size // n)
    if comm_type in ("broadcast", "scatter"):
        assert (gets[others] >= (size if comm_type == "broadcast" else part)).all()
        assert gets[root] == 0
        assert gives[root] >= (size if comm_type == "broadcast" else (n - 1) * part)
    elif comm_type in ("reduce", "gather"):
        assert (gives[others] >= size).all()
        assert gives[root] == 0
        assert gets[root] >= (size if comm_type == "reduce" else (n - 1) * size)
    elif comm_type == "all_gather":
        assert (gets >= (n - 1) * size).all()
        assert (gives >= size).all()
    elif comm_type in ("reduce_scatter", "all_to_all"):
        assert (gets >= (part if comm_type == "reduce_scatter" else (n - 1) * part)).all()
        assert (gives >= (n - 1) * size // n).all()
    else:
        assert (gets >= size).all()
        assert (gives >= size * (n - 1) // n).all()
