"""The tensors of a chunk: what each operation reads and gives, and the collectives between them.

A tensor goes from the operation that gives it to those that read it (``Piece.reads``). How ranks
hold it goes with it; so the collective before an operation follows from who gave what it reads, and
not from what comes before it in the program. Gradients go the other way.

The tensors of a stage that live all the step: weights, gradients, optimizer state, KV cache.

As in Megatron-LM and FSDP, the weights of a layer are one buffer, and so are its gradients, each
for dense weights and for experts apart: what is reduced or gathered at once lies together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple, TypeAlias

from nadi.models.job_rows import BEFORE, Layout, Link, Operand, RowList, RowOperands, exchange
from nadi.models.llm.language_model import LanguageModel
from nadi.models.llm.layer_pieces import Piece
from nadi.models.llm.parallel_plan import ParallelPlan
from nadi.trace.operations import ITEMSIZE

_STATE = ("weights", "first_moment", "second_moment")  # of the optimizer, in float32


def activation_dtype(plan: ParallelPlan) -> str:
    """Return the type of activations and weights: bfloat16 beside an 8-bit float."""
    return "bfloat16" if ITEMSIZE[plan.dtype] == 1 else plan.dtype


def group_size(plan: ParallelPlan, role: str) -> int:
    """Return the number of ranks that share gradients: of dense weights, or of experts."""
    if role == "dp":
        return plan.dp * plan.cp
    return plan.tp * plan.cp * plan.dp // (plan.ep * plan.expert_tp)


def layer_name(layer: int, pieces: Sequence[Piece]) -> str:
    """Return the name of a layer, or of the embedding or the head."""
    return f"layers.{layer}" if layer >= 0 else pieces[0].name.partition(".")[0]


def cache_width(model: LanguageModel, plan: ParallelPlan) -> int:
    """Return the elements that a token has in the KV cache of a layer on one rank."""
    if model.mla is not None:  # the compressed ones, on all tensor parallel ranks
        return model.mla.kv_lora_rank + model.mla.qk_rope_head_dim
    return 2 * max(model.kv_heads // plan.tp, 1) * model.head_dim


class _Place(NamedTuple):
    """Where the parameters of a piece lie in the buffer of its layer."""

    layer: str
    role: str
    first: int
    size: int
    trained: int  # where it lies in the buffer of gradients, -1 if it has none


class LastingTensors:
    """The buffers of a stage, and the parts of them that its operations use.

    Parameters
    ----------
    layers
        Each layer's number and pieces, of all chunks of the stage.
    """

    def __init__(
        self, model: LanguageModel, plan: ParallelPlan,
        layers: Iterable[tuple[int, Sequence[Piece]]],
    ) -> None:  # fmt: skip
        self.model, self.plan = model, plan
        self.dtype = activation_dtype(plan)
        self._counts: dict[tuple[str, str], int] = {}
        self._trained: dict[tuple[str, str], int] = {}  # of these, those with gradients
        self._places: dict[tuple[str, str], _Place] = {}
        for layer, pieces in layers:
            name = layer_name(layer, pieces)
            for piece in pieces:
                role = "edp" if piece.expert_weight else "dp"
                first = self._counts.get((name, role), 0)
                count = piece.weight + piece.expert_weight
                trained = self._trained.get((name, role), 0)
                place = -1 if piece.is_frozen else trained
                self._places[name, piece.name] = _Place(name, role, first, count, place)
                if count:
                    self._counts[name, role] = first + count
                if count and not piece.is_frozen:
                    self._trained[name, role] = trained + count

    def shards(self, role: str, from_stage: int) -> int:
        """Return how many ranks share what ZeRO shards from a stage on."""
        return group_size(self.plan, role) if self.plan.zero >= from_stage else 1

    def weights(self, layer: str, role: str) -> Operand:
        """Return the buffer of a layer's weights, or this rank's part of it."""
        return self._buffer(self._counts, (layer, role), "weights", self.dtype, 3)

    def gradients(self, layer: str, role: str) -> Operand:
        """Return the buffer of a layer's reduced gradients, or this rank's part of it."""
        return self._buffer(
            self._trained, (layer, role), "gradients", self.plan.gradient_dtype, 2
        )  # fmt: skip

    def _buffer(
        self, counts: dict[tuple[str, str], int], key: tuple[str, str], what: str, dtype: str,
        from_stage: int,
    ) -> Operand:  # fmt: skip
        layer, role = key
        count = -(-counts[key] // self.shards(role, from_stage))
        part = ".part" if self.shards(role, from_stage) > 1 else ""
        return Operand(f"{layer}.{role}.{what}{part}", (count,), dtype, 0, True, what)

    def gathered(self, layer: str, role: str, phase: str) -> Operand:
        """Return the buffer of a layer's whole weights: where ZeRO-3 gathers them, one per use."""
        own = self.weights(layer, role)
        if self.shards(role, 3) == 1:
            return own
        name = f"{layer}.{role}.weights.{phase}"
        return own._replace(storage=name, shape=(self._counts[layer, role],), lasts=False)

    def summed(self, layer: str, role: str) -> Operand:
        """Return the buffer in which a layer's whole gradients are summed.

        Of one micro-batch where they are reduced after each, and else of the step.
        """
        own = self.gradients(layer, role)
        if self.shards(role, 2) == 1:
            return own
        of_step = self.plan.zero == 2 and self.plan.micro_batches > 1
        shape = (self._trained[layer, role],)
        return own._replace(storage=f"{layer}.{role}.gradients", shape=shape, lasts=of_step)

    def gather(self, layer: str, role: str, phase: str) -> RowOperands:
        """Return what a gathering of weights reads and gives."""
        own, whole = self.weights(layer, role), self.gathered(layer, role, phase)
        if own.storage != whole.storage:
            return RowOperands((own,), (whole,))
        whole = whole._replace(shape=(self._trained[layer, role],))  # after an update
        part = -(-whole.shape[0] // group_size(self.plan, role))
        return RowOperands((whole._replace(shape=(part,)),), (whole,))

    def reduce(self, layer: str, role: str) -> RowOperands:
        """Return what a reduction of gradients reads and gives."""
        whole, own = self.summed(layer, role), self.gradients(layer, role)
        if own.storage != whole.storage:
            return RowOperands((whole, own), (own,))
        parts = group_size(self.plan, role) if self.plan.zero else 1
        return RowOperands((whole,), (whole._replace(shape=(-(-whole.shape[0] // parts),)),))

    def read_weights(self, layer: str, piece: Piece, phase: str) -> tuple[Operand, ...]:
        """Return the weights that a piece reads: a matrix first, then biases."""
        place = self._place(layer, piece)
        if place is None:
            return ()
        buffer = self.gathered(place.layer, place.role, phase)
        if place.layer != layer and not buffer.lasts:
            buffer = self.gathered(place.layer, place.role, "forward")
        return tuple(_parts(buffer, place, piece))

    def written_gradient(self, layer: str, piece: Piece) -> Operand | None:
        """Return where the gradient of a piece's weights is summed."""
        place = self._place(layer, piece)
        if place is None or place.trained < 0:
            return None
        buffer = self.summed(place.layer, place.role)
        return buffer._replace(shape=(place.size,), offset=place.trained)

    def _place(self, layer: str, piece: Piece) -> _Place | None:
        """Return where a piece's parameters lie; of a tied head, the embedding's table."""
        place = self._places[layer, piece.name]
        if place.size:
            return place
        table = self._places.get(("embedding", "embedding"))
        if piece.name != "head.logits" or table is None:
            return None
        rows = -(-self.model.vocab // self.plan.tp)
        return table._replace(size=rows * self.model.hidden)

    def state(self) -> Iterator[Operand]:
        """Yield the state of the optimizer: this rank's part of the whole stage's."""
        for role in ("dp", "edp"):
            count = sum(size for (_, of_role), size in self._trained.items() if of_role == role)
            part = -(-count // self.shards(role, 1))
            for what in _STATE if part else ():
                yield Operand(f"optimizer.{role}.{what}", (part,), "float32", 0, True, "optimizer")

    def buffers(self) -> Iterator[tuple[Operand, Operand]]:
        """Yield the weights and reduced gradients of each layer."""
        for layer, role in self._trained:
            yield self.weights(layer, role), self.gradients(layer, role)

    def updated(self) -> Iterator[tuple[Operand, Operand]]:
        """Yield the weights and gradients of each layer that this rank has the state of."""
        for layer, role in self._trained:
            weights = self.weights(layer, role)
            if self.plan.zero:
                weights = self.gather(layer, role, "optimizer").inputs[0]
            yield weights, self.reduce(layer, role).outputs[0]

    def cache(self, layer: str) -> Operand:
        """Return the KV cache of a layer, of all sequences of a step after their prefix."""
        plan = self.plan
        sequences = plan.global_batch // plan.dp
        width = cache_width(self.model, plan)
        shape = (sequences, plan.suffix // plan.cp, width)
        return Operand(f"{layer}.cache", shape, self.dtype, 0, True, "kv")

    def written_cache(self, layer: str) -> Operand:
        """Return a part of the cache that is as large as what a micro-batch adds to it."""
        plan, cache = self.plan, self.cache(layer)
        return cache._replace(shape=(plan.tokens, cache.shape[-1]))

    def prefix(self, layer: str) -> tuple[Operand, ...]:
        """Return the keys and values of the prefix that all sequences share, if they do."""
        shape = (self.plan.prefix, cache_width(self.model, self.plan))
        one = Operand(f"{layer}.prefix", shape, self.dtype, 0, True, "prefix")
        return (one,) if self.plan.prefix else ()


def _parts(buffer: Operand, place: _Place, piece: Piece) -> Iterator[Operand]:
    """Yield the matrices of a piece, in the order of their sizes in its product, and the rest."""
    matrix: tuple[int, ...] = ()
    if piece.forward is not None and piece.forward.op_class == "gemm":
        batch, _, n, k = piece.forward.shape
        matrix = (batch, n, k) if batch > 1 else (n, k)
    size = prod(matrix) if matrix else 0
    if size:
        yield buffer._replace(shape=matrix, offset=place.first)
    if place.size > size:
        yield buffer._replace(shape=(place.size - size,), offset=place.first + size)


Layers: TypeAlias = tuple[tuple[int, tuple[Piece, ...]], ...]
_Key: TypeAlias = tuple[str, str]  # of an output: name of the layer, and of the piece in it
_INPUT: _Key = ("", "")  # what the chunk gets from the one before it


def between(plan: ParallelPlan) -> Layout:
    """Return how tensor parallel ranks hold the residual stream."""
    return Layout.TOKENS if plan.sequence_parallel and plan.tp > 1 else Layout.WHOLE


def piece_name(layer: int, piece: Piece) -> str:
    """Return the name of an operation in the model."""
    return piece.name if layer < 0 else f"layers.{layer}.{piece.name}"


class _Value(NamedTuple):
    """A tensor between operations."""

    # operand, layouts: it, and how the ranks of each axis hold it
    operand: Operand
    layouts: Mapping[str, Layout]
    row: int = BEFORE  # that made it, in the list that is being made
    # of a gradient, whether its layouts are those of an operation's first input, which they are
    # about
    is_certain: bool = True
    # of a gradient, parts of it in the layout that is needed, which are added where it is read
    others: tuple[Operand, ...] = ()

    @property
    def parts(self) -> tuple[Operand, ...]:
        """All that is read."""
        return self.operand, *self.others


class ChunkTensors:
    """Follows the tensors of a chunk through its forward and its backward, and adds their rows.

    The rows of the forward are made first. Those of the backward know from them what was read.

    Parameters
    ----------
    layers
        Of the chunk.
    lasting
        Tensors of the stage.
    before
        The chunk before this one, if it is on the same stage.
    """

    def __init__(
        self, model: LanguageModel, plan: ParallelPlan, layers: Layers, lasting: LastingTensors,
        before: ChunkTensors | None = None,
    ) -> None:  # fmt: skip
        self.plan, self.layers, self.lasting, self._before = plan, layers, lasting, before
        self._dtype = activation_dtype(plan)
        self._initial = {"tp": between(plan), "cp": Layout.TOKENS, "ep": Layout.TOKENS}
        self._ranks = {"tp": plan.tp, "cp": plan.cp, "ep": plan.ep}
        parts = plan.tp if between(plan) is Layout.TOKENS else 1
        self._stream = (plan.tokens // parts, model.hidden)
        self._place = f"chunk.{max(layers[0][0], 0)}"  # by the first layer
        self._pieces: dict[_Key, tuple[int, Piece]] = {}
        self._sources: dict[_Key, tuple[_Key, ...]] = {}
        self._last = _INPUT
        for layer, pieces in layers:
            self._add_layer(layer, pieces)
        self._values: dict[_Key, _Value] = {}
        self._again: dict[_Key, _Value] = {}  # what is computed anew for the backward
        self._read: dict[_Key, tuple[Operand, ...]] = {}
        self._own: dict[_Key, Operand] = {}  # the first of them before it was gathered
        self._copies: dict[_Key, Operand] = {}
        self._gradients: dict[_Key, _Value] = {}
        self._gathered: dict[_Key, Operand] = {}
        self._begun: set[str] = set()  # storages that the list being made gives first

    def _add_layer(self, layer: int, pieces: tuple[Piece, ...]) -> None:
        name, entered = layer_name(layer, pieces), self._last
        for piece in pieces:
            key = (name, piece.name)
            names = [entered if one == "" else (name, one) for one in piece.reads]
            self._sources[key] = tuple(names or [self._last])
            self._pieces[key] = layer, piece
            self._last = key

    @property
    def output(self) -> Operand:
        """What the chunk gives to the next one."""
        return self._values[self._last].operand

    # forward

    def begin_forward(self, rows: RowList, source: Link | None, size: int) -> None:
        """Begin the list of the forward, with what comes from the chunk before."""
        self._values, self._again, self._begun = {}, {}, set()
        operand = Operand(f"{self._place}.tokens", (self.plan.tokens,), "int64")
        if source is not None:
            operand = Operand(f"{self._place}.received", self._stream, self._dtype)
            rows.receive("receive_activations", source, size, operand)
        elif self._before is not None:
            operand = self._before.output
        self._values[_INPUT] = _Value(operand, self._initial, len(rows.rows) - 1)

    def forward(self, rows: RowList, layer: int, piece: Piece, *, exchanges: bool = True) -> int:
        """Add the collectives before an operation, and the operation; returns its row.

        -1 if there is nothing to compute. Where the core of attention is computed anew, what it
        reads is there in the right layout: ``exchanges`` is False.
        """
        key = self._key(layer, piece)
        sources = self._sources[key]
        values = [self._value(source) for source in sources]
        first = values[0]
        name = piece_name(layer, piece)
        self._own[key] = first.operand
        for way in piece.ways if exchanges else ():
            first, is_sum = self._bring(rows, name, layer, first, way.axis, way.needs, way.size)
            if is_sum:  # which all who read it need
                self._store(rows, sources[0], first)
                self._own[key] = first.operand
        layouts = {**first.layouts, **{way.axis: way.gives for way in piece.ways}}
        if piece.forward is None:
            self._store(rows, key, first._replace(layouts=layouts))
            return BEFORE
        read = (first.operand, *(value.operand for value in values[1:]))
        self._read[key] = read
        out, operands = self._forward_operands(rows, key, piece, read)
        number = rows.compute(name, layer, piece.forward, operands)
        self._store(rows, key, _Value(out, layouts, number))
        return number

    def _forward_operands(
        self, rows: RowList, key: _Key, piece: Piece, read: tuple[Operand, ...]
    ) -> tuple[Operand, RowOperands]:
        """Return what an operation gives to the next ones, and all that it reads and gives."""
        work, name = piece.forward, f"{key[0]}.{piece.name}{_again(rows)}"
        assert work is not None
        dtype = "float32" if work.op_class == "cross_entropy" else self._dtype
        out = Operand(name, piece.gives or read[0].shape, dtype)
        given = [out]
        if work.op_class == "rope":  # which rotates in place what it does not copy
            out = read[0] if not piece.gives else out
            given = [out, *read[1:]]
        if piece.copies:
            self._copies[key] = Operand(f"{name}.float32", (piece.copies,), "float32")
            given.append(self._copies[key])
        inputs = [*read, *self.lasting.read_weights(key[0], piece, _phase(rows))]
        if self.plan.inference and piece.name in ("attention.core", "attention.scores"):
            inputs += [self.lasting.cache(key[0]), *self.lasting.prefix(key[0])]
            given.append(self.lasting.written_cache(key[0]))
        return out, _once(inputs, given)

    def end_embedding(self, rows: RowList, size: int) -> None:
        """Sum what tensor parallel ranks looked up, for all that read it."""
        key = ("embedding", "embedding")
        value, _ = self._bring(
            rows, "embedding", -1, self._values[key], "tp", between(self.plan), size
        )
        self._values[key] = value

    def sum_loss(self, rows: RowList, layer: int) -> None:
        """Add the sums of the loss over the vocabulary: largest logit, label's logit, and sum."""
        tokens = self.plan.tokens
        found = self._values["head", "head.loss"].operand
        for place, what in enumerate(("largest", "label", "sum")):
            part = found._replace(shape=(tokens,), offset=place * tokens)
            rows.collective(
                f"head.loss.{what}.all_reduce", layer, "tp", "all_reduce", 4 * tokens,
                RowOperands((part,), (part,)),
            )  # fmt: skip

    def end_forward(self, rows: RowList, destination: Link | None, size: int) -> None:
        """End the list of the forward by sending what the chunk gives."""
        if destination is not None:
            rows.send("send_activations", destination, size, self.output)

    # backward

    def begin_backward(
        self, rows: RowList, source: Link | None, size: int, *, is_last: bool
    ) -> None:
        """Begin a list of the backward, with the gradient of what the chunk gave.

        The chunk that ``is_last`` has the loss, and gets none.
        """
        self._again, self._gradients, self._gathered, self._begun = {}, {}, {}, set()
        self._values = {key: one._replace(row=BEFORE) for key, one in self._values.items()}
        if is_last:
            return
        operand = Operand(f"{self.output.storage}.gradient", self._stream, self._dtype)
        if source is not None:
            operand = operand._replace(storage=f"{self._place}.received.gradient")
            rows.receive("receive_gradients", source, size, operand)
        self._gradients[self._last] = _Value(operand, self._initial, len(rows.rows) - 1)

    def begin_weight_gradients(self) -> None:
        """Begin a list of gradients of weights, which knows those of outputs from the other one."""
        self._begun = set()

    def gather_input(self, rows: RowList, layer: int, piece: Piece) -> int:
        """Gather the input of an operation once more, for the gradient of its weights."""
        key, name = self._key(layer, piece), piece_name(layer, piece)
        part = self._own[key]
        elements = piece.gathered_again // ITEMSIZE[part.dtype]
        width = part.shape[-1]
        whole = Operand(f"{name}.input.all_gather", (elements // width, width), part.dtype)
        self._gathered[key] = whole
        return rows.collective(
            whole.storage, layer, "tp", "all_gather", piece.gathered_again // self.plan.tp,
            RowOperands((part,), (whole,)), is_awaited=False,
        )  # fmt: skip

    def input_gradient(self, rows: RowList, layer: int, piece: Piece) -> None:
        """Add the collectives before the gradient of an operation's inputs, and the gradient."""
        key, name = self._key(layer, piece), piece_name(layer, piece)
        gradient = self._gradients.get(key)
        layouts: Mapping[str, Layout] = self._initial
        if gradient is not None:
            # of keys and values, which are a part of what others read, too
            known = self._gradients.get(self._sources[key][0]) if piece.forward is None else None
            gradient = self._bring_gradient(rows, key, gradient, known)
            self._gradients[key] = gradient
            layouts = gradient.layouts
        given = {**layouts, **{way.axis: way.gradient_gives for way in piece.ways}}
        if piece.forward is None:
            assert gradient is not None
            self._gradients[self._sources[key][0]] = gradient._replace(layouts=given)
            return
        if piece.input_gradient is None:
            return
        operands, given_values = self._input_gradient_operands(rows, key, gradient, given)
        number = rows.compute(f"{name}.input_gradient", layer, piece.input_gradient, operands)
        for source, value in given_values.items():
            self._gradients[source] = value._replace(row=number)

    def _input_gradient_operands(
        self, rows: RowList, key: _Key, gradient: _Value | None, layouts: Mapping[str, Layout]
    ) -> tuple[RowOperands, dict[_Key, _Value]]:
        """Return what the gradient of inputs reads and gives, and the gradient of each source."""
        _, piece = self._pieces[key]
        assert piece.forward is not None
        inputs = [] if gradient is None else list(gradient.parts)
        outputs: list[Operand] = []
        found: dict[_Key, _Value] = {}
        sources, summed = self._sources[key], set[str]()
        for place, (source, read) in enumerate(zip(sources, self._read[key], strict=True)):
            is_first = place == 0
            own = layouts if is_first or gradient is None else gradient.layouts
            if gradient is not None and _is_passed(piece, place, len(sources)):
                found[source] = gradient._replace(layouts=own)
                outputs += [gradient.operand] if piece.forward.op_class == "rope" else []
                continue
            value = self._summed(rows, source, read, own, is_certain=is_first)
            if value.operand.storage in self._begun:
                inputs.append(value.operand)
            summed.add(value.operand.storage)
            outputs.append(value.operand)
            found[source] = value
        self._begun |= summed
        inputs += self._kept(key, piece)
        inputs += self.lasting.read_weights(key[0], piece, "backward")
        if piece.weight_gradient is None:
            self._add_weight_gradient(key, piece, inputs, outputs)
        return _once(inputs, outputs), found

    def _summed(
        self, rows: RowList, source: _Key, read: Operand, layouts: Mapping[str, Layout], *,
        is_certain: bool,
    ) -> _Value:  # fmt: skip
        """Return where a gradient is written, or added to that which others gave before."""
        known = self._gradients.get(source)
        if known is None:
            operand = Operand(f"{read.storage}.gradient", read.shape, read.dtype)
            return _Value(operand, layouts, is_certain=is_certain)
        if known.is_certain and is_certain and known.layouts != layouts:
            known = self._bring_gradient(rows, source, known)
            if known.layouts != layouts:  # and so will the new one be brought
                operand = Operand(f"{read.storage}.gradient", read.shape, read.dtype)
                return _Value(operand, layouts, others=known.parts)
        if known.is_certain and not is_certain:
            layouts = known.layouts
        is_certain = known.is_certain or is_certain
        return known._replace(layouts=layouts, is_certain=is_certain)

    def _kept(self, key: _Key, piece: Piece) -> list[Operand]:
        """Return what the gradient of inputs needs of the forward."""
        assert piece.forward is not None
        kind = piece.forward.op_class
        copies = [self._copies[key]] if piece.copies else []
        if kind in ("norm", "activation"):
            return [self._read[key][0]]
        if kind == "softmax":
            return [self._value(key).operand]
        if kind == "attention":
            return [*self._read[key], self._value(key).operand, *copies]
        # of two activations
        is_product = kind == "gemm" and piece.weight_gradient is None and not piece.is_frozen
        if is_product or (kind == "permute" and len(self._read[key]) > 1):
            return list(self._read[key])
        return copies

    def weight_gradient(
        self, rows: RowList, layer: int, piece: Piece, *, is_passed_on: bool
    ) -> None:
        """Add the gradient of an operation's weights."""
        assert piece.weight_gradient is not None
        key, name = self._key(layer, piece), piece_name(layer, piece)
        gradient, read = self._gradients[key], self._read[key][0]
        inputs = [*gradient.parts, self._gathered.get(key, read)]
        outputs: list[Operand] = []
        self._add_weight_gradient(key, piece, inputs, outputs)
        rows.compute(
            f"{name}.weight_gradient", layer, piece.weight_gradient,
            RowOperands(tuple(inputs), tuple(outputs)), is_passed_on=is_passed_on,
        )  # fmt: skip

    def _add_weight_gradient(
        self, key: _Key, piece: Piece, inputs: list[Operand], outputs: list[Operand]
    ) -> None:
        """Add the sum of a gradient, which is there before unless it is of this micro-batch."""
        written = self.lasting.written_gradient(key[0], piece)
        if written is None:
            return
        if written.lasts or written.storage in self._begun:
            inputs.append(written)
        self._begun.add(written.storage)
        outputs.append(written)

    def end_backward(self, rows: RowList, destination: Link | None, size: int, whole: int) -> None:
        """End a list of the backward by sending the gradient of what the chunk got."""
        if destination is not None:
            value, _ = self._bring(
                rows, "gradients", -1, self._gradients[_INPUT], "tp", between(self.plan), whole
            )
            rows.send("send_gradients", destination, size, value.operand)

    # both

    def _key(self, layer: int, piece: Piece) -> _Key:
        name = f"layers.{layer}" if layer >= 0 else piece.name.partition(".")[0]
        return name, piece.name

    def _value(self, key: _Key) -> _Value:
        return self._again.get(key) or self._values[key]

    def _store(self, rows: RowList, key: _Key, value: _Value) -> None:
        (self._values if rows.phase == "forward" else self._again)[key] = value

    def _bring_gradient(
        self, rows: RowList, key: _Key, gradient: _Value, into: _Value | None = None
    ) -> _Value:
        """Bring the gradient of an operation's output into the layout that its backward needs.

        ``into`` is one that has a place for it.
        """
        if key == _INPUT:
            return gradient
        layer, piece = self._pieces[key]
        for way in piece.ways:
            gradient, _ = self._bring(
                rows, piece_name(layer, piece), layer, gradient, way.axis, way.gradient_needs,
                way.gradient_size, into,
            )  # fmt: skip
        return gradient

    def _bring(
        self, rows: RowList, name: str, layer: int, value: _Value, axis: str, needed: Layout,
        size: int, into: _Value | None = None,
    ) -> tuple[_Value, bool]:  # fmt: skip
        """Add the collective that brings a tensor into a layout; also return whether it sums.

        ``size`` is that of the whole tensor.
        """
        ranks = self._ranks[axis]
        found = exchange(value.layouts[axis], needed, size, ranks)
        layouts = {**value.layouts, axis: needed}
        if found is None:
            return value._replace(layouts=layouts), False
        itemsize = ITEMSIZE[value.operand.dtype]
        given = _part(value.operand, found.bytes // itemsize)
        made = given
        if found.comm_type != "all_reduce":
            times = {"all_gather": (ranks, 1), "reduce_scatter": (1, ranks)}
            up, down = times.get(found.comm_type, (1, 1))
            kind = ".gradient" if rows.phase == "backward" else _again(rows)
            storage = f"{name}.{axis}.{found.comm_type}{kind}"
            shape = _resized(given.shape, up, down)
            made = Operand(storage, shape, given.dtype)
        operands = RowOperands((given,), (made,))
        if into is not None:
            part = _part(into.operand, prod(made.shape))
            made, operands = into.operand, RowOperands((given, part), (part,))
        number = rows.collective(
            f"{name}.{found.comm_type}", layer, axis, *found, operands,
            after=None if value.row < 0 else value.row,
        )  # fmt: skip
        is_sum = found.comm_type in ("all_reduce", "reduce_scatter")
        return value._replace(operand=made, layouts=layouts, row=number), is_sum


def _is_passed(piece: Piece, place: int, sources: int) -> bool:
    """Return whether the gradient of an input is that of the output, which is not copied."""
    assert piece.forward is not None
    if piece.forward.op_class == "add":  # but for the stream, to which more is added
        return place < sources - 1
    return piece.forward.op_class == "rope" and place == 0 and not piece.gives


def _once(inputs: Iterable[Operand], outputs: Iterable[Operand]) -> RowOperands:
    return RowOperands(tuple(dict.fromkeys(inputs)), tuple(dict.fromkeys(outputs)))


def _phase(rows: RowList) -> str:
    """Return for which use weights are gathered: what is computed anew uses the backward's."""
    return "forward" if rows.phase == "forward" else "backward"


def _again(rows: RowList) -> str:
    return " again" if rows.phase == "recompute" else ""


def _part(operand: Operand, elements: int) -> Operand:
    """Return the end of a tensor, of which only a part is exchanged: keys and values."""
    whole = prod(operand.shape)
    if elements >= whole:
        return operand
    return operand._replace(shape=(elements,), offset=operand.offset + whole - elements)


def _resized(shape: tuple[int, ...], up: int, down: int) -> tuple[int, ...]:
    """Return a shape with more or fewer rows; flat, if rows cannot be shared equally."""
    if shape[0] * up % down == 0:
        return (shape[0] * up // down, *shape[1:])
    return (-(-prod(shape) * up // down),)
