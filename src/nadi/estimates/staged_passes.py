"""The passes of a stage whose weights or activations live in the second memory tier.

Tensors move beside the computations, as in simulations with a tier (:mod:`nadi.memory`): a load
begins at most so many operations before its use, and a tensor whose uses are no further apart
stays. So a part of the last layers of a forward is still there when their backward begins, and the
first loads of a pass come beside the pass before it. Stores go on while others compute, as far as
buffers hold what they store. A pass is late by what has no such time left, and no micro-batch is
done before the link has moved all that it needs. Where a backward computes its layers again, some
of what it makes is needed once more when many operations have passed: it is stored, and then
loaded, while later loads wait.

On the last stage, the backward of a micro-batch follows its forward: it waits for the stores of
what it loads. On others, other micro-batches come between.
"""

from typing import NamedTuple

import numpy as np

from nadi.estimates.calculon.machine_description import MachineDescription
from nadi.estimates.calculon.memory import OffloadTimes, rate
from nadi.estimates.execution import Executions
from nadi.estimates.generated_blocks import GeneratedCosts
from nadi.systems.memory_tiers import DISTANCE, usual_buffers
from nadi.trace.arrays import Bools, Floats, Ints

_LAST = 0.35  # of a layer: what a pass computes once its last weights are there
_EXCHANGE = 2.0  # operations between two passes: with the next stage, or the embedding's
_PRODUCTS = 3.0  # of the head: its logits, and their gradients by its input and its weights
_NONE = np.zeros(1)


class Passes(NamedTuple):
    """Seconds of one micro-batch on a stage, float64 of shape (executions,)."""

    # of its layers, and until the head has its weights and what is stored has left
    forward: Floats
    backward: Floats
    end: Floats  # of the head and the loss
    # of the layers of the first micro-batch, for which the stage waits, and of the last one
    first_forward: Floats
    last_backward: Floats

    @property
    def whole(self) -> Floats:
        """Of all while other micro-batches come before and after."""
        return self.forward + self.backward + self.end

    @property
    def alone(self) -> Floats:
        """Of all while the stage waits before."""
        return self.first_forward + self.last_backward + self.end


class StagedMoves:
    """What moves beside the passes of stages, of some executions."""

    def __init__(
        self, machine: MachineDescription, executions: Executions, costs: GeneratedCosts,
        processors: Ints,
    ) -> None:  # fmt: skip
        """Work with those of machine and model; so many ``processors`` move at once."""
        self.processors = processors
        self.machine, self.executions = machine, executions
        self.block, self.counts = costs.block, costs.counts
        block = costs.block
        self.trains = executions.training == 1
        full = executions.is_named("activation_recompute", "full")
        self.kept = np.where(full, block.checkpoint, block.stored) * self.trains
        self.weights = block.weights * executions.weight_offload
        self.rows = costs.looked_up * executions.weight_offload
        self.embedding = costs.first.forward.whole
        self.activations = self.kept * executions.activations_offload
        tensors = (
            costs.counts.weight_tensors * executions.weight_offload
            + costs.counts.kept_tensors * executions.activations_offload * self.trains
        )
        # seconds of a byte: each tensor is an access of its own
        self.latency = (
            machine.mem2.latency * tensors / np.maximum(self.weights + self.activations, 1.0)
        )
        self.stored_again, self.loaded_again = (
            one * executions.activations_offload for one in (costs.stored_again, costs.loaded_again)
        )
        self.plain = (
            block.forward.time + block.forward_exchange[0].exposed,
            block.activation.time + block.weight.time + block.again.time
            + block.backward_exchange[0].exposed + block.exchange_again[0].exposed,
        )  # fmt: skip
        # moves take no bandwidth of the first tier from operations, as in simulations
        self.forward, self.backward = self.plain[0], np.where(self.trains, self.plain[1], 0.0)
        # Other stages wait while the last one is at the head. If a layer's backward is shorter, the
        # next activations arrive before it: their message is no operation between both passes.
        self.is_early = costs.last.seconds >= self.backward

    @property
    def busy(self) -> Floats:
        """The seconds of a layer, forward and backward."""
        found: Floats = self.forward + self.backward
        return found

    def _between(self, *, is_first: bool | Bools) -> Floats:
        """Count operations from a layer's last use of weights in a backward to the next use."""
        counts = self.counts
        exchange = np.where(is_first | ~self.is_early, _EXCHANGE, _EXCHANGE - 1.0)
        after = np.minimum(counts.after_backward, counts.experts_after_backward)
        before = np.minimum(counts.before_forward, counts.experts_before_forward)
        found: Floats = after + exchange + before
        return found

    @property
    def _between_back(self) -> Floats:
        """The same from a forward to a backward, without what stands between them."""
        counts = self.counts
        after = np.minimum(counts.after_forward, counts.experts_after_forward)
        found: Floats = after + np.minimum(counts.before_backward, counts.experts_before_backward)
        return found

    @property
    def before_update(self) -> Floats:
        """The seconds of a backward in which an update's first loads can come."""
        found: Floats = DISTANCE / self.counts.backward_work * self.backward
        return found

    def passing(self, layers: Floats, *, is_first: bool) -> Passes:
        """Work out the passes of a stage before the last one.

        - ``layers``: How many it has.
        - ``is_first``: Whether it is the first one, so that nothing comes before its first pass.
        """
        forward, backward = layers * self.forward, layers * self.backward
        stay, stay_back = (
            self._stay(layers, self._between(is_first=is_first)),
            self._stay(layers, self._between_back + _EXCHANGE),
        )
        rows = self.rows * is_first
        weights = (layers - stay) * self.weights
        stores = layers * self.activations
        loads = (layers - stay_back) * self.weights * self.trains + stores
        loads = loads + layers * self.loaded_again
        waits = self._moving(_NONE, self.stored_again)
        stored_late = self._late_stores(stores, forward)
        late = np.maximum(
            self._late(weights, forward, self._before_forward(stay), self.forward, rows),
            stored_late,
        )
        late_back = self._late(
            loads, backward - layers * waits, self._before_backward(stay_back), self.backward
        )
        stores = stores + layers * self.stored_again
        late = np.maximum(
            late, self._moving(rows + weights + loads, stores) - forward - backward - late_back
        )
        known, known_back = (
            np.maximum(layers - DISTANCE / count, 0.0)
            for count in (self.counts.forward_work, self.counts.backward_work)
        )
        first = layers if is_first else known
        return Passes(
            forward + late, backward + late_back, _NONE,
            forward
            + np.maximum(
                self._late(first * self.weights, forward, _NONE, self.forward, rows), stored_late
            ),
            backward + self._late(
                known_back * (self.weights + self.activations + self.loaded_again) * self.trains,
                backward - known_back * waits, _NONE, self.backward,
            ),
        )  # fmt: skip

    def turning(self, layers: Floats, end: Floats, end_weights: Floats) -> Passes:
        """Work out the passes of the last stage, or of the only one.

        - ``layers``: How many it has.
        - ``end``: Seconds of the head and the loss, forward and backward.
        - ``end_weights``: Bytes of the head's weights. They are loaded once, and the head is one
          product that needs all of them.
        """
        forward, backward = layers * self.forward, layers * self.backward
        stay = self._stay(layers, self._between(is_first=self.executions.pipeline_par == 1))
        stay_turning = self._stay(layers, self._between_back + self.counts.end)
        stay_stored = self._stay_stored(layers)
        end_weights = end_weights * self.executions.weight_offload
        rows = np.where(self.executions.pipeline_par == 1, self.rows, 0.0)
        weights = (layers - stay) * self.weights
        stores = (layers - stay_stored) * self.activations
        loads = (layers - stay_turning) * self.weights * self.trains + stores
        loads = loads + layers * self.loaded_again
        before = self._before_forward(stay)
        late = np.maximum(
            self._late(weights, forward, before, self.forward, rows),
            self._late_stores(stores, forward),
        )
        weights = weights + rows
        late = late + self._late_end(end_weights, weights, end, layers, forward + late + before)
        # the layers that stay go back while what others have stored still leaves
        turned = stay_stored * self.backward
        stored = self._moving(_NONE, stores) - forward - late - end - turned
        late = late + np.maximum(stored, 0.0)
        late_back = np.where(
            self.activations > 0,
            np.maximum(
                self._moving(loads, _NONE)
                + layers * self._moving(_NONE, self.stored_again)
                - backward
                + turned,
                0.0,
            ),
            self._late(loads, backward, self._before_backward(stay_turning, end), self.backward),
        )
        link = self._moving(weights + end_weights + loads, _NONE)
        late = np.maximum(late, link - forward - end - backward - late_back)
        there, back = forward + late, backward + late_back
        return Passes(there, back, end, there, back)

    def moving(self, layers: Floats, end_weights: Floats) -> Floats:
        """Give the seconds of all moves of a micro-batch on a stage while all stages move.

        ``end_weights`` are bytes of the head's weights, or of the rows that the embedding looks up.
        """
        stay = self._stay(layers, self._between(is_first=False))
        stay_back = self._stay(layers, self._between_back + _EXCHANGE)
        weights = (layers - stay + (layers - stay_back) * self.trains) * self.weights
        end_weights = end_weights * self.executions.weight_offload
        stores = layers * self.activations
        return self._moving(weights + end_weights + stores, stores)

    def times(
        self, layers: Floats, own: Floats, passes: Passes, update: Floats
    ) -> OffloadTimes:  # fmt: skip
        """Give by how much offloading extends a layer, and which bandwidths would hide it.

        ``passes`` are those of a stage with ``own`` layers, of which others have ``layers``.
        ``update`` is the bandwidth that hides the moves of the optimizer's state.
        """
        forward, backward = (
            (whole - own * plain) / layers
            for whole, plain in zip(passes[:2], self.plain, strict=True)
        )
        update = update * self.trains
        moved = self.weights + self.activations
        hidden = np.maximum(rate(moved, self.plain[0]), rate(moved * self.trains, self.plain[1]))
        return OffloadTimes(
            (forward, forward), (backward, backward),
            rate(self.block.weights, self.plain[0]), rate(self.kept, self.plain[0]), update,
            np.maximum(hidden, update * self.executions.optimizer_offload),
        )  # fmt: skip

    def _late_end(
        self, weights: Floats, before: Floats, work: Floats, layers: Floats, passed: Floats
    ) -> Floats:  # fmt: skip
        """Give by how much loads of the head's weights extend the head.

        They are loaded once, before its forward. If they fill more than half of all buffers, each
        product works on one part after the other, and loads them.

        - ``weights``, ``before``: Bytes of its weights, and of what the layers before it load.
        - ``work``: Seconds of the head.
        - ``passed``: Seconds in which both loads can have come, if those before it are late.
        """
        load = self._moving(weights, _NONE)
        once = np.maximum(
            load - np.minimum(DISTANCE / self.counts.forward_work, layers) * self.forward,
            self._moving(before, _NONE) + load - passed,
        )
        parts = np.ceil(2.0 * weights / usual_buffers(self.machine.mem1.capacity))
        product = work / _PRODUCTS
        streamed = np.maximum(load + product / np.maximum(parts, 1.0), product) - product
        return np.where(parts > 1, 2.0 * streamed, np.where(load > 0, np.maximum(once, 0.0), 0.0))

    def _stay(self, layers: Floats, between: Floats | float) -> Floats:
        """Give how many layers' weights stay where one pass turns into the other.

        ``between`` is how many operations come between the last use in the one pass and the first
        use in the other. Weights of a layer are one tensor.
        """
        both = self.counts.forward + self.counts.backward
        found = np.floor((DISTANCE - between) / both) + 1.0
        return np.where(self.trains, np.clip(found, 0.0, layers), 0.0)

    def _stay_stored(self, layers: Floats) -> Floats:
        """Give how many layers' activations stay until the backward, where the head comes before.

        What a layer keeps last is used first.
        """
        both = self.counts.forward + self.counts.backward
        return np.minimum(np.maximum(DISTANCE - self.counts.end, 0.0) / both, layers)

    def _before_forward(self, stay: Floats) -> Floats:
        """Give the seconds of a forward's loads that come beside the backward before it."""
        spare = np.maximum(DISTANCE - stay * self.counts.forward_work, 0.0)
        loads = self._moving(spare / self.counts.forward_work * self.weights, _NONE)
        return np.minimum(loads, spare / self.counts.backward_work * self.backward)

    def _before_backward(self, stay: Floats, end: Floats = _NONE) -> Floats:
        """Give the seconds of a backward's loads that come beside what is before it."""
        stay = np.where(self.activations > 0, 0.0, stay)
        spare = np.maximum(DISTANCE - stay * self.counts.backward_work, 0.0)
        each = self.weights + self.activations
        loads = self._moving(spare / self.counts.backward_work * each, _NONE)
        spare = np.maximum(spare - np.where(end > 0, self.counts.end_work, 0.0), 0.0)
        found: Floats = np.minimum(loads, end + spare / self.counts.forward_work * self.forward)
        return found

    def _late(
        self, loads: Floats, work: Floats, before: Floats, layer: Floats, rows: Floats = _NONE
    ) -> Floats:  # fmt: skip
        """Give by how much a pass is late whose loads begin so many seconds before it.

        - ``work``, ``layer``: Its seconds without any, and those of a layer.
        - ``rows``: Bytes of those that the embedding looks up before the layers: it waits for them.
        """
        last = np.where(self.activations > 0, 0.0, _LAST * layer)
        beside = work + np.where(rows > 0, self.embedding, 0.0)
        late = self._moving(loads + rows, _NONE) - before + last - beside
        late = np.maximum(late, np.where(rows > 0, self._moving(rows, _NONE) - before, 0.0))
        return np.where(loads > 0, np.maximum(late, 0.0), 0.0)

    def _late_stores(self, stores: Floats, work: Floats) -> Floats:
        """Give how long a pass waits as buffers are full of what it stores."""
        held = self._moving(_NONE, usual_buffers(self.machine.mem1.capacity))
        return np.maximum(self._moving(_NONE, stores) - held - work, 0.0)

    def _moving(self, read: Floats, written: Floats) -> Floats:
        tier = self.machine.mem2
        one_way = np.maximum(read, written) if tier.duplex else read + written
        found: Floats = tier.moving_time(read, written, self.processors) + self.latency * one_way
        return found
