"""A transformer as its estimate needs it: sizes, by the names of Calculon's application files."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["ModelDescription"]

_Positive = Annotated[int, Meta(ge=1, le=2**31)]
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
    """

    hidden: _Positive
    feedforward: _Positive
    seq_size: _Positive
    attn_heads: _Positive
    attn_size: _Positive
    num_blocks: _Positive
    name: str = ""

    @property
    def num_parameters(self) -> int:
        """Parameters, with biases, positions and an embedding of 51,200 tokens (as Calculon)."""
        heads = self.attn_heads * self.attn_size
        attention = 4 * self.hidden * heads + 3 * heads + self.hidden
        mlp = 2 * self.hidden * self.feedforward + self.feedforward + self.hidden
        norms = 4 * self.hidden
        return (
            self.num_blocks * (attention + mlp + norms)
            + (_VOCABULARY + self.seq_size) * self.hidden
        )
