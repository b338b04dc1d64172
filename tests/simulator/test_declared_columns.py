"""The columns of the engine's arrays: declared once, as many as each array has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nadi.kernels.columns import Codes, Columns, code, column, same_as
from nadi.simulation.engine import codes, event_queue, machine_state
from nadi.simulation.lowering.engine_arrays import machine_of
from nadi.simulation.lowering.task_tables import tables_of
from nadi.simulation.work.program import program_of
from nadi.systems.system import Dimension, Network, System

from .cases import trace_of

_NAMED = [value for module in (machine_state, event_queue) for value in vars(module).values()]
ARRAYS: list[Any] = [value for value in _NAMED if isinstance(value, type(Columns)) and value.of]
CODES: list[Any] = [
    value for value in vars(codes).values() if isinstance(value, type(Codes)) and value is not Codes
]
WITHOUT_COLUMNS = {"children", "ready", "here", "trees", "heap", "ways", "pairs", "shares"}


def arrays() -> dict[str, np.ndarray]:
    """Make the arrays of a simulation of one collective."""
    node = {"id": 0, "type": "COMM_COLL_NODE", "is_cpu_op": False, "comm_type": 0, "comm_size": 64}
    system = System(Network((Dimension("ring", 2, 50.0, 500.0),), congestion=True))
    machine = machine_of(tables_of(program_of([trace_of([node])] * 2), system), 100, 4)
    found = machine._asdict() | machine.agenda._asdict()
    del found["agenda"], found["flows"]
    return found


def test_every_array_has_as_many_columns_as_are_declared() -> None:
    found = arrays()
    declared = {one.of: len(one) for one in ARRAYS}
    assert len(declared) == len(ARRAYS), "an array is declared twice"
    assert set(declared) == set(found) - WITHOUT_COLUMNS
    widths = {name: found[name].shape[-1] for name in declared if name != "scratch"}
    assert widths | {"scratch": found["scratch"].shape[0]} == declared


@pytest.mark.parametrize("one", ARRAYS + CODES, ids=lambda one: one.__name__)
def test_every_number_is_declared_once_and_says_what_it_is(one: Any) -> None:
    own = [found for found in one.declared.values() if found.shares is None]
    first = own[0].number
    numbers = [number for found in own for number in range(found.number, found.number + found.span)]
    assert numbers == list(range(first, first + len(numbers)))
    meanings = [(found.meaning, found.unit) for found in one.declared.values()]
    assert all(meaning for meaning, _ in meanings)
    assert len(set(meanings)) == len(meanings), "two have one meaning"
    assert one.__doc__


def test_a_number_is_an_integer_in_the_order_of_declaration() -> None:
    class ROW(Columns, of="rows"):
        """Of a row."""

        first = column("the first")
        three = column("three beside each other", span=3)
        last = column("the last", "ns")
        other = same_as(three, "what else it may be")

    class Kind(Codes, first=1):
        """Kinds."""

        ONE = code("one")
        TWO = code("two")

    assert (ROW.first, ROW.three, ROW.last, ROW.other) == (0, 1, 4, 1)
    assert len(ROW) == 5
    assert ROW.declared["last"].unit == "ns"
    assert (Kind.ONE, Kind.TWO) == (1, 2)
