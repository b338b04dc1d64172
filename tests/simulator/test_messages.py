"""Who sends how much to whom: as the engine counts it on links that join each pair of ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nadi.kernels.machine import L_BYTES
from nadi.simulator import System
from nadi.simulator.config import Collectives, Dimension, Network
from nadi.simulator.engine import run_tables
from nadi.simulator.lower import tables_of
from nadi.simulator.messages import messages_of
from nadi.simulator.program import program_of
from nadi.simulator.recipes import recipe_of
from tests.simulator.cases import collective, trace_of

COMM_TYPES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
ALGORITHMS = ("ring", "direct", "direct2", "halvingDoubling", "doubleBinaryTree")


def system_with(algorithm: str, n: int, compat: Any) -> System:
    """Join each pair of ranks, and do all collectives with one algorithm."""
    return System(
        Network((Dimension("fully-connected", n, 10.0, 100.0),), congestion=True),
        collectives=Collectives(**dict.fromkeys(COMM_TYPES, (algorithm,))),
        compat=compat,
    )


def counted(system: System, comm_type: str, size: int) -> np.ndarray:
    """Give the bytes that the engine saw from each rank to each other, shape (n, n)."""
    n = system.network.num_ranks
    traces = [trace_of([collective(0, comm_type, size)])] * n
    machine = run_tables(tables_of(program_of(traces), system))
    return machine.links[:, L_BYTES].reshape(n, n)


_ANY, _POWERS = (2, 3, 4, 5, 6, 8, 16), (2, 4, 8, 16)
# how many members each algorithm can do with
_CASES = [
    *((name, comm, n) for name in ALGORITHMS[:3] for comm in COMM_TYPES for n in _ANY),
    *(("halvingDoubling", comm, n) for comm in COMM_TYPES[:3] for n in _POWERS),
    *(("doubleBinaryTree", comm, n) for comm in COMM_TYPES for n in _POWERS),
]


@pytest.mark.parametrize("compat", ["", "astra-sim"])
@pytest.mark.parametrize(("algorithm", "comm_type", "n"), _CASES)
def test_the_engine_counts_the_same(algorithm: str, comm_type: str, n: int, compat: str) -> None:
    system, size = system_with(algorithm, n, compat), 100_003
    (phase,) = recipe_of(system, comm_type, 0, -1).phases
    src, dst, num_bytes = messages_of(phase, size, compat)
    found = np.zeros((n, n), dtype=np.int64)
    found[src, dst] = num_bytes
    assert (src != dst).all()
    assert found.tolist() == counted(system, comm_type, size).tolist()
