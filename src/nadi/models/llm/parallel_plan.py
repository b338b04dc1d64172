"""How a language model is spread over ranks and run: parallel axes, schedule, precision.

Ranks are numbered along the axes tensor, context, data, pipeline parallel, the first one fastest,
as Megatron-LM does. The experts of a mixture are spread over the first three of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, NoReturn

import msgspec
import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.models.llm.language_model import LanguageModel
from nadi.models.llm.pipeline_schedules import (
    PipelineSchedule,
    check_pipeline,
    chunks_per_stage,
    spread_layers,
)
from nadi.trace.arrays import Ints
from nadi.trace.groups import groups_along
from nadi.trace.operations import ITEMSIZE
from nadi.trace.work import part_computed

_Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 24)]
_CountOrUsual = Annotated[int, msgspec.Meta(ge=0, le=1 << 24)]
_Tokens = Annotated[int, msgspec.Meta(ge=0, le=1 << 31)]
Overlap = Literal["none", "ring", "pipe"]
_LARGEST_WORLD = 1 << 24
_SPLIT_BACKWARD = ("zero-bubble", "zero-bubble-h2", "dualpipe")


class ParallelPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a model is spread over ranks, and what a step of it is.

    Attributes
    ----------
    tp, cp, dp, pp
        Ranks along the tensor, context, data and pipeline parallel axis.
    ep, expert_tp
        Ranks that share the experts of a layer, and ranks that share one expert: 1, or ``tp``.
    zero
        What data parallel ranks shard (ZeRO, arXiv 1910.02054): 1 the state of the optimizer,
        2 also gradients, 3 also weights, gathered anew for each forward and backward.
    sequence_parallel
        Whether norms and residuals are sharded along the sequence by tensor parallel ranks
        (arXiv 2205.05198); by default where ``tp`` is over 1.
    micro_batch, global_batch
        Sequences of a micro-batch of one rank, and of a step of all. By default a micro-batch is
        one sequence, of decode all that a rank has: as many at once as leave no stage of the
        pipeline idle. A step has by default one micro-batch for each stage.
    sequence
        Tokens of a sequence; by default the model's.
    schedule, chunks
        Of the pipeline (:mod:`~nadi.models.llm.pipeline_schedules`), and chunks of a stage.
    ends_as_layers
        Whether embedding and head count as a layer each where layers are spread over stages, so
        that the first and the last chunk have one less, or none (arXiv 2407.21783, section 3.3.2).
    recompute
        What is computed anew for the backward: ``selective`` the core of attention, ``full`` each
        layer from its input.
    overlap
        How products go along with the communication of tensor parallel ranks
        (:mod:`~nadi.models.llm.product_tiles`): ``none`` before or after it, or in tiles beside
        it, as ``ring`` or ``pipe``.
    attention
        ``flash`` keeps no scores and recomputes them (arXiv 2205.14135); ``unfused`` is a product,
        a softmax and a product.
    dtype, gradient_dtype
        Of weights and activations, and of weight gradients. With an 8-bit float linear layers take
        it and all else is bfloat16.
    inference
        ``prefill`` processes a prompt of ``sequence`` tokens, ``decode`` one token after
        ``sequence`` others; empty for training.
    lora
        Rank of adapters of attention's projections, which alone are trained (arXiv 2106.09685):
        all other weights have no gradients. 0 to train all.
    prefix
        Of inference, the first tokens of each sequence that are the same in all of a rank: their
        keys and values are there once, and prefill does not compute them again.
    """

    tp: _Count = 1
    cp: _Count = 1
    dp: _Count = 1
    pp: _Count = 1
    ep: _Count = 1
    expert_tp: _CountOrUsual = 0
    zero: Literal[0, 1, 2, 3] = 1
    sequence_parallel: bool | None = None
    micro_batch: _CountOrUsual = 0
    global_batch: _CountOrUsual = 0
    sequence: _Tokens = 0
    schedule: PipelineSchedule = "1f1b"
    chunks: _Count = 1
    ends_as_layers: bool = False
    recompute: Literal["none", "selective", "full"] = "none"
    attention: Literal["flash", "unfused"] = "flash"
    dtype: str = "bfloat16"
    gradient_dtype: str = "float32"
    inference: Literal["", "prefill", "decode"] = ""
    prefix: _Tokens = 0
    lora: _CountOrUsual = 0
    overlap: Overlap = "none"

    def of(self, model: LanguageModel) -> ParallelPlan:
        """Return the plan with every default put in, checked against a model.

        Raises
        ------
        UsageError
            If they do not fit together; the message names values that would.
        """
        expert_tp = self.expert_tp or (1 if self.ep > 1 or self.tp == 1 else self.tp)
        sharded = self.tp > 1 if self.sequence_parallel is None else self.sequence_parallel
        micro_batch = self.micro_batch or self._usual_micro_batch()
        plan = msgspec.structs.replace(
            self,
            expert_tp=expert_tp,
            micro_batch=micro_batch,
            sequence_parallel=sharded and self.inference != "decode",
            sequence=self.sequence or model.sequence,
            global_batch=self.global_batch or self.dp * self.pp * micro_batch,
        )
        plan._check(model)
        return plan

    def _usual_micro_batch(self) -> int:
        """Give the sequences of a micro-batch where none are stated.

        Decode reads all weights once for each micro-batch, so serving engines take all sequences
        at once; a pipeline needs one micro-batch for each stage.
        """
        of_rank = self.global_batch // self.dp
        if self.inference != "decode" or of_rank <= self.pp:
            return 1
        return next(size for size in range(of_rank // self.pp, 0, -1) if of_rank % size == 0)

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.tp * self.cp * self.dp * self.pp

    @property
    def micro_batches(self) -> int:
        """Number of micro-batches of a step."""
        return self.global_batch // (self.dp * self.micro_batch)

    @property
    def stage_chunks(self) -> int:
        """Chunks of layers that each stage holds."""
        return chunks_per_stage(self.schedule, self.chunks)

    @property
    def positions(self) -> int:
        """Number of chunks that the model's layers are cut into, along the pipeline."""
        return self.pp if self.schedule == "dualpipe" else self.pp * self.stage_chunks

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch on one rank, of all tensor parallel ranks together."""
        return self.micro_batch * (1 if self.inference == "decode" else self.suffix // self.cp)

    @property
    def suffix(self) -> int:
        """Tokens of a sequence after the prefix that sequences share."""
        return self.sequence - self.prefix

    @property
    def computed_scores(self) -> float:
        """The part of the scores of attention that a causal mask leaves.

        Context parallel ranks take parts of a sequence from both ends, so that each has the mean.
        """
        return 1.0 if self.inference == "decode" else part_computed(self.suffix, self.sequence)

    @property
    def itemsize(self) -> int:
        """Bytes of an element of an activation that is communicated, and of a weight."""
        return max(ITEMSIZE[self.dtype], 2)

    @property
    def gradient_itemsize(self) -> int:
        """Bytes of an element of a weight gradient."""
        return ITEMSIZE[self.gradient_dtype]

    def layers_at(self, model: LanguageModel, position: int) -> range:
        """Return the layers of a chunk."""
        return spread_layers(model.layers, self.positions, ends=self.ends_as_layers)[position]

    def key_copies(self, model: LanguageModel) -> int:
        """Return how many tensor parallel ranks hold the same heads of keys and values."""
        return 1 if model.mla is not None else max(self.tp // model.kv_heads, 1)

    def groups(self, model: LanguageModel) -> Mapping[str, Ints]:
        """Return the process groups of more than one rank by role; int64, (groups, members).

        ``tp``, ``cp``, ``pp`` and ``ep`` are those of the axes; ``dp`` reduces gradients, along the
        context and data parallel axes; ``edp`` those of experts; ``embedding`` has the first
        and last stage, ``mirror`` the two stages of DualPipe with the same layers, ``kv`` the
        tensor parallel ranks with the same heads of keys and values.
        """
        axes = {"tp": self.tp, "cp": self.cp, "dp": self.dp, "pp": self.pp}
        inner = self.tp * self.cp * self.dp
        of_experts = {
            "expert_tp": self.expert_tp, "ep": self.ep,
            "edp": inner // (self.expert_tp * self.ep), "pp": self.pp,
        }  # fmt: skip
        found = {
            "tp": groups_along(axes, ["tp"]),
            "cp": groups_along(axes, ["cp"]),
            "dp": groups_along(axes, ["cp", "dp"]),
            "pp": groups_along(axes, ["pp"]),
            "ep": groups_along(of_experts, ["ep"]),
            "edp": groups_along(of_experts, ["edp"]),
        }
        if self.pp > 1:
            found["embedding"] = found["pp"][:, [0, -1]]
        if self.schedule == "dualpipe":
            half = self.pp // 2
            pairs = np.stack([found["pp"][:, :half], found["pp"][:, : half - 1 : -1]], axis=2)
            found["mirror"] = pairs.reshape(-1, 2)
        copies = self.key_copies(model)
        of_copies = {"kv": copies, **axes, "tp": self.tp // copies}
        found["kv"] = groups_along(of_copies, ["kv"])
        return {role: ranks for role, ranks in found.items() if ranks.shape[1] > 1}

    def _check(self, model: LanguageModel) -> None:
        if self.world_size > _LARGEST_WORLD:
            unfit("tp", f"{self.world_size} ranks", f"at most {_LARGEST_WORLD} are supported")
        for name in ("dtype", "gradient_dtype"):
            if getattr(self, name) not in ITEMSIZE:
                unfit(name, f"unknown type {getattr(self, name)!r}", "give torch's name of it")
        self._check_widths(model)
        self._check_batch(model)
        self._check_experts(model)
        if self.lora and self.inference:
            unfit("lora", "adapters are merged into the weights for inference", "leave it out")
        if self.lora and model.mla is not None:
            unfit("lora", "adapters of latent attention (MLA) are not supported", "leave it out")
        if self.inference:
            if self.recompute != "none" or self.schedule not in ("gpipe", "1f1b"):
                what = "inference has no backward: no recompute, and no schedule of backwards"
                unfit("inference", what, "leave both out")
        elif self.zero == 3 and self.pp > 1 and self.schedule in _SPLIT_BACKWARD:
            unfit("zero", f"3 with schedule {self.schedule}", "use zero 2 or less, or 1f1b")
        check_pipeline(
            self.schedule, self.pp, self.micro_batches,
            self.chunks if self.schedule == "interleaved" else 1,
        )  # fmt: skip
        if self.schedule != "interleaved" and self.chunks > 1:
            unfit("chunks", f"{self.chunks} with schedule {self.schedule}", "use interleaved")
        places = model.layers + (2 if self.ends_as_layers else 0)
        if places < self.positions:
            unfit(
                "pp", f"{self.positions} chunks of a model with {model.layers} layers",
                f"at most {places // self.stage_chunks or 1} stages have a layer each",
            )  # fmt: skip

    def _check_widths(self, model: LanguageModel) -> None:
        """Raise UsageError if tensor parallel ranks cannot share a width equally."""
        widths = {"heads": model.heads, "vocab": -(-model.vocab // self.tp) * self.tp}
        if "dense" in model.layer_kinds:
            widths["ffn"] = model.ffn
        if model.moe is not None and self.expert_tp > 1:
            widths["expert_ffn"] = model.moe.expert_ffn
        for name, width in widths.items():
            if width % self.tp:
                what = f"{self.tp} does not divide the model's {name}, {width}"
                unfit("tp", what, f"one of {_divisors(width)}")
        if self.tp % model.kv_heads and model.kv_heads % self.tp:
            of_heads = [n for n in range(1, model.heads + 1) if model.heads % n == 0]
            keys = model.kv_heads
            fits = [str(n) for n in of_heads if n % keys == 0 or keys % n == 0]
            what = f"{self.tp} and the {model.kv_heads} heads of keys: neither divides the other"
            unfit("tp", what, f"one of {', '.join(fits[:12])}")

    def _check_batch(self, model: LanguageModel) -> None:
        if not self.sequence:
            unfit("sequence", "the model states no sequence length", "give one")
        if self.prefix:
            self._check_prefix(model)
        of_ranks = self.cp * (self.tp if self.sequence_parallel else 1)
        if self.inference != "decode" and self.suffix % of_ranks:
            below = self.suffix - self.suffix % of_ranks
            what = f"{self.suffix} tokens cannot be shared equally by {of_ranks} ranks"
            unfit("sequence", what, f"{self.prefix + (below or of_ranks)} would fit")
        if self.inference == "decode" and self.cp > 1:
            unfit("cp", "context parallel decoding is not generated", "use cp=1")
        if self.overlap != "none" and self.tokens % self.tp:
            what = f"{self.tokens} tokens of a micro-batch cannot be cut into {self.tp} tiles"
            unfit("overlap", what, "leave it out, or take more tokens")
        of_step = self.dp * self.micro_batch
        if self.global_batch % of_step:
            below = self.global_batch - self.global_batch % of_step
            fits = f"{below} or {below + of_step}" if below else str(of_step)
            what = (
                f"{self.global_batch} sequences are no multiple of dp * micro_batch, "
                f"{self.dp} * {self.micro_batch}"
            )
            unfit("global_batch", what, f"{fits} would fit")

    def _check_prefix(self, model: LanguageModel) -> None:
        """Raise UsageError if sequences cannot share a prefix."""
        if not self.inference:
            unfit("prefix", "training computes all of each sequence",
                    "leave it out, or use inference prefill or decode")  # fmt: skip
        if self.prefix >= self.sequence:
            what = f"{self.prefix} tokens, and a sequence has {self.sequence}"
            unfit("prefix", what, f"at most {self.sequence - 1}")
        if self.cp > 1:
            unfit("cp", "a prefix shared by context parallel ranks is not generated", "use cp=1")
        if self.inference == "prefill" and model.mla is not None:
            what = "keys and values of a compressed prefix are not generated"
            unfit("prefix", what, "leave it out for models with latent attention")

    def _check_experts(self, model: LanguageModel) -> None:
        inner = self.tp * self.cp * self.dp
        if model.moe is None:
            if self.ep > 1:
                unfit("ep", f"{self.ep}, but the model has no experts", "leave it out")
            return
        if model.moe.experts % self.ep:
            what = f"{self.ep} does not divide the {model.moe.experts} experts"
            unfit("ep", what, f"one of {_divisors(model.moe.experts)}")
        if self.expert_tp not in (1, self.tp):
            unfit("expert_tp", f"{self.expert_tp} is neither 1 nor tp, {self.tp}", "give one")
        if inner % (self.ep * self.expert_tp):
            what = f"{self.ep} * {self.expert_tp} does not divide tp * cp * dp, {inner}"
            unfit("ep", what, f"one of {_divisors(inner // self.expert_tp)}")
        if self.expert_tp == 1 and self.tp > 1 and not self.sequence_parallel:
            if self.inference == "decode":
                unfit("expert_tp", "1 in decoding, where tp ranks hold the same token",
                        f"use expert_tp={self.tp}")  # fmt: skip
            what = "1, but tensor parallel ranks hold the same tokens"
            unfit("expert_tp", what, f"use sequence_parallel, or expert_tp={self.tp}")


def _divisors(number: int) -> str:
    found = [str(n) for n in range(1, number + 1) if number % n == 0]
    return ", ".join(found[:12]) + (", ..." if len(found) > 12 else "")


def unfit(name: str, what: str, remedy: str) -> NoReturn:
    """Raise UsageError about a field of a plan."""
    raise UsageError([Parameter(name)], what, remedy)
