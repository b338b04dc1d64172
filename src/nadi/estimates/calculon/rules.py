"""The layers of a transformer block as data, in their order.

A layer is a row: its kind, its sizes by name, and what becomes of its activations. Another kind
of block is another table.

The rules of an estimate as far as programs differ: Calculon's by name, and Nadi's own.
"""

from enum import Enum
from typing import NamedTuple

from nadi.errors import Parameter, UsageError


class Kind(Enum):
    """What a layer does, which sets its operations and bytes."""

    LINEAR = "a product with weights; sizes: rows, columns, inner"
    PRODUCT = "products of activations; sizes: batch, rows, columns, inner, elements of one operand"
    NORM = "a normalization; sizes: elements, width of its weights"
    SOFTMAX = "a softmax; sizes: elements"
    ACTIVATION = "an activation function; sizes: elements"
    DROPOUT = "a dropout, which keeps a mask of bytes; sizes: elements"
    ADD = "a sum of two; sizes: elements"
    FORK = "one tensor used several times, whose gradients are added; sizes: elements, uses"
    GATHER = "into a part that is split by tensor parallelism; sizes: elements"
    SCATTER = "out of it; sizes: elements"
    GATHER_LINEAR = "a gather that overlaps with the product that follows; as LINEAR"
    LINEAR_SCATTER = "a product that overlaps with the scatter that follows; as LINEAR"


class When(Enum):
    """Where a layer is part of the block."""

    ALWAYS = "always"
    SEPARATE = "communication does not overlap"
    MERGED = "communication overlaps with a product"
    MERGED_HEADS = "the same, and each head has its own key and value"
    MERGED_QUERY = "the same, and all heads share one key and value"
    OWN_KEY = "no product makes query, key and value at once"


class Kept(Enum):
    """What of a layer's activation is there, while it works and until its backward pass."""

    YES = "kept"
    SHARED = "another layer has it"
    WORKING = "there while the block works, and not kept"
    ATTENTION = "kept, unless the attention is computed again"
    ATTENTION_INPUT = "of it the size of the output, if the attention is computed again"
    GATHERED = "kept, unless it is gathered again"
    GATHERED_ATTENTION = "kept, unless it is gathered, or the attention computed, again"


class Layer(NamedTuple):
    """A layer of a block."""

    name: str  # Calculon's name
    kind: Kind  # what it does
    # names of dimensions (``layer_sizes.dimensions_of``), as the kind takes them
    sizes: tuple[str, ...]
    kept: Kept = Kept.YES  # what of its activation is kept
    when: When = When.ALWAYS  # where it is part of the block
    again: bool = False  # whether it is computed again if the attention is
    # whether its all-gather is done again if the attention is computed again
    gathers_again: bool = False


_WHOLE = ("whole",)
_LOCAL = ("local",)

BLOCK: tuple[Layer, ...] = (
    Layer("AttnBlock_Fork", Kind.FORK, ("local", "two"), Kept.SHARED),
    Layer("AttnBlock_LayerNorm", Kind.NORM, ("local", "hidden")),
    Layer("AttnBlock_F", Kind.GATHER, _WHOLE, when=When.SEPARATE, gathers_again=True),
    Layer("AttnBlock_Multihead_Fork", Kind.FORK, ("whole", "three"), Kept.GATHERED_ATTENTION,
          When.SEPARATE, again=True),
    Layer("AttnBlock_QKV_AG", Kind.GATHER_LINEAR, ("tokens", "query_key_value", "hidden"),
          when=When.MERGED_HEADS, gathers_again=True),
    Layer("AttnBlock_Query_AG", Kind.GATHER_LINEAR, ("tokens", "query", "hidden"),
          when=When.MERGED_QUERY, gathers_again=True),
    Layer("AttnBlock_KV_Fork", Kind.FORK, ("whole", "two"), Kept.GATHERED_ATTENTION,
          When.MERGED_QUERY, again=True),
    Layer("AttnBlock_Query", Kind.LINEAR, ("tokens", "query", "hidden"), Kept.SHARED,
          When.SEPARATE),
    Layer("AttnBlock_Key", Kind.LINEAR, ("tokens", "key", "hidden"), Kept.SHARED, When.OWN_KEY),
    Layer("AttnBlock_Value", Kind.LINEAR, ("tokens", "key", "hidden"), Kept.SHARED, When.OWN_KEY),
    Layer("AttnBlock_Multihead_Key_Query", Kind.PRODUCT,
          ("heads", "sequence", "sequence", "head", "query_elements"), again=True),
    Layer("AttnBlock_Multihead_SoftMax", Kind.SOFTMAX, ("scores",), Kept.ATTENTION, again=True),
    Layer("AttnBlock_Multihead_DropOut", Kind.DROPOUT, ("scores",), Kept.ATTENTION, again=True),
    Layer("AttnBlock_Multihead_Attn", Kind.PRODUCT,
          ("heads", "sequence", "head", "sequence", "scores"), Kept.ATTENTION_INPUT),
    Layer("AttnBlock_MLP", Kind.LINEAR, ("tokens", "hidden", "query"), when=When.SEPARATE),
    Layer("AttnBlock_G", Kind.SCATTER, _WHOLE, Kept.WORKING, When.SEPARATE),
    Layer("AttnBlock_MLP_RS", Kind.LINEAR_SCATTER, ("tokens", "hidden", "query"),
          when=When.MERGED),
    Layer("AttnBlock_DropOut", Kind.DROPOUT, _LOCAL),
    Layer("AttnBlock_Residual", Kind.ADD, _LOCAL, Kept.SHARED),
    Layer("MlpBlock_Fork", Kind.FORK, ("local", "two"), Kept.SHARED),
    Layer("MlpBlock_LayerNorm", Kind.NORM, ("local", "hidden")),
    Layer("MlpBlock_F", Kind.GATHER, _WHOLE, when=When.SEPARATE),
    Layer("MlpBlock_Mlp1", Kind.LINEAR, ("tokens", "inner", "hidden"), Kept.GATHERED,
          When.SEPARATE),
    Layer("MlpBlock_Mlp1_AG", Kind.GATHER_LINEAR, ("tokens", "inner", "hidden"),
          when=When.MERGED),
    Layer("MlpBlock_GeLU", Kind.ACTIVATION, ("inner_elements",)),
    Layer("MlpBlock_Mlp2", Kind.LINEAR, ("tokens", "hidden", "inner"), when=When.SEPARATE),
    Layer("MlpBlock_G", Kind.SCATTER, _WHOLE, Kept.WORKING, When.SEPARATE),
    Layer("MlpBlock_Mlp2_RS", Kind.LINEAR_SCATTER, ("tokens", "hidden", "inner"),
          when=When.MERGED),
    Layer("MlpBlock_DropOut", Kind.DROPOUT, _LOCAL),
    Layer("MlpBlock_Residual", Kind.ADD, _LOCAL, Kept.SHARED),
)  # fmt: skip


class EstimateRules(NamedTuple):
    """What an estimate does where one can do otherwise; True is what Calculon does.

    Attributes
    ----------
    recomputed_sums_are_cumulative
        Each layer that is computed again counts all flops and bytes of the block up to it, and
        not its own alone. The time of recomputing is right; flops, bytes and their times, which
        the overlap of data parallelism uses, are not.
    exposed_time_is_of_base_block
        Of layers that overlap their communication, the edge block exposes what the base block
        does, although it does another operation under ``p2p_rs_ag``.
    lone_stage_has_latency
        A pipeline of one stage still spends a point-to-point latency at each edge block, where
        the overlap of offloading and of data parallelism looks at it.
    checkpoints_are_whole
        With full recomputation each rank keeps whole inputs of blocks, also where sequence
        parallelism splits them.
    blocks_of_calculon
        A model is equal blocks of Calculon's layers, without embedding, head and loss, and stages
        are equal; else it is what ``nadi generate llm`` generates, and the rules above and
        below have no effect.
    compute_slows_once
        Communication of data parallelism that overlaps with the last chunk slows the computing
        of one block, whatever the number of blocks.
    """

    recomputed_sums_are_cumulative: bool = True
    exposed_time_is_of_base_block: bool = True
    lone_stage_has_latency: bool = True
    checkpoints_are_whole: bool = True
    compute_slows_once: bool = True
    blocks_of_calculon: bool = True


CALCULON = EstimateRules()
DEFAULT = EstimateRules(*(False for _ in EstimateRules._fields))


def rules_named(compat: str) -> EstimateRules:
    """Give the rules of another program, or the default for an empty name.

    Raises
    ------
    UsageError
        If there is no such program.
    """
    known = {"": DEFAULT, "calculon": CALCULON}
    if compat not in known:
        raise UsageError([Parameter("compat", compat)], "no such rules", "known: calculon")
    return known[compat]
