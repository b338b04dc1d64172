"""The operations of a model's layers: work forward and backward, layouts, and what is kept.

FLOPs count a multiplication and an addition as two. Those of norms, softmax and activations per
element are the ones that Calculon (Isaev et al., SC'23) counts for LayerNorm, Softmax and GeLU.
Bytes are those that an operation reads and writes if nothing stays in a cache.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from nadi.models.job_rows import Layout
from nadi.models.llm.language_model import LanguageModel, LayerKind
from nadi.models.llm.parallel_plan import ParallelPlan
from nadi.trace.operations import ITEMSIZE
from nadi.trace.work import Work, attention, gemm

_F32 = 4
# FLOPs per element: forward, gradient of the input, gradient of the weights
_LAYERNORM, _RMSNORM = (9, 14, 7), (4, 8, 3)
_GELU, _SWIGLU = (8, 13), (9, 15)  # the latter with the product of both halves
_SOFTMAX, _ROPE, _SUM = (5, 8), (3, 3), (1, 1)


class Way(NamedTuple):
    """How a piece has its input and output laid out on the ranks of an axis."""

    axis: str  # role of the group: ``tp``, ``cp`` or ``ep``
    # needs, gives, gradient_needs, gradient_gives: layouts of input and output, forward and
    # backward
    needs: Layout
    gives: Layout
    gradient_needs: Layout
    gradient_gives: Layout
    # size, gradient_size: bytes of the whole tensor that a collective moves before the piece,
    # forward and backward
    size: int = 0
    gradient_size: int = 0


class Piece(NamedTuple):
    """An operation of a layer on one rank, forward and backward."""

    name: str  # within the layer, such as ``attention.qkv``
    # forward, input_gradient, weight_gradient: its work; None where there is none
    forward: Work | None
    input_gradient: Work | None = None
    weight_gradient: Work | None = None
    # its layouts, on the axes on which it says something; their collectives come in this order
    ways: tuple[Way, ...] = ()
    kept: int = 0  # bytes that stay in memory till its backward
    # weight, expert_weight: its parameters on this rank, dense or of experts
    weight: int = 0
    expert_weight: int = 0
    # those of ``weight`` that all tensor parallel ranks have, each with the gradient of its own
    # tokens or heads: their gradients are summed
    summed: int = 0
    # those that several tensor parallel ranks have, each with the gradient of its own heads of
    # queries
    copied: int = 0
    # bytes of the whole input if it is gathered once more for the gradient of the weights
    gathered_again: int = 0
    # whether it belongs to the core of attention, which selective recomputation repeats
    is_core: bool = False
    # pieces of the layer whose outputs it reads, the one that its layouts are about first; an empty
    # name is the layer's input. By default the piece before it.
    reads: tuple[str, ...] = ()
    gives: tuple[int, ...] = ()  # shape of its output; by default that of its first input
    copies: int = 0  # elements of float32 that its backward needs beside inputs and outputs
    is_frozen: bool = False  # whether its weights stay as they are, so that they have no gradients

    @property
    def trained(self) -> int:
        """Its dense weights that have gradients."""
        return 0 if self.is_frozen else self.weight

    @property
    def trained_experts(self) -> int:
        """Its weights of experts that have gradients."""
        return 0 if self.is_frozen else self.expert_weight

    @property
    def made_again(self) -> int:
        """Bytes of what is kept that are not, if the core of attention is computed anew."""
        if self.name == "attention.softmax":
            return self.kept
        return _F32 * self.copies if self.is_core else 0


def _same(layout: Layout, size: int = 0, gradient_size: int = 0, axis: str = "tp") -> Way:
    return Way(axis, layout, layout, layout, layout, size, gradient_size)


class _Maker:
    """Makes the pieces of a model's layers for one plan."""

    def __init__(self, model: LanguageModel, plan: ParallelPlan) -> None:
        self.model, self.plan = model, plan
        self.b = plan.itemsize
        self.tokens = plan.tokens
        # norms and residuals, by tokens or by all ranks alike
        self.between = Layout.TOKENS if plan.sequence_parallel else Layout.WHOLE
        self.own_tokens = plan.tokens // (plan.tp if plan.sequence_parallel else 1)
        self.dense = "bfloat16" if ITEMSIZE[plan.dtype] == 1 else plan.dtype
        self.heads = model.heads // plan.tp
        self.key_heads = self.heads if model.mla else max(model.kv_heads // plan.tp, 1)

    @property
    def whole(self) -> int:
        """Bytes of the residual stream of a micro-batch."""
        return self.tokens * self.model.hidden * self.b

    def gemm(self, m: int, n: int, k: int, out_size: int = 0, batch: int = 1) -> Work:
        """Return the work of a product of ``m x k`` and ``k x n``, all of ``batch`` of them."""
        size = ITEMSIZE[self.plan.dtype]
        moved = batch * ((m * k + n * k) * size + m * n * (out_size or self.b))
        return gemm((batch, m, n, k), moved, self.plan.dtype)

    def linear(self, name: str, tokens: int, inputs: int, outputs: int, way: Way) -> Piece:
        """Return a linear layer of one rank, with ``inputs * outputs`` weights."""
        return Piece(
            name, self.gemm(tokens, outputs, inputs), self.gemm(tokens, inputs, outputs),
            self.gemm(inputs, outputs, tokens, self.plan.gradient_itemsize), (way,),
            kept=tokens * inputs * self.b, weight=inputs * outputs, gives=(tokens, outputs),
        )  # fmt: skip

    def column(self, name: str, inputs: int, outputs: int, biases: int = 0) -> Piece:
        """Return a linear layer whose outputs are shared by the tensor parallel ranks."""
        own, size = outputs // self.plan.tp, self.tokens * inputs * self.b
        way = Way(
            "tp", Layout.WHOLE, Layout.FEATURES, Layout.FEATURES, Layout.PARTIAL, size,
            self.tokens * outputs * self.b,
        )  # fmt: skip
        piece = self.linear(name, self.tokens, inputs, own, way)
        piece = piece._replace(weight=piece.weight + biases // self.plan.tp)
        if not self.plan.sequence_parallel or self.plan.tp == 1:
            return piece
        return piece._replace(kept=size // self.plan.tp, gathered_again=size)

    def row(self, name: str, inputs: int, outputs: int, biases: int = 0) -> Piece:
        """Return a linear layer whose inputs are shared by the tensor parallel ranks."""
        own = inputs // self.plan.tp
        way = Way(
            "tp", Layout.FEATURES, Layout.PARTIAL, Layout.WHOLE, Layout.FEATURES,
            self.tokens * inputs * self.b, self.tokens * outputs * self.b,
        )  # fmt: skip
        piece = self.linear(name, self.tokens, own, outputs, way)
        return piece._replace(weight=piece.weight + biases, summed=self.of_own_tokens(biases))

    def alone(self, name: str, inputs: int, outputs: int, biases: int = 0) -> Piece:
        """Return a linear layer that each rank has whole, for the tokens it has."""
        piece = self.linear(name, self.own_tokens, inputs, outputs, self.apart(inputs, outputs))
        weight = piece.weight + biases
        return piece._replace(weight=weight, summed=self.of_own_tokens(weight))

    def of_own_tokens(self, weight: int) -> int:
        """Return which parameters see a part of the tokens, on which they are used apart."""
        return weight if self.plan.sequence_parallel and self.plan.tp > 1 else 0

    def apart(self, inputs: int, outputs: int) -> Way:
        """Return the layout of what is done token by token, between sharded operations."""
        return _same(self.between, self.tokens * inputs * self.b, self.tokens * outputs * self.b)

    def norm(self, name: str, width: int = 0) -> Piece:
        """Return a norm of the residual stream, or of another width."""
        width = width or self.model.hidden
        elements = self.own_tokens * width
        forward, of_input, of_weight = _LAYERNORM if self.model.norm == "layernorm" else _RMSNORM
        weight = width * (2 if self.model.norm_bias else 1)
        return Piece(
            name, self.small("norm", forward, elements, 2),
            self.small("norm", of_input, elements, 3), self.small("norm", of_weight, elements, 2),
            (self.apart(width, width),), kept=elements * self.b, weight=weight,
            summed=self.of_own_tokens(weight), gives=(self.own_tokens, width),
        )  # fmt: skip

    def small(self, op_class: str, flops: int, elements: int, passes: int) -> Work:
        """Return work that is bound by memory: so many passes over its elements."""
        return Work(op_class, flops * elements, passes * elements * self.b, dtype=self.dense)

    def residual(self, name: str, *reads: str) -> Piece:
        """Return a sum of branches and, named last, the stream that passes them."""
        elements = self.own_tokens * self.model.hidden
        forward, backward = _SUM
        return Piece(
            name, self.small("add", forward, elements, 3),
            self.small("add", backward, elements, 3), None,
            (self.apart(self.model.hidden, self.model.hidden),), reads=reads,
        )  # fmt: skip

    def inside(
        self, name: str, forward: Work, backward: Work, kept: int = 0, *, is_core: bool = False
    ) -> Piece:
        """Return an operation on what the tensor parallel ranks share by features."""
        ways = (_same(Layout.FEATURES),)
        return Piece(name, forward, backward, None, ways, kept=kept, is_core=is_core)

    # attention

    def attention(self) -> Iterator[Piece]:
        yield self.norm("attention.norm")._replace(reads=("",))
        yield from self._projections()
        model, plan = self.model, self.plan
        width = (self.heads + self.key_heads) * model.query_head_dim
        query = adapted(plan, "attention.qkv")
        if model.position == "rope":
            elements = self.tokens * width
            piece = self.inside(
                "attention.rope", self.small("rope", _ROPE[0], elements, 2),
                self.small("rope", _ROPE[1], elements, 2),
            )  # fmt: skip
            query = "attention.rope"
            if model.mla is not None:  # keys and values are copied, to be contiguous
                query = f"attention.query{'_up' if model.mla.q_lora_rank else ''}"
                both = self.heads * (model.query_head_dim + model.value_head_dim)
                reads = ("attention.key_value_up", query)
                piece = piece._replace(reads=reads, gives=(self.tokens, both))
            yield piece
        if model.qk_norm:
            yield self._head_norm(self.tokens * width)
        queries = (
            ("attention.qk_norm", adapted(plan, "attention.qkv")) if model.qk_norm else (query,)
        )
        yield from self.core("attention.keys_and_values", *queries)
        outputs = model.heads * model.value_head_dim
        bias = model.hidden if model.attention_bias else 0
        piece = self.row("attention.output", outputs, model.hidden, bias)
        # its input is the output of the core, which is kept once
        yield piece._replace(kept=0)
        yield from self._adapter("attention.output", outputs, model.hidden, shares_inputs=True)
        yield self.residual("attention.residual", adapted(plan, "attention.output"), "")

    def _projections(self) -> Iterator[Piece]:
        linears = self.model.attention_linears()[:-1]
        hidden, tp = self.model.hidden, self.plan.tp
        if self.model.mla is None:
            query, key, _ = linears
            # fewer heads of keys than ranks are held by several
            keys = max(key.outputs, tp * self.model.head_dim)
            outputs = query.outputs + 2 * keys
            piece = self.column("attention.qkv", hidden, outputs, outputs if query.bias else 0)
            copied = 2 * self.model.head_dim * (hidden + query.bias)
            yield piece._replace(copied=copied if self.plan.key_copies(self.model) > 1 else 0)
            yield from self._adapter("attention.qkv", hidden, outputs, shares_inputs=False)
            return
        for linear in linears:
            if linear.name.endswith("_up"):
                yield self._compressed_norm(linear.name.removesuffix("_up"), linear.inputs)
            is_whole = linear.name.endswith("_down")
            make = self.alone if is_whole else self.column
            piece = make(f"attention.{linear.name}", linear.inputs, linear.outputs)
            if not linear.name.endswith("_up"):
                # two of them read the same, which is kept once
                kept = 0 if linear.name.startswith("key") else piece.kept
                piece = piece._replace(reads=("attention.norm",), kept=kept)
            yield piece

    def _adapter(
        self, name: str, inputs: int, outputs: int, *, shares_inputs: bool
    ) -> Iterator[Piece]:
        """Return the two products beside a linear layer that learn what it does not, and the sum.

        LoRA (arXiv 2106.09685). What is between them is narrow, so that it is what tensor parallel
        ranks exchange: each has the first one whole for its tokens, or shares what that sums over.
        """
        rank, tp = self.plan.lora, self.plan.tp
        if not rank:
            return
        down, up = f"{name}.adapter_down", f"{name}.adapter_up"
        if shares_inputs:
            core = "attention.core" if self.plan.attention == "flash" else "attention.values"
            yield self.row(down, inputs, rank)._replace(reads=(core,), kept=0)
            yield self.alone(up, rank, outputs)
            way = self.apart(outputs, outputs)
            elements = self.own_tokens * outputs
            gives = (self.own_tokens, outputs)
        else:
            yield self.alone(down, inputs, rank)._replace(reads=("attention.norm",))
            yield self.column(up, rank, outputs)._replace(gathered_again=0)
            way = _same(Layout.FEATURES)
            elements = self.tokens * outputs // tp
            gives = (self.tokens, outputs // tp)
        forward, backward = (self.small("add", one, elements, 3) for one in _SUM)
        yield Piece(
            f"{name}.adapted", forward, backward, ways=(way,), reads=(name, up), gives=gives
        )

    def _compressed_norm(self, name: str, width: int) -> Piece:
        """Return the norm of what a linear layer compressed, of which keys have a part more."""
        piece = self.norm(f"attention.{name}_norm", width)
        if name != "key_value" or self.model.mla is None:
            return piece
        more = self.own_tokens * self.model.mla.qk_rope_head_dim * self.b
        return piece._replace(kept=piece.kept + more)

    def _head_norm(self, elements: int) -> Piece:
        forward, of_input, _ = _LAYERNORM if self.model.norm == "layernorm" else _RMSNORM
        piece = self.inside(
            "attention.qk_norm", self.small("norm", forward, elements, 2),
            self.small("norm", of_input, elements, 3), elements * self.b,
        )  # fmt: skip
        weight = 2 * self.model.head_dim
        summed = weight if self.plan.tp > 1 else 0
        gives = (self.tokens, elements // self.tokens)
        return piece._replace(weight=weight, summed=summed, gives=gives)

    def core(self, *reads: str) -> Iterator[Piece]:
        """Return keys and values, scores, softmax and the product of both, fused or not."""
        model, plan, b, heads = self.model, self.plan, self.b, self.heads
        of_query, of_value = model.query_head_dim, model.value_head_dim
        keys = plan.sequence  # of the whole sequence, also with context parallelism
        queries = self.tokens // plan.micro_batch
        batch = plan.micro_batch * heads
        local = self.key_heads * (of_query + of_value) * self.tokens * b
        # keys and values of the whole sequence are gathered, as for Llama 3 (arXiv 2407.21783)
        whole, tokens = Layout.WHOLE, Layout.TOKENS
        size = local * plan.cp
        gathered = Way("cp", whole, whole, tokens, tokens, size, size)
        yield Piece("attention.keys_and_values", None, ways=(gathered,))
        ways = (Way("cp", whole, tokens, tokens, Layout.PARTIAL), _same(Layout.FEATURES))
        # a prefix is read once for all sequences, as by cascade attention
        cached = plan.prefix + plan.micro_batch * plan.suffix
        if model.mla is not None and plan.inference == "decode":
            # what is compressed is read once for all heads, whose queries are compressed, too
            of_value = model.mla.kv_lora_rank
            of_query = of_value + model.mla.qk_rope_head_dim
            entries = cached * of_query
        else:
            entries = self.key_heads * cached * (of_query + of_value)
        read = b * (batch * queries * of_query + entries)
        out = b * batch * queries * of_value
        shape = (batch, queries, keys, of_query)
        # those of the other ranks stay for the backward, too; this rank's own are a part of what
        # the queries are in, but for latent attention, whose keys and values are formed apart
        own = 0 if plan.cp > 1 and model.mla is not None else local
        kept = b * self.tokens * heads * of_query + own + (size if plan.cp > 1 else 0) + out
        gives = (self.tokens, heads * of_value)
        if plan.attention == "flash":
            sums = _F32 * batch * queries
            masked = 1 - plan.computed_scores
            forward, backward = (
                attention(shape, of_value, moved + sums, self.dense, causal=masked, backward=turn)
                for turn, moved in ((False, read + out), (True, 2 * (read + out)))
            )
            yield self.inside(
                "attention.core", forward, backward, kept + sums, is_core=True,
            )._replace(ways=ways, reads=reads, gives=gives, copies=batch * queries)  # fmt: skip
            return
        scores = batch * queries * keys
        small = {"scores": (queries, keys, of_query), "values": (queries, of_value, keys)}
        works = {name: self.gemm(*size, batch=batch) for name, size in small.items()}
        twice = {
            name: work._replace(flops=2 * work.flops, bytes=2 * work.bytes, uncut=2 * work.uncut)
            for name, work in works.items()
        }
        yield self.inside(
            "attention.scores", works["scores"], twice["scores"], kept - out, is_core=True
        )._replace(ways=ways, reads=reads, gives=(batch, queries, keys))
        yield self.inside(
            "attention.softmax", self.small("softmax", _SOFTMAX[0], scores, 2),
            self.small("softmax", _SOFTMAX[1], scores, 3), scores * b, is_core=True,
        )  # fmt: skip
        yield self.inside(
            "attention.values", works["values"], twice["values"], out, is_core=True
        )._replace(reads=("attention.softmax", reads[0]), gives=gives)

    # MLP

    def mlp(self) -> Iterator[Piece]:
        yield self.norm("mlp.norm")
        yield from self._two_linears("mlp", self.model.ffn)
        yield self.residual("mlp.residual", "mlp.down", "attention.residual")

    def _two_linears(self, name: str, ffn: int) -> Iterator[Piece]:
        model = self.model
        ways = 2 if model.gated else 1
        biases = (ways * ffn, model.hidden) if model.mlp_bias else (0, 0)
        up = self.column(f"{name}.up", model.hidden, ways * ffn, biases[0])
        yield up._replace(reads=("mlp.norm",))
        yield self._activation(f"{name}.activation", self.tokens, ffn // self.plan.tp)
        yield self.row(f"{name}.down", ffn, model.hidden, biases[1])

    def _activation(self, name: str, tokens: int, width: int) -> Piece:
        elements = tokens * width
        forward, backward = _SWIGLU if self.model.gated else _GELU
        inputs = 2 if self.model.gated else 1
        return self.inside(
            name, self.small("activation", forward, elements, inputs + 1),
            self.small("activation", backward, elements, 2 * inputs + 1),
            inputs * elements * self.b,
        )._replace(gives=(tokens, width))  # fmt: skip

    def experts(self) -> Iterator[Piece]:
        """Return the router, the exchange of tokens, and the experts of this rank."""
        model, moe = self.model, self.model.moe
        assert moe is not None
        yield self.norm("mlp.norm")
        bias = moe.experts if moe.router_bias else 0
        yield self.alone("mlp.router", model.hidden, moe.experts, bias)
        copies = self.own_tokens * moe.top_k
        elements = copies * model.hidden
        order = self.small("permute", 0, elements, 2)
        yield Piece("mlp.dispatch", order, order, reads=("mlp.norm",),
                    gives=(copies, model.hidden))  # fmt: skip
        yield from self._expert_linears(copies)
        # the gradient of the weights that tokens have needs what experts gave
        kept = (elements + self.own_tokens * moe.experts) * self.b
        reads = ("mlp.from_experts", "mlp.router")
        yield Piece("mlp.combine", order, order, kept=kept, reads=reads,
                    gives=(self.own_tokens, model.hidden))  # fmt: skip
        branches = ["mlp.combine"]
        if moe.shared_experts:
            ffn = moe.shared_experts * moe.shared_expert_ffn
            up, *others = self._two_linears("mlp.shared", ffn)
            yield up._replace(kept=0)  # its input is the router's, which is kept once
            yield from others
            branches = ["mlp.shared.down", *branches]
        yield self.residual("mlp.residual", *branches, "attention.residual")

    def _expert_linears(self, copies: int) -> Iterator[Piece]:
        """Return the experts of this rank, between the exchanges of tokens with the others."""
        model, plan = self.model, self.plan
        moe = model.moe
        assert moe is not None
        ways = 2 if model.gated else 1
        own, local = moe.expert_ffn // plan.expert_tp, moe.experts // plan.ep
        shared, size = plan.expert_tp > 1, copies * model.hidden * self.b
        # tensor parallel ranks that share experts work on the tokens of all of them
        times = plan.tp if shared and plan.sequence_parallel else 1
        tokens, whole = copies * times, size * times
        across = Way("ep", Layout.PARTS, Layout.PARTS, Layout.TOKENS, Layout.TOKENS,
                     size * plan.ep, size * plan.ep)  # fmt: skip
        back = Way("ep", Layout.TOKENS, Layout.TOKENS, Layout.PARTS, Layout.PARTS,
                   size * plan.ep, size * plan.ep)  # fmt: skip
        here = _same(self.between, whole, whole)
        into = here, here, here
        if shared:
            into = (
                Way("tp", Layout.WHOLE, Layout.FEATURES, Layout.FEATURES, Layout.PARTIAL, whole),
                _same(Layout.FEATURES),
                Way("tp", Layout.FEATURES, Layout.PARTIAL, Layout.WHOLE, Layout.FEATURES, 0, whole),
            )
        up = self.linear("mlp.experts.up", tokens, model.hidden, ways * own, into[0])
        active = self._activation("mlp.experts.activation", tokens, own)
        down = self.linear("mlp.experts.down", tokens, own, model.hidden, into[2])
        yield Piece("mlp.to_experts", None, ways=(here, across))
        yield _of_experts(up, local, plan)
        yield active._replace(ways=(into[1],))
        yield _of_experts(down, local, plan)
        if shared and plan.inference and not plan.sequence_parallel:
            # engines add up what a token's experts gave before ranks add up their parts of it
            here = _same(Layout.PARTIAL)
        yield Piece("mlp.from_experts", None, ways=(here, back))


def _of_experts(piece: Piece, experts: int, plan: ParallelPlan) -> Piece:
    """Return a linear layer that is several, which share its rows: a grouped product."""

    def grouped(work: Work | None, rows: int, itemsize: int) -> Work | None:
        if work is None:
            return None
        # few tokens reach few experts; who is reached is as good as drawn, for each token alone
        number = work.shape[rows]
        reached = max(1, min(number, round(experts * (1 - (1 - 1 / experts) ** number))))
        sizes = [reached, *work.shape[1:]]
        sizes[rows] = max(sizes[rows] // reached, 1)
        moved = work.bytes + (reached - 1) * piece.weight * itemsize
        return work._replace(shape=tuple(sizes), bytes=moved)

    return piece._replace(
        forward=grouped(piece.forward, 1, ITEMSIZE[plan.dtype]),
        input_gradient=grouped(piece.input_gradient, 1, ITEMSIZE[plan.dtype]),
        weight_gradient=grouped(piece.weight_gradient, 3, plan.gradient_itemsize),
        weight=0,
        expert_weight=experts * piece.weight,
    )


def layer_pieces(model: LanguageModel, plan: ParallelPlan, kind: LayerKind) -> list[Piece]:
    """Return the operations of a layer on one rank, in the order of the forward."""
    maker = _Maker(model, plan)
    found = [*maker.attention(), *(maker.mlp() if kind == "dense" else maker.experts())]
    return [one if ".adapter_" in one.name else frozen(plan, one) for one in found]


def core_works(model: LanguageModel, plan: ParallelPlan) -> list[Work]:
    """Return the forward work of the core of attention of a layer, without all that is around."""
    return [one.forward for one in _Maker(model, plan).core("", "") if one.forward]


def adapted(plan: ParallelPlan, name: str) -> str:
    """Return the piece that has the output of a linear layer, with that of its adapter."""
    return f"{name}.adapted" if plan.lora else name


def frozen(plan: ParallelPlan, piece: Piece) -> Piece:
    """Return a piece whose weights have no gradients, where a plan trains adapters alone."""
    if not plan.lora or not piece.weight + piece.expert_weight:
        return piece
    is_product = piece.forward is not None and piece.forward.op_class == "gemm"
    return piece._replace(
        weight_gradient=None, gathered_again=0, summed=0, copied=0, is_frozen=True,
        kept=0 if is_product else piece.kept,
    )  # fmt: skip


def embedding_piece(model: LanguageModel, plan: ParallelPlan) -> Piece:
    """Return the look-up of tokens in a table whose rows tensor parallel ranks share."""
    maker = _Maker(model, plan)
    rows = -(-model.vocab // plan.tp)
    elements = plan.tokens * model.hidden
    work = maker.small("embedding", 0, elements, 2)
    positions = model.max_positions * model.hidden if model.position == "learned" else 0
    way = Way("tp", maker.between, Layout.PARTIAL, Layout.WHOLE, Layout.WHOLE, 0, maker.whole)
    return Piece(
        "embedding", work, None,
        None if plan.lora else maker.small("embedding", 1, elements, 2), (way,),
        weight=rows * model.hidden + positions, gives=(plan.tokens, model.hidden),
        is_frozen=plan.lora > 0,
    )  # fmt: skip


def head_pieces(model: LanguageModel, plan: ParallelPlan, *, has_table: bool) -> list[Piece]:
    """Return the last norm, the logits and the loss, whose vocabulary tensor parallel ranks share.

    A loss needs the largest logit, the sum and the logit of the label of all ranks. Where the rank
    ``has_table``, the embedding's, which is also the head's, the head has no weights of its own.
    """
    maker = _Maker(model, plan)
    rows = -(-model.vocab // plan.tp)
    norm = maker.norm("head.norm")
    if plan.inference:  # engines give logits to the last token of each sequence alone
        maker.tokens = plan.micro_batch
    head = maker.column("head.logits", model.hidden, rows * plan.tp)
    if has_table and model.tied_embeddings:
        head = head._replace(weight=0, weight_gradient=None if plan.lora else head.weight_gradient)
    norm, head = frozen(plan, norm), frozen(plan, head)
    if plan.inference:
        return [norm, head]
    elements = plan.tokens * rows
    loss = Work("cross_entropy", 5 * elements, 2 * elements * _F32, dtype="float32")
    gradient = Work("cross_entropy", 2 * elements, 2 * elements * _F32, dtype="float32")
    way = Way("tp", Layout.FEATURES, Layout.WHOLE, maker.between, Layout.FEATURES)
    piece = Piece("head.loss", loss, gradient, None, (way,), kept=elements * _F32,
                  gives=(3, plan.tokens), copies=elements)  # fmt: skip
    return [norm, head, piece]


def model_flops(model: LanguageModel, plan: ParallelPlan) -> int:
    """Return the FLOPs of a step's sequences, however they are spread over ranks.

    Products of forward and backward count, with all scores of attention, and nothing that is
    computed again: model FLOPs of PaLM (arXiv 2204.02311, appendix B), as ``FlopCounterMode``
    counts them.
    """
    alone = msgspec.structs.replace(
        plan, tp=1, pp=1, dp=1, cp=1, ep=1, expert_tp=1, sequence_parallel=False, micro_batch=1,
        attention="unfused",
    )  # fmt: skip
    kinds = model.layer_kinds
    parts = [(kinds.count(kind), layer_pieces(model, alone, kind)) for kind in set(kinds)]
    parts.append((1, head_pieces(model, alone, has_table=False)))
    return plan.global_batch * sum(
        times * max(work.uncut, 0)
        for times, pieces in parts
        for piece in pieces
        for work in (piece.forward, piece.input_gradient, piece.weight_gradient)
        if work is not None and (not plan.inference or work is piece.forward)
    )
