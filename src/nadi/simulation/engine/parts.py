"""Parts of the engine that many jobs do not need, and need not wait for to be compiled.

A machine of a class that leaves a part out is run by an engine compiled without it. If the part
is asked for all the same, the run stops with ``Problem.LEFT_OUT``, and nothing of it holds.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from nadi.kernels.jit import instead_of
from nadi.simulation.engine.codes import Problem
from nadi.simulation.engine.event_queue import COUNTER

# what ranks do together, and what they send each other
COLLECTIVES = "collectives"
# collectives message by message, links that are shared, buses, policies, remote memory
MESSAGES = "messages"
# transfers that share links slow each other down
FLOWS = "flows"

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _nothing_of_2(machine: Any, a: int) -> None:
    machine.agenda.counters[COUNTER.problem] = Problem.LEFT_OUT


def _nothing_of_3(machine: Any, a: Any, b: Any) -> None:
    machine.agenda.counters[COUNTER.problem] = Problem.LEFT_OUT


def _nothing_of_5(machine: Any, a: int, b: int, c: int, d: int) -> None:
    machine.agenda.counters[COUNTER.problem] = Problem.LEFT_OUT


def _none_of_8(machine: Any, a: int, b: int, c: int, d: int, e: int, f: int, g: int) -> int:
    machine.agenda.counters[COUNTER.problem] = Problem.LEFT_OUT
    return 0


def _false_of_8(machine: Any, a: int, b: int, c: float, d: int, e: int, f: int, g: int) -> bool:
    machine.agenda.counters[COUNTER.problem] = Problem.LEFT_OUT
    return False


def _false_of_3(machine: Any, a: int, b: int) -> bool:
    machine.agenda.counters[COUNTER.problem] = Problem.LEFT_OUT
    return False


def _false_of_2(machine: Any, a: int) -> bool:
    machine.agenda.counters[COUNTER.problem] = Problem.LEFT_OUT
    return False


def _none_of_2(machine: Any, a: int) -> int:
    machine.agenda.counters[COUNTER.problem] = Problem.LEFT_OUT
    return -1


_STAND_INS = {
    (None, 2): _nothing_of_2,
    (None, 3): _nothing_of_3,
    (None, 5): _nothing_of_5,
    (bool, 2): _false_of_2,
    (bool, 3): _false_of_3,
    (bool, 8): _false_of_8,
    (int, 8): _none_of_8,
    (int, 2): _none_of_2,
}


def belongs_to(part: str) -> Callable[[_Function], _Function]:
    """Say that a helper, whose first argument is the machine, belongs to a part."""

    def mark(helper: _Function) -> _Function:
        function = getattr(helper, "__wrapped__", helper)
        result = function.__annotations__["return"]
        stand_in = _STAND_INS[result, function.__code__.co_argcount]
        return instead_of(helper, part, stand_in)

    return mark
