"""Seconds by which ZeRO 3 extends a micro-batch: weights are gathered, and gradients reduced.

In the forward a layer's weights are gathered once the layer before it has done its first operation.
In the backward they are gathered behind the reduction of the gradients of the layer before, with
which they take their turns in one stream; so computing waits for both.
"""

from typing import NamedTuple

import numpy as np

from nadi.estimates.execution import Executions, StepShape
from nadi.estimates.generated_blocks import GeneratedCosts, PartSeconds
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
        begin = one.start + delay
        gathers.begin_before(begin - _TIE)
        meets = gathers.meets(role)
        begin = np.where(meets, np.maximum(begin, gathers.free), begin)
        gathers.free = np.where(meets, begin + one.end - one.start, gathers.free)
        delay = np.maximum(delay, begin - one.latest)
    gathers.begin_before(np.full(1, np.inf))
    return np.maximum(delay, gathers.end - work.whole)


class _Gathers:
    """Gathers of dense weights and then of experts, in turns with other collectives of a rank."""

    def __init__(self, start: Floats, following: PartEnds) -> None:
        self._seconds = following.gather, following.gather_experts
        self._shared = following.gather_shared
        self._asks = [start, np.full(1, np.inf)]  # for the links; infinite where it did already
        self.free = np.zeros(1)  # from when on the links are
        self.end = start

    def meets(self, role: int) -> Bools:
        """Tell whether collectives of a role use the same links."""
        found: Bools = (self._shared[0][role] > 0) | (self._shared[1][role] > 0)
        return found

    def begin_before(self, moment: Floats) -> None:
        """Let those take the links that ask for them before a moment."""
        for number, seconds in enumerate(self._seconds):
            on_links = np.maximum.reduce(self._shared[number])
            asked = self._asks[number]
            now, meets = asked < moment, on_links > 0
            begin = np.where(meets, np.maximum(asked, self.free), asked)
            self.free = np.where(now & meets, begin + on_links, self.free)
            self.end = np.where(now, begin + seconds, self.end)
            self._asks[number] = np.where(now, np.inf, asked)
            if number == 0:
                self._asks[1] = np.where(now, self.end, self._asks[1])
