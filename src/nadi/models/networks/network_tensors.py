"""The tensors that the rows of a network's step read and give.

A tensor is named after the layer that gives it; views give what they are views of. Of tables a row
states the part that it looks up, at the end of the table, as long as all of its lookups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nadi.models.job_rows import ADAM_STATE
from nadi.models.networks.layer_work import LayerWork
from nadi.models.networks.network_file import NeuralNetwork
from nadi.models.networks.network_plan import Bucket, NetworkPlan
from nadi.models.networks.table_shares import TableShare
from nadi.models.row_operands import NO_OPERANDS, Operand, Operands

__all__ = ["NetworkTensors"]

_F32 = 4


class NetworkTensors(NamedTuple):
    """The operands of rows, by layer; none where ranks shard what they keep (ZeRO)."""

    network: NeuralNetwork
    plan: NetworkPlan
    works: Sequence[LayerWork]

    def forward(self, number: int) -> Operands:
        """Give what a layer makes of its inputs and weights."""
        given = (*self._inputs(number), *self._weights([number]))
        return self._operands(given, (self._output(number),))

    def input_gradient(self, number: int, work: LayerWork) -> Operands:
        """Give the gradients of a layer's trained inputs."""
        layer = self.network.layers[number]
        inputs = self._inputs(number)
        kept = [inputs[place] for place in work.keeps_inputs if place < len(inputs)]
        kept += [self._output(number)] if work.keeps_output else []
        sources = [one for one in layer.sources if one >= 0 and self.network.is_trained[one]]
        made = dict.fromkeys(self._gradient(one) for one in sources)
        given = (*self._arrived(number), *kept, *self._weights([number]))
        return self._operands(given, made)

    def weight_gradient(self, number: int) -> Operands:
        """Give the gradient of a layer's weights."""
        given = (*self._arrived(number), *self._inputs(number))
        return self._operands(given, self._weights([number], "gradients"))

    def summed(self, number: int) -> Operands:
        """Add what the users of a layer give to its gradient."""
        gradient = self._gradient(number)
        return self._operands((gradient,), (gradient,))

    def reduced(self, bucket: Bucket) -> Operands:
        """Reduce the gradients of a bucket in place."""
        gradients = self._weights(bucket.layers, "gradients")
        return self._operands(gradients, gradients)

    def updated(self) -> Operands:
        """Update all weights, and their state, by their gradients."""
        layers = [n for n, one in enumerate(self.network.layers) if not one.is_spread]
        weights, gradients = (self._weights(layers, what) for what in ("weights", "gradients"))
        elements = ADAM_STATE // _F32
        changed = weights + tuple(
            Operand(f"{one.storage}.state", (elements * one.shape[0],), "float32", 0, True,
                    "optimizer")
            for one in weights
        )  # fmt: skip
        return self._operands(gradients + changed, changed)

    def indices(self, number: int, share: TableShare) -> Operands:
        """Receive the indices of what is looked up in a rank's tables."""
        return self._operands((), (self._indices(number, share),))

    def looked_up(self, number: int, share: TableShare) -> Operands:
        """Look up rows of a rank's tables for the samples of all."""
        rows = self._rows(number, share)[:1]
        given = (self._indices(number, share), *rows)
        return self._operands(given, (self._found(number, share),))

    def exchanged(self, number: int, share: TableShare) -> Operands:
        """Exchange what was looked up."""
        return self._operands((self._found(number, share),), (self._output(number),))

    def returned(self, number: int, share: TableShare) -> Operands:
        """Exchange the gradients of what was looked up."""
        return self._operands((self._gradient(number),), (self._found(number, share, ".gradient"),))

    def updated_rows(self, number: int, share: TableShare) -> Operands:
        """Update rows that were looked up, and a float32 of state for each."""
        rows = self._rows(number, share)
        given = (self._found(number, share, ".gradient"), self._indices(number, share), *rows)
        return self._operands(given, rows)

    def _operands(self, inputs: Iterable[Operand], outputs: Iterable[Operand]) -> Operands:
        return Operands(tuple(inputs), tuple(outputs)) if not self.plan.zero else NO_OPERANDS

    def _viewed(self, number: int) -> int:
        """Return the layer whose output a layer's output is a view of; less than 0 for inputs."""
        while number >= 0 and self.network.layers[number].kind.is_view:
            number = self.network.layers[number].sources[0]
        return number

    def _output(self, number: int) -> Operand:
        number = self._viewed(number)
        if number >= 0:
            name, feature = self.network.layers[number].name, self.network.layers[number].output
        else:
            name, feature = list(self.network.inputs.items())[-1 - number]
        return Operand(f"{name}.output", (self.plan.batch * feature.elements,), self.plan.dtype)

    def _gradient(self, number: int) -> Operand:
        number = self._viewed(number)
        users = self._users(number)
        # the gradient of a sum is that of what it adds
        if users and not any(self.works[user].input_gradient for user in users):
            return self._gradient(users[0])
        output = self._output(number)
        return output._replace(storage=f"{output.storage}.gradient")

    def _users(self, number: int) -> list[int]:
        """Return the layers that compute with a layer's output, or with views of it."""
        found = []
        for user in self.network.uses[number] if number >= 0 else ():
            found += self._users(user) if self.network.layers[user].kind.is_view else [user]
        return found

    def _arrived(self, number: int) -> tuple[Operand, ...]:
        """Return the gradient of a layer's output; none where it is the last."""
        return (self._gradient(number),) if self.network.uses[number] else ()

    def _inputs(self, number: int) -> tuple[Operand, ...]:
        return tuple(dict.fromkeys(map(self._output, self.network.layers[number].sources)))

    def _weights(self, layers: Iterable[int], what: str = "weights") -> tuple[Operand, ...]:
        found = {}
        dtype = self.plan.dtype if what == "weights" else self.plan.gradient_dtype
        for number in layers:
            layer = self.network.layers[number]
            own = self.network.layers[layer.weights] if layer.weights >= 0 else layer
            if count := sum(own.tensors):
                found[own.name] = Operand(f"{own.name}.{what}", (count,), dtype, 0, True, what)
        return tuple(found.values())

    def _indices(self, number: int, share: TableShare) -> Operand:
        name = self.network.layers[number].name
        return Operand(f"{name}.indices", (self.plan.samples * share.lookups,), "int64")

    def _found(self, number: int, share: TableShare, what: str = "") -> Operand:
        """Return the sums of rows of a rank's tables; with one rank they are the layer's output."""
        if self.plan.ranks == 1:
            return self._gradient(number) if what else self._output(number)
        name = self.network.layers[number].name
        shape = (self.plan.samples * share.columns,)
        return Operand(f"{name}.found{what}", shape, self.plan.dtype)

    def _rows(self, number: int, share: TableShare) -> tuple[Operand, Operand]:
        """Return the rows that are looked up, and their state."""
        name, samples = self.network.layers[number].name, self.plan.samples
        count = min(samples * share.elements, share.parameters)
        states = min(samples * share.lookups, share.rows)
        return (
            Operand(f"{name}.tables", (count,), self.plan.dtype, share.parameters - count, True,
                    "tables"),
            Operand(f"{name}.tables.state", (states,), "float32", share.rows - states, True,
                    "optimizer"),
        )  # fmt: skip
