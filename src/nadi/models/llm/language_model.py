"""Language models as values: their shape, and the parameters that follow from it.

A model is a decoder: an embedding, layers of attention and an MLP (dense, or a mixture of
experts), a last norm, and a head. Every count comes from the linear layers that
``attention_linears`` and ``mlp_linears`` list, from norms, and from tables; nothing is fitted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias

import msgspec

from nadi.errors import FormatError
from nadi.files.settings_text import convert_settings, parse_settings, remedy_for
from nadi.files.shipped_files import Shelf

LayerKind: TypeAlias = Literal["dense", "moe"]
_MOST = 1 << 31  # of anything that is stated
_MOST_OF = {"layers": 1 << 14, "heads": 1 << 16, "mtp_layers": 1 << 14}


class Linear(NamedTuple):
    """A linear layer: ``outputs = inputs x weight + bias``."""

    name: str
    inputs: int
    outputs: int
    bias: bool = False

    @property
    def parameters(self) -> int:
        """Number of its parameters."""
        return self.inputs * self.outputs + self.bias * self.outputs


class ParameterCounts(NamedTuple):
    """Numbers of parameters, of a layer or of a model, by component."""

    # embedding, position: tables: ``vocab x hidden``, and learned positions
    embedding: int = 0
    position: int = 0
    # attention, mlp: linear layers of attention, and of the MLP in dense layers
    attention: int = 0
    mlp: int = 0
    # experts, shared_experts, router: of layers with a mixture of experts
    experts: int = 0
    shared_experts: int = 0
    router: int = 0
    norms: int = 0  # all of them, also within attention, and the last one of the model
    head: int = 0  # 0 if it is the embedding's table

    @property
    def total(self) -> int:
        """The sum of all components."""
        return sum(self)

    def plus(self, other: ParameterCounts, times: int = 1) -> ParameterCounts:
        """Return these counts and ``times`` those of another."""
        return ParameterCounts(*(a + times * b for a, b in zip(self, other, strict=True)))


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A section of a description; unknown keys are errors."""


class LatentAttention(_Part, frozen=True):
    """Multi-head latent attention (MLA): DeepSeek-V2, arXiv 2405.04434, section 2.1.

    Attributes
    ----------
    kv_lora_rank, q_lora_rank
        Widths of the compressed keys and values, and of the queries; 0 if queries are not
        compressed.
    qk_nope_head_dim, qk_rope_head_dim
        Width of a head's query without and with position; the latter's key is one for all heads.
    v_head_dim
        Width of a head's value.
    """

    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    q_lora_rank: int = 0


class MixtureOfExperts(_Part, frozen=True):
    """Layers in which a router sends each token to some of many MLPs."""

    # experts, top_k: number of experts of a layer, and how many a token is sent to
    experts: int
    top_k: int
    expert_ffn: int = 0  # inner width of an expert; by default the model's ``ffn``
    # shared_experts, shared_expert_ffn: experts that every token passes, and the width of each; by
    # default as the others
    shared_experts: int = 0
    shared_expert_ffn: int = 0
    # first_dense_layers, every: the first layers that are dense; of the others, layer ``i`` (from
    # 0) has experts if ``every`` divides it
    first_dense_layers: int = 0
    every: int = 1
    # whether the router has a bias per expert, such as the one that balances the load in
    # DeepSeek-V3. Published weights have it, and so it is counted.
    router_bias: bool = False


class PublishedCounts(_Part, frozen=True):
    """What a source says about the number of parameters, to compare with what follows."""

    # parameters, tolerance: of the whole model without multi-token prediction, and by how much its
    # rounding may differ; 0 is an exact count
    parameters: int
    tolerance: int = 0
    # active, active_tolerance: of those that a token uses; 0 if the source does not say
    active: int = 0
    active_tolerance: int = 0
    active_embedding: bool = True  # whether the source counts the embedding's table among these
    # mtp, mtp_tolerance: of multi-token prediction, without the embedding and head that it shares
    mtp: int = 0
    mtp_tolerance: int = 0


class LanguageModel(_Part, frozen=True):
    """A decoder-only language model.

    Attributes
    ----------
    name, about, source
        What it is called, a line about it, and where the figures are from.
    layers, hidden, heads, vocab
        Number of layers, width of a token, query heads, and rows of the embedding's table.
    kv_heads, head_dim
        Heads of keys and values, by default ``heads``; width of a head, by default
        ``hidden / heads``.
    ffn, gated
        Inner width of a dense layer's MLP, 0 if no layer is dense; whether it has a gate (SwiGLU).
    norm, norm_bias
        Its kind, and whether it has a bias; by default layernorm has one.
    attention_bias, qkv_bias, mlp_bias
        Biases of all linear layers of attention, of query, key and value alone, and of the MLP.
    qk_norm
        Whether the queries and keys of each head have a norm.
    position, max_positions
        How positions are told, and the longest sequence, in tokens; rows of the table if learned.
    tied_embeddings
        Whether the head is the embedding's table.
    mla, moe
        Multi-head latent attention, and mixture of experts.
    mtp_layers
        Further layers that predict further tokens (multi-token prediction, DeepSeek-V3).
    sequence
        Usual length of a sequence in training, in tokens; by default ``max_positions``.
    published
        What the source says about the number of parameters.
    """

    layers: int
    hidden: int
    heads: int
    vocab: int
    name: str = ""
    about: str = ""
    source: str = ""
    kv_heads: int = 0
    head_dim: int = 0
    ffn: int = 0
    gated: bool = False
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    norm_bias: bool | None = None
    attention_bias: bool = False
    qkv_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    position: Literal["learned", "rope", "none"] = "rope"
    max_positions: int = 0
    tied_embeddings: bool = False
    mla: LatentAttention | None = None
    moe: MixtureOfExperts | None = None
    mtp_layers: int = 0
    sequence: int = 0
    published: PublishedCounts | None = None

    def __post_init__(self) -> None:
        """Put in what follows from other values, where it is not stated."""
        put = msgspec.structs.force_setattr
        put(self, "kv_heads", self.kv_heads or self.heads)
        if not self.head_dim and self.heads > 0 and self.hidden % self.heads == 0:
            put(self, "head_dim", self.hidden // self.heads)
        if self.norm_bias is None:
            put(self, "norm_bias", self.norm == "layernorm")
        put(self, "sequence", self.sequence or self.max_positions)
        if self.moe is not None:
            width = self.moe.expert_ffn or self.ffn
            shared = self.moe.shared_expert_ffn or width
            filled = {"expert_ffn": width, "shared_expert_ffn": shared}
            put(self, "moe", msgspec.structs.replace(self.moe, **filled))

    @property
    def attention_kind(self) -> Literal["mha", "gqa", "mqa", "mla"]:
        """Multi-head, grouped-query, multi-query or multi-head latent attention."""
        if self.mla is not None:
            return "mla"
        if self.kv_heads == self.heads:
            return "mha"
        return "mqa" if self.kv_heads == 1 else "gqa"

    @property
    def query_head_dim(self) -> int:
        """Width of a head's query and key."""
        mla = self.mla
        return self.head_dim if mla is None else mla.qk_nope_head_dim + mla.qk_rope_head_dim

    @property
    def value_head_dim(self) -> int:
        """Width of a head's value."""
        return self.head_dim if self.mla is None else self.mla.v_head_dim

    @property
    def layer_kinds(self) -> tuple[LayerKind, ...]:
        """The kind of each layer, from the first."""
        kinds: list[LayerKind] = ["dense"] * self.layers
        if self.moe is not None:
            for i in range(self.moe.first_dense_layers, self.layers):
                kinds[i] = "moe" if i % self.moe.every == 0 else "dense"
        return tuple(kinds)

    def attention_linears(self) -> tuple[Linear, ...]:
        """Return the linear layers of one layer's attention, in the order of their use."""
        hidden, mla, biased = self.hidden, self.mla, self.attention_bias
        if mla is None:
            of_query, of_key = self.heads * self.head_dim, self.kv_heads * self.head_dim
            bias = biased or self.qkv_bias
            return (
                Linear("query", hidden, of_query, bias),
                Linear("key", hidden, of_key, bias),
                Linear("value", hidden, of_key, bias),
                Linear("attention_output", of_query, hidden, biased),
            )
        query = self.heads * self.query_head_dim
        both = self.heads * (mla.qk_nope_head_dim + mla.v_head_dim)
        down = Linear("query_down", hidden, mla.q_lora_rank)
        compressed = (down, Linear("query_up", mla.q_lora_rank, query))
        return (
            *(compressed if mla.q_lora_rank else (Linear("query", hidden, query),)),
            Linear("key_value_down", hidden, mla.kv_lora_rank + mla.qk_rope_head_dim),
            Linear("key_value_up", mla.kv_lora_rank, both),
            Linear("attention_output", self.heads * mla.v_head_dim, hidden),
        )

    def mlp_linears(self, ffn: int | None = None) -> tuple[Linear, ...]:
        """Return the linear layers of an MLP, of the dense layers' width or another one."""
        width = self.ffn if ffn is None else ffn
        gate = (Linear("gate", self.hidden, width, self.mlp_bias),) if self.gated else ()
        return (
            *gate,
            Linear("up", self.hidden, width, self.mlp_bias),
            Linear("down", width, self.hidden, self.mlp_bias),
        )

    @property
    def norm_parameters(self) -> int:
        """Parameters of one norm of the width of a token."""
        return self.hidden * (2 if self.norm_bias else 1)

    def layer_parameters(self, kind: LayerKind) -> ParameterCounts:
        """Return the parameters of one layer of a kind."""
        within = 2 * self.head_dim * (2 if self.norm_bias else 1) if self.qk_norm else 0
        if self.mla is not None:
            within = self.mla.q_lora_rank + self.mla.kv_lora_rank
        counts = ParameterCounts(
            attention=_sum(self.attention_linears()), norms=2 * self.norm_parameters + within
        )
        if kind == "dense":
            return counts._replace(mlp=_sum(self.mlp_linears()))
        moe = self._experts()
        return counts._replace(
            experts=moe.experts * _sum(self.mlp_linears(moe.expert_ffn)),
            shared_experts=moe.shared_experts * _sum(self.mlp_linears(moe.shared_expert_ffn)),
            router=Linear("router", self.hidden, moe.experts, moe.router_bias).parameters,
        )

    def parameters(self) -> ParameterCounts:
        """Return the parameters of the whole model, without multi-token prediction."""
        kinds = self.layer_kinds
        table = self.vocab * self.hidden
        counts = ParameterCounts(
            embedding=table,
            position=self.max_positions * self.hidden if self.position == "learned" else 0,
            norms=self.norm_parameters,
            head=0 if self.tied_embeddings else table,
        )
        for kind in sorted(set(kinds)):
            counts = counts.plus(self.layer_parameters(kind), kinds.count(kind))
        return counts

    @property
    def total_parameters(self) -> int:
        """Number of all parameters, without multi-token prediction."""
        return self.parameters().total

    def active_parameters(self, embedding: bool = True) -> int:
        """Return the number of parameters that one token uses.

        Parameters
        ----------
        embedding
            Whether the embedding's table counts, of which a token reads one row. A table that
            is the head, too, counts in any case.
        """
        counts = self.parameters()
        if self.moe is not None:
            active = counts.experts // self.moe.experts * self.moe.top_k
            counts = counts._replace(experts=active)
        if not embedding and not self.tied_embeddings:
            counts = counts._replace(embedding=0)
        return counts.total

    def mtp_parameters(self) -> ParameterCounts:
        """Return the parameters that multi-token prediction adds.

        Each of its layers is one of the model's last kind, with a projection of two tokens to
        one (counted as ``mlp``) and three norms; embedding and head are the model's (DeepSeek-V3,
        arXiv 2412.19437, section 2.2).
        """
        one = self.layer_parameters(self.layer_kinds[-1])
        projection = Linear("projection", 2 * self.hidden, self.hidden).parameters
        one = one.plus(ParameterCounts(mlp=projection, norms=3 * self.norm_parameters))
        return ParameterCounts().plus(one, self.mtp_layers)

    def check(self) -> None:
        """Raise FormatError with the JSON path of the first invalid value."""
        self._check_numbers()
        self._check_attention()
        if self.moe is not None:
            self._check_experts(self.moe)
        if "dense" in self.layer_kinds and not self.ffn:
            self._refuse("$.ffn", "it is missing, and dense layers need it", "state their width")
        if self.max_positions and self.sequence > self.max_positions:
            self._refuse(
                "$.sequence", f"{self.sequence} is over max_positions, {self.max_positions}",
                f"state {self.max_positions} or less",
            )  # fmt: skip
        if self.position == "learned" and not self.max_positions:
            self._refuse(
                "$.max_positions", "it is missing, and learned positions need it",
                "state the rows of their table, or position = 'rope'",
            )  # fmt: skip

    def _check_numbers(self) -> None:
        """Raise FormatError for a number that no model has."""
        least = {"layers": 1, "hidden": 1, "heads": 1, "vocab": 1, "kv_heads": 1}
        sections = {"$": self, "$.mla": self.mla, "$.moe": self.moe}
        may_be_zero = {"q_lora_rank", "qk_rope_head_dim", "shared_experts", "first_dense_layers"}
        for path, section in sections.items():
            if section is None:
                continue
            for key, value in msgspec.structs.asdict(section).items():
                if not isinstance(value, int) or isinstance(value, bool):
                    continue
                low = least.get(key, 0) if section is self else int(key not in may_be_zero)
                most = _MOST_OF.get(key, _MOST)
                if not low <= value <= most:
                    what = f"{value} is not {low} to {most}"
                    self._refuse(f"{path}.{key}", what, "give another one")

    def _check_attention(self) -> None:
        if not self.head_dim and self.mla is None:
            self._refuse(
                "$.heads", f"{self.heads} heads do not divide hidden, {self.hidden}",
                "state head_dim, or another number",
            )  # fmt: skip
        if self.heads % self.kv_heads:
            fits = [str(n) for n in range(1, self.heads + 1) if self.heads % n == 0]
            self._refuse(
                "$.kv_heads", f"{self.kv_heads} does not divide heads, {self.heads}",
                f"state one of {', '.join(fits[:12])}{', ...' if len(fits) > 12 else ''}",
            )  # fmt: skip
        if self.mla is None:
            return
        for key in ("attention_bias", "qkv_bias", "qk_norm"):
            if getattr(self, key):
                what = "latent attention (mla) has its own norms and no biases"
                self._refuse(f"$.{key}", what, "leave it out")
        if self.kv_heads != self.heads:
            what = "latent attention (mla) has as many heads for keys and values as for queries"
            self._refuse("$.kv_heads", what, "leave it out")

    def _check_experts(self, moe: MixtureOfExperts) -> None:
        if moe.top_k > moe.experts:
            what = f"{moe.top_k} is over the number of experts, {moe.experts}"
            self._refuse("$.moe.top_k", what, f"state {moe.experts} or less")
        if "moe" not in self.layer_kinds:
            self._refuse(
                "$.moe", f"none of the {self.layers} layers has experts",
                "correct first_dense_layers or every, or leave moe out",
            )  # fmt: skip

    def _experts(self) -> MixtureOfExperts:
        if self.moe is None:
            raise ValueError(f"{self.name or 'the model'} has no layers with experts")
        return self.moe

    def _refuse(self, path: str, what: str, remedy: str) -> NoReturn:
        raise FormatError(f"{self.name or 'language model'}: {path}", what, remedy)


def language_model_from(value: Any, name: str = "language model") -> LanguageModel:
    """Check a description that is given as a dict with the keys of a file.

    - Raises FormatError if a key is unknown or a value is invalid; the message names the JSON path.
    """
    found = convert_settings(
        value, LanguageModel, name,
        lambda what, path: remedy_for(LanguageModel, what, path, "nadi/data/models"),
    )  # fmt: skip
    msgspec.structs.replace(found, name=name).check()  # errors name the file
    return found if found.name else msgspec.structs.replace(found, name=name)


def _sum(linears: tuple[Linear, ...]) -> int:
    return sum(linear.parameters for linear in linears)


_SHELF = Shelf(
    "models", "language model", "nadi generate llm --model list prints them"
)  # fmt: skip


def shipped_language_models() -> list[str]:
    """Return the names of the language models shipped with Nadi, in alphabetical order."""
    return _SHELF.names()


def load_language_model(path_or_name: Path | str) -> LanguageModel:
    """Load the description of a language model.

    Parameters
    ----------
    path_or_name
        A file in TOML, YAML or JSON, or the name of a model shipped with Nadi.

    Raises
    ------
    InputError
        If the file cannot be read or is invalid; the message states the JSON path.
    UsageError
        If no model has this name; the message lists similar names.
    """
    return language_model_from(read_model_keys(path_or_name), str(path_or_name))


def read_model_keys(path_or_name: Path | str) -> Any:
    """Read what the file of a language model states, unchecked: dicts, lists and plain values.

    - Raises InputError, UsageError as for :func:`load_language_model`, but for what is invalid in
      it.
    """
    content, suffix, name = _SHELF.described(path_or_name)
    return parse_settings(content, suffix, name, "language model")
