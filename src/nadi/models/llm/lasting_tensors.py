"""The tensors of a stage that live all the step: weights, gradients, optimizer state, KV cache.

As in Megatron-LM and FSDP, the weights of a layer are one buffer, and so are its gradients, each
for dense weights and for experts apart: what is reduced or gathered at once lies together.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import NamedTuple

from nadi.models.job_rows import Operand, RowOperands
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
