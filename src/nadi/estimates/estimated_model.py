"""A transformer as its estimate needs it: sizes, by the names of Calculon's application files."""

from typing import Annotated

import msgspec
from msgspec import Meta

from nadi.models.llm.language_model import LanguageModel

LONGEST_SEQUENCE = 2**31  # tokens
_Positive = Annotated[int, Meta(ge=1, le=LONGEST_SEQUENCE)]
_Few = Annotated[int, Meta(ge=1, le=2**16)]  # as many as a described model may have
_VOCABULARY = 51200


class ModelDescription(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A transformer of identical blocks.

    Attributes
    ----------
    hidden
        Width of the residual stream, in elements.
    feedforward
        Width of the MLP's inner layer, in elements.
    seq_size
        Tokens of a sequence.
    attn_heads, attn_size
        Heads of the attention, and elements of each.
    num_blocks
        Number of transformer blocks.
    name
        What people call it; it has no effect.
    language
        The whole language model, if it was described as one: Nadi's default rules use it.
    """

    hidden: _Positive
    feedforward: _Positive
    seq_size: _Positive
    attn_heads: _Few
    attn_size: _Positive
    num_blocks: _Few
    name: str = ""
    language: LanguageModel | None = None

    @property
    def language_model(self) -> LanguageModel:
        """The language model: that which was described, or the one that these sizes are.

        The latter has what Calculon counts as its parameters: 51,200 tokens, learned positions,
        biases, and one table for the embedding and the head.
        """
        if self.language is not None:
            return self.language
        return LanguageModel(
            layers=self.num_blocks, hidden=self.hidden, heads=self.attn_heads, vocab=_VOCABULARY,
            name=self.name, head_dim=self.attn_size, ffn=self.feedforward, attention_bias=True,
            mlp_bias=True, position="learned", max_positions=self.seq_size, tied_embeddings=True,
            sequence=self.seq_size,
        )  # fmt: skip

    @property
    def num_parameters(self) -> int:
        """Parameters; of Calculon's sizes, those of :attr:`language_model` as Calculon has them."""
        if self.language is not None:
            return self.language.total_parameters
        return self._num_parameters_of_calculon

    @property
    def _num_parameters_of_calculon(self) -> int:
        """Parameters, with biases, positions and an embedding of 51,200 tokens (as Calculon)."""
        heads = self.attn_heads * self.attn_size
        attention = 4 * self.hidden * heads + 3 * heads + self.hidden
        mlp = 2 * self.hidden * self.feedforward + self.feedforward + self.hidden
        norms = 4 * self.hidden
        return (
            self.num_blocks * (attention + mlp + norms)
            + (_VOCABULARY + self.seq_size) * self.hidden
        )
