"""Seconds by which ZeRO 3 extends a micro-batch: weights are gathered, and gradients reduced.

In the forward a layer's weights are gathered once the layer before it has done its first operation.
In the backward they are gathered behind the reduction of the gradients of the layer before, with
which they take their turns in one stream; so computing waits for both.
"""

import itertools
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from nadi.estimates.execution import Executions, StepShape
from nadi.estimates.generated_blocks import GeneratedCosts, PartSeconds
from nadi.estimates.rings import LinkTurns
from nadi.estimates.step_ends import PartEnds, StepEnds
from nadi.trace.arrays import Bools, Floats

_TIE = 1e-9  # seconds: what begins at once with a gather goes before it


class GatherSeconds(NamedTuple):
    """Of a micro-batch, float64 of shape (executions,)."""

    # on the first, a middle and the last stage
    first: Floats
    middle: Floats
    last: Floats
    tail: Floats  # of these, those after the backward of a chunk


def gather_seconds(
    executions: Executions, shape: StepShape, costs: GeneratedCosts, ends: StepEnds
) -> GatherSeconds:
    """Work out what ZeRO 3 adds; zeros where weights are not sharded."""
    if not (executions.weight_sharding == 1).any():
        return GatherSeconds(*np.zeros((4, 1)))
    layer, table, head = ends.layer, ends.first, ends.last
    there, back = _late(costs.forward, layer), _backward(layer)
    # the first forward of a chunk has nothing beside which its weights are gathered
    middle = shape.blocks * back + (shape.blocks - shape.chunks) * there
    middle = middle + shape.chunks * layer.gathers
    of_table = (
        _backward(table) + table.gathers - layer.gathers + _late(costs.first.forward, layer)
        - (shape.blocks - shape.first) * (there + back)
    )  # fmt: skip
    of_head = (
        _backward(head) + _late(costs.forward, head)
        - (shape.blocks - shape.last) * (there + back)
    )  # fmt: skip
    alone = np.where(shape.stages == 1, of_head, 0.0)
    sharded = executions.weight_sharding == 1
    tail = layer.reduce + layer.reduce_experts
    return GatherSeconds(*(
        np.where(sharded, one, 0.0)
        for one in (middle + of_table + alone, middle, middle + of_head, tail)
    ))  # fmt: skip


def _backward(part: PartEnds) -> Floats:
    """Give the seconds of gathering a part's weights, and of reducing its gradients."""
    found: Floats = part.gathers + part.reduce + part.reduce_experts
    return found


def _late(work: PartSeconds, following: PartEnds) -> Floats:
    """Give by how much a part is longer while the weights of the following one are gathered."""
    gathers = _Gathers(work.begun, following)
    delay = np.zeros(1)
    every = [(one, role) for role, awaited in enumerate(work.awaited) for one in awaited]
    for one, role in sorted(every, key=lambda pair: float(pair[0].start.mean())):
        begin = gathers.turn(role, one.start + delay, one.end - one.start)
        delay = np.maximum(delay, begin - one.latest)
    gathers.begin_before(np.full(1, np.inf))
    return np.maximum(delay, gathers.end - work.whole)


class _Gathers:
    """Gathers of dense weights and then of experts, in turns with other collectives of a rank.

    Each collective has its turn behind those parts of a gather that are there when it comes; the
    other parts have theirs behind it.
    """

    def __init__(self, start: Floats, following: PartEnds) -> None:
        self._seconds = following.gather, following.gather_experts
        self._turns = following.gather_turns
        self._asks = [start, np.full(1, np.inf)]  # for the links; infinite where it did already
        self._begun = [np.full(1, np.inf)] * 2
        self._longer = [np.zeros(1)] * 2  # seconds of others that went between their parts
        self._free = np.zeros(1)  # from when on the links have no others
        self.end = start

    def begin_before(self, moment: Floats) -> None:
        """Let those take the links that ask for them before a moment."""
        for number, seconds in enumerate(self._seconds):
            asked, meets = self._asks[number], self._meets(self._turns[number])
            now = asked < moment
            begin = np.where(meets, np.maximum(asked, self._free), asked)
            self._begun[number] = np.where(now, begin, self._begun[number])
            self.end = np.where(now, begin + seconds, self.end)
            self._asks[number] = np.where(now, np.inf, asked)
            if number == 0:
                self._asks[1] = np.where(now, self.end, self._asks[1])

    def turn(self, role: int, asked: Floats, seconds: Floats) -> Floats:
        """Give when a collective of a role begins that asks for the links then."""
        self.begin_before(asked - _TIE)
        meets = self._meets([of_number[role] for of_number in self._turns])
        begin = np.where(meets, np.maximum(asked, self._free), asked)
        last = []
        for begun, longer, turns in zip(self._begun, self._longer, self._turns, strict=True):
            until = np.zeros(1)
            for one in turns[role]:
                passed = one.passed(begin - begun)
                begin = np.where(passed > 0, np.maximum(begin, begun + longer + passed), begin)
                whole = begun + longer + one.passed(np.full(1, np.inf))
                until = np.where((one.parts > 0) & np.isfinite(begun), whole, until)
            last.append(until)
        for number, until in enumerate(last):
            later = np.where(begin < until, seconds, 0.0)
            self._longer[number] = self._longer[number] + later
            self.end, self._asks[1] = self.end + later, self._asks[1] + later
        self._free = np.where(meets, begin + seconds, self._free)
        return begin

    @staticmethod
    def _meets(turns: Iterable[Iterable[LinkTurns]]) -> Bools:
        """Tell whether any of some turns are on links that others use, too."""
        found: Bools = np.zeros(1, dtype=np.bool_)
        for one in itertools.chain(*turns):
            found = found | (one.parts > 0)
        return found
