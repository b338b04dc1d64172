"""The nodes of a step of a network on one rank: forward, backward, and the optimizer.

Layers are computed one after the other on one stream. Gradients are reduced bucket by bucket while
the backward goes on, and what ranks look up for each other in tables is exchanged while
layers that do not need it are computed.

The tensors that the rows of a network's step read and give.

A tensor is named after the layer that gives it; views give what they are views of. Of tables a row
states the part that it looks up, at the end of the table, as long as all of its lookups.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from nadi.models.job_rows import (
    ADAM_STATE,
    BEFORE,
    NO_OPERANDS,
    Layout,
    Operand,
    Row,
    RowList,
    RowOperands,
    adam_work,
    exchange,
)
from nadi.models.networks.layer_kinds import EmbeddingBag, Loss, Norm, Slice
from nadi.models.networks.layer_work import LayerWork, StepSize, work_of_layer
from nadi.models.networks.network_file import NeuralNetwork
from nadi.models.networks.network_plan import Bucket, NetworkPlan, TableShare, buckets_of
from nadi.trace.work import Work

_F32_OF_TENSORS = 4


class NetworkTensors(NamedTuple):
    """The operands of rows, by layer; none where ranks shard what they keep (ZeRO)."""

    network: NeuralNetwork
    plan: NetworkPlan
    works: Sequence[LayerWork]

    def forward(self, number: int) -> RowOperands:
        """Give what a layer makes of its inputs and weights."""
        given = (*self._inputs(number), *self._weights([number]))
        return self._operands(given, (self._output(number),))

    def input_gradient(self, number: int, work: LayerWork) -> RowOperands:
        """Give the gradients of a layer's trained inputs."""
        layer = self.network.layers[number]
        inputs = self._inputs(number)
        kept = [inputs[place] for place in work.keeps_inputs if place < len(inputs)]
        kept += [self._output(number)] if work.keeps_output else []
        sources = [one for one in layer.sources if one >= 0 and self.network.is_trained[one]]
        made = dict.fromkeys(self._gradient(one) for one in sources)
        given = (*self._arrived(number), *kept, *self._weights([number]))
        return self._operands(given, made)

    def weight_gradient(self, number: int) -> RowOperands:
        """Give the gradient of a layer's weights."""
        given = (*self._arrived(number), *self._inputs(number))
        return self._operands(given, self._weights([number], "gradients"))

    def summed(self, number: int) -> RowOperands:
        """Add what the users of a layer give to its gradient."""
        gradient = self._gradient(number)
        return self._operands((gradient,), (gradient,))

    def reduced(self, bucket: Bucket) -> RowOperands:
        """Reduce the gradients of a bucket in place."""
        gradients = self._weights(bucket.layers, "gradients")
        return self._operands(gradients, gradients)

    def updated(self) -> RowOperands:
        """Update all weights, and their state, by their gradients."""
        layers = [n for n, one in enumerate(self.network.layers) if not one.is_spread]
        weights, gradients = (self._weights(layers, what) for what in ("weights", "gradients"))
        elements = ADAM_STATE // _F32_OF_TENSORS
        changed = weights + tuple(
            Operand(f"{one.storage}.state", (elements * one.shape[0],), "float32", 0, True,
                    "optimizer")
            for one in weights
        )  # fmt: skip
        return self._operands(gradients + changed, changed)

    def indices(self, number: int, share: TableShare) -> RowOperands:
        """Receive the indices of what is looked up in a rank's tables."""
        return self._operands((), (self._indices(number, share),))

    def looked_up(self, number: int, share: TableShare) -> RowOperands:
        """Look up rows of a rank's tables for the samples of all."""
        rows = self._rows(number, share)[:1]
        given = (self._indices(number, share), *rows)
        return self._operands(given, (self._found(number, share),))

    def exchanged(self, number: int, share: TableShare) -> RowOperands:
        """Exchange what was looked up."""
        return self._operands((self._found(number, share),), (self._output(number),))

    def returned(self, number: int, share: TableShare) -> RowOperands:
        """Exchange the gradients of what was looked up."""
        return self._operands((self._gradient(number),), (self._found(number, share, ".gradient"),))

    def updated_rows(self, number: int, share: TableShare) -> RowOperands:
        """Update rows that were looked up, and a float32 of state for each."""
        rows = self._rows(number, share)
        given = (self._found(number, share, ".gradient"), self._indices(number, share), *rows)
        return self._operands(given, rows)

    def _operands(self, inputs: Iterable[Operand], outputs: Iterable[Operand]) -> RowOperands:
        return RowOperands(tuple(inputs), tuple(outputs)) if not self.plan.zero else NO_OPERANDS

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


_INDEX, _F32 = 8, 4


class NetworkStep(NamedTuple):
    """A step of a network on one rank."""

    # network, plan: what is run, and how
    network: NeuralNetwork
    plan: NetworkPlan
    works: Sequence[LayerWork]  # the work of each layer
    buckets: Sequence[Bucket]  # of gradients
    # shares, widest: what the rank has of the tables of each layer whose tables are shared, and the
    # most columns that a rank has of them
    shares: Mapping[int, TableShare]
    widest: Mapping[int, int]

    @property
    def tensors(self) -> NetworkTensors:
        """What rows read and give."""
        return NetworkTensors(self.network, self.plan, self.works)


def step_of(
    network: NeuralNetwork,
    plan: NetworkPlan,
    shares: Mapping[int, TableShare],
    widest: Mapping[int, int],
) -> NetworkStep:
    """Return a step with the work of its layers."""
    size = StepSize(plan.batch, plan.itemsize, plan.gradient_itemsize, plan.dtype)
    works = [work_of_layer(one.kind, one.inputs, one.output, size) for one in network.layers]
    return NetworkStep(network, plan, works, buckets_of(network, plan), shares, widest)


def step_rows(step: NetworkStep) -> list[list[Row]]:
    """Return the rows of the forward and, in training, of the backward and the optimizer."""
    if step.plan.inference:
        return [_forward(step)]
    return [_forward(step), _backward(step), _optimizer(step)]


class _Gathers:
    """Gathers sharded weights bucket by bucket, one bucket ahead of its use."""

    def __init__(self, step: NetworkStep, rows: RowList, order: Sequence[int]) -> None:
        self.step, self.rows = step, rows
        self.order = order if step.plan.zero == 3 and step.plan.ranks > 1 else []
        self.buckets = [step.buckets[number] for number in self.order]
        self.made: list[int] = []
        self.used = 0

    def before(self, layer: int) -> None:
        """Let the next computation, of a layer, wait for its weights."""
        own = self.step.network.layers[layer].weights
        layer = layer if own < 0 else own
        last = max((n for n, one in enumerate(self.buckets) if layer in one.layers), default=-1)
        if last < self.used:
            return
        self._gather(last + 2)
        self.rows.await_all(self.made[self.used : last + 1])
        self.used = last + 1

    def _gather(self, count: int) -> None:
        for number in range(len(self.made), min(count, len(self.buckets))):
            bucket = self.buckets[number]
            part = -(-bucket.elements * self.step.plan.itemsize // self.step.plan.ranks)
            name, after = f"bucket{self.order[number]}.weights.all_gather", self.rows.computed
            gather = self.rows.collective(
                name, -1, "dp", "all_gather", part, after=after, is_awaited=False
            )
            self.made.append(gather)


def _forward(step: NetworkStep) -> list[Row]:
    network, plan = step.network, step.plan
    rows = RowList("forward")
    if plan.ranks > 1 and not plan.inference:
        _broadcast_buffers(network, rows)
    gathers = _Gathers(step, rows, range(len(step.buckets))[::-1])
    arriving: dict[int, int] = {}  # layers whose output is being exchanged
    for number, layer in enumerate(network.layers):
        if isinstance(layer.kind, Loss) and plan.inference:
            continue
        if layer.is_spread:
            _look_up(step, rows, number, arriving)
            continue
        waits = [arriving[source] for source in layer.sources if source in arriving]
        if layer.kind.is_view and waits:
            arriving[number] = waits[0]
        work = step.works[number].forward
        if work is not None:
            gathers.before(number)
            rows.await_all(waits)
            rows.compute(layer.name, layer.number, work, step.tensors.forward(number))
    return rows.rows


def _broadcast_buffers(network: NeuralNetwork, rows: RowList) -> None:
    """Send the running means, variances and counters of batch norms from rank 0 to all."""
    statistics, counters = 0, 0
    for layer in network.layers:
        if isinstance(layer.kind, Norm):
            of_statistics, of_counter = layer.kind.buffers(layer.inputs)
            statistics, counters = statistics + of_statistics, counters + of_counter
    for what, size in (("statistics", statistics), ("counters", counters)):
        if size:
            name = f"buffers.{what}.broadcast"
            number = rows.collective(name, -1, "dp", "broadcast", size, after=BEFORE)
            rows.rows[number] = rows.rows[number]._replace(peer=0)


def _look_up(step: NetworkStep, rows: RowList, number: int, arriving: dict[int, int]) -> None:
    """Exchange indices, look up what all ranks need in own tables, and exchange that."""
    layer, share, plan = step.network.layers[number], step.shares[number], step.plan
    if plan.ranks > 1 and isinstance(layer.kind, EmbeddingBag):
        size = plan.batch * sum(layer.kind.of_tables) * _INDEX
        rows.collective(f"{layer.name}.indices.all_to_all", layer.number, "tables", "all_to_all",
                        size, step.tensors.indices(number, share), after=BEFORE)  # fmt: skip
    summed = plan.samples * (share.elements - share.columns)
    moved = plan.samples * (
        (share.elements + share.columns) * plan.itemsize + share.lookups * _INDEX
    )
    work = Work("embedding", summed, moved, dtype=plan.dtype)
    rows.compute(layer.name, layer.number, work, step.tensors.looked_up(number, share))
    found = exchange(Layout.FEATURES, Layout.TOKENS, _exchanged(step, number), plan.ranks)
    if found is not None:
        arriving[number] = rows.collective(
            f"{layer.name}.all_to_all", layer.number, "tables", *found,
            step.tensors.exchanged(number, share), is_awaited=False,
        )  # fmt: skip


def _exchanged(step: NetworkStep, number: int) -> int:
    """Return the bytes that all ranks exchange if each has as much of the tables as any.

    An exchange takes as long as the rank needs that sends or receives most.
    """
    plan = step.plan
    return plan.ranks * plan.samples * step.widest[number] * plan.itemsize


def _backward(step: NetworkStep) -> list[Row]:
    network = step.network
    rows = RowList("backward")
    gathers = _Gathers(step, rows, range(len(step.buckets)))
    first_use = _first_uses(network)
    arriving: dict[int, int] = {}
    for number in reversed(range(len(network.layers))):
        layer, work = network.layers[number], step.works[number]
        if not network.is_trained[number]:
            continue
        _sum_gradients(step, rows, number)
        if layer.is_spread:
            _update_tables(step, rows, number, arriving)
            continue
        gathers.before(number)
        if work.input_gradient and any(network.is_trained[n] for n in layer.sources if n >= 0):
            rows.compute(f"{layer.name}.input_gradient", layer.number, work.input_gradient,
                         step.tensors.input_gradient(number, work))  # fmt: skip
        for table in first_use.get(number, ()):
            _exchange_gradients(step, rows, table, arriving)
        if layer.has_weights and work.weight_gradient:
            rows.compute(f"{layer.name}.weight_gradient", layer.number, work.weight_gradient,
                         step.tensors.weight_gradient(number))  # fmt: skip
        _reduce(step, rows, number)
    return rows.rows


def _first_uses(network: NeuralNetwork) -> dict[int, list[int]]:
    """Return the layers with whose backward the gradients of shared tables are complete."""
    found: dict[int, list[int]] = {}
    for number, layer in enumerate(network.layers):
        if layer.is_spread:
            users = [number]
            while users and (users[0] == number or network.layers[users[0]].kind.is_view):
                users = sorted([*users[1:], *network.uses[users[0]]])
            if users:
                found.setdefault(users[0], []).append(number)
    return found


def _sum_gradients(step: NetworkStep, rows: RowList, number: int) -> None:
    """Add the gradients of what several layers take, or join those of its parts."""
    layer, plan = step.network.layers[number], step.plan
    users = [step.network.layers[user] for user in step.network.uses[number]]
    elements = plan.batch * layer.output.elements
    if any(isinstance(user.kind, Slice) for user in users):
        work = Work("copy", 0, 2 * elements * plan.itemsize, dtype=plan.dtype)
    elif len(users) > 1:
        sums = (len(users) - 1) * elements
        work = Work("add", sums, 3 * sums * plan.itemsize, dtype=plan.dtype)
    else:
        return
    rows.compute(f"{layer.name}.gradient_sum", layer.number, work, step.tensors.summed(number))


def _exchange_gradients(
    step: NetworkStep, rows: RowList, number: int, arriving: dict[int, int]
) -> None:
    """Send the gradients of embeddings to the ranks that have their tables."""
    layer, plan = step.network.layers[number], step.plan
    found = exchange(Layout.TOKENS, Layout.FEATURES, _exchanged(step, number), plan.ranks)
    if found is not None:
        name = f"{layer.name}.gradients.all_to_all"
        arriving[number] = rows.collective(
            name, layer.number, "tables", *found,
            step.tensors.returned(number, step.shares[number]),
            after=rows.computed, is_awaited=False,
        )  # fmt: skip


def _update_tables(step: NetworkStep, rows: RowList, number: int, arriving: dict[int, int]) -> None:
    """Update the rows that were looked up, in place, with a float32 of state for each."""
    layer, share, plan = step.network.layers[number], step.shares[number], step.plan
    rows.await_all([arriving[number]] if number in arriving else [])
    elements, given = plan.samples * share.elements, plan.samples * share.columns
    moved = (2 * elements + given) * plan.itemsize
    moved += plan.samples * share.lookups * (_INDEX + 2 * _F32)
    work = Work("embedding", 4 * elements, moved, dtype=plan.dtype)
    operands = step.tensors.updated_rows(number, share)
    rows.compute(f"{layer.name}.weight_gradient", layer.number, work, operands)


def _reduce(step: NetworkStep, rows: RowList, layer: int) -> None:
    """Reduce the gradients of the buckets that a layer completes."""
    plan = step.plan
    needed = Layout.WHOLE if plan.zero == 0 else Layout.PARTS
    for number, bucket in enumerate(step.buckets):
        if bucket.layers[-1] != layer:
            continue
        size = bucket.elements * plan.gradient_itemsize
        found = exchange(Layout.PARTIAL, needed, size, plan.ranks)
        if found is not None:
            name = f"bucket{number}.gradients.{found.comm_type}"
            of_layer = step.network.layers[layer].number
            rows.collective(name, of_layer, "dp", *found, step.tensors.reduced(bucket),
                            after=rows.computed, is_awaited=False)  # fmt: skip


def _optimizer(step: NetworkStep) -> list[Row]:
    plan = step.plan
    rows = RowList("optimizer")
    count = sum(bucket.elements for bucket in step.buckets)
    own = -(-count // plan.ranks) if plan.zero else count
    work = adam_work(own, plan.gradient_itemsize, plan.itemsize)
    rows.compute("optimizer", -1, work, step.tensors.updated())
    if plan.zero in (1, 2) and plan.ranks > 1:
        for number, bucket in enumerate(step.buckets[::-1]):
            part = -(-bucket.elements * plan.itemsize // plan.ranks)
            rows.collective(
                f"bucket{len(step.buckets) - 1 - number}.weights.all_gather", -1, "dp",
                "all_gather", part, after=rows.computed, is_awaited=False,
            )  # fmt: skip
    return rows.rows
