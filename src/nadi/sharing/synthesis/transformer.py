"""What comes next, by a small transformer: the other model of sequences beside ``back_off``.

It was trained elsewhere (:mod:`nadi.sharing.synthesis.transformer_training`, which needs torch).
Here its
weights are arrays, and numpy draws from them, one symbol after the other.

Decoder with rotary positions (J. Su et al., RoFormer, 2021), root mean square norms and attention
to the last symbols only. Every position also has a vector of what the sequence is of.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nadi.trace.arrays import Ints

__all__ = ["EPSILON", "HEADS", "WINDOW", "LayerWeights", "Past", "Singles", "Transformer",
           "TransformerDraws", "check_transformer", "rotations"]  # fmt: skip

Singles = npt.NDArray[np.float32]

HEADS = 4
"""Parts of each vector that attend on their own."""
WINDOW = 256
"""Symbols that a position attends to, its own included."""
_BASE = 1000.0
_RARE = 0.02
"""Symbols are never drawn whose chance is below this share of that of the likeliest."""
_MOST_OPTIONS = 64
EPSILON = 1e-6
"""Added to mean squares."""


class LayerWeights(NamedTuple):
    """Weights of a layer; float32, applied from the right.

    Attributes
    ----------
    attention_norm, work_norm
        Shape (width,).
    mix
        Queries, keys and values; shape (width, 3 width).
    out
        Shape (width, width).
    up, down
        Shapes (width, 4 width) and (4 width, width), with squared positive parts between.
    """

    attention_norm: Singles
    mix: Singles
    out: Singles
    work_norm: Singles
    up: Singles
    down: Singles


class Transformer(NamedTuple):
    """A trained transformer.

    Attributes
    ----------
    symbol
        int64, shape (symbols,): what can come next, ascending.
    embedding
        float32, shape (symbols, width): of each; what comes next is compared with them, too.
    bias
        float32, shape (symbols,).
    start
        int64, shape (starts,): what sequences begin with, ascending.
    program
        float32, shape (starts, width): added to every position of a sequence.
    norm
        float32, shape (width,): of the last vectors.
    layers
        From the first to the last.
    """

    symbol: Ints
    embedding: Singles
    bias: Singles
    start: Ints
    program: Singles
    norm: Singles
    layers: tuple[LayerWeights, ...]

    @property
    def num_weights(self) -> int:
        """Number of weights."""
        own = (self.embedding, self.bias, self.program, self.norm)
        return sum(one.size for one in (*own, *(part for one in self.layers for part in one)))


class Past:
    """What came before in a sequence: keys and values of the last ``WINDOW`` positions.

    Parameters
    ----------
    start
        What the sequence begins with.
    """

    def __init__(self, transformer: Transformer, start: int) -> None:
        width = transformer.norm.size
        shape = (len(transformer.layers), WINDOW, HEADS, width // HEADS)
        self.keys = np.zeros(shape, dtype=np.float32)
        self.values = np.zeros(shape, dtype=np.float32)
        self.length = 0
        self.program = transformer.program[int(np.searchsorted(transformer.start, start))]
        self.new = [self.program]  # vectors that no layer has seen
        self._transformer = transformer

    def append(self, symbol: int) -> None:
        """Add a symbol."""
        place = int(np.searchsorted(self._transformer.symbol, symbol))
        self.new.append(self._transformer.embedding[place] + self.program)


class TransformerDraws:
    """Draws sequences from a transformer; used as :class:`nadi.sharing.synthesis.back_off.BackOff`.

    Parameters
    ----------
    temperature
        1 for as likely as learned, 0 for the likeliest, more for what is less likely.
    """

    def __init__(self, transformer: Transformer, temperature: float) -> None:
        self._transformer = transformer
        self._temperature = temperature

    def begin(self, start: int) -> Past:
        """Return a sequence of which only the start is there."""
        return Past(self._transformer, start)

    def next(self, past: Past, random: np.random.Generator) -> list[int]:
        """Draw the next symbol; those after it may replace it, the likeliest first."""
        logit = self.logits(past)
        order = np.argsort(-logit, kind="stable")[:_MOST_OPTIONS]
        drawn = int(order[0])
        if self._temperature:
            logit = (logit - logit[drawn]) / self._temperature
            weight = np.where(logit >= np.log(_RARE), np.exp(logit), 0.0)
            passed = np.cumsum(weight)
            drawn = int(np.searchsorted(passed, random.random() * passed[-1], side="right"))
        options = self._transformer.symbol[np.append(drawn, order)]
        return [int(one) for one in options]

    def logits(self, past: Past) -> npt.NDArray[np.float64]:
        """Return how likely each symbol comes next, as logarithms but for a constant."""
        for vector in past.new:
            found = _through(self._transformer, past, vector)
        past.new = []
        known = self._transformer
        return (known.embedding @ _normed(found, known.norm) + known.bias).astype(np.float64)


def rotations(first: int, count: int, size: int) -> tuple[Singles, Singles]:
    """Return cosines and sines by which positions turn pairs; float32, shape (count, size // 2)."""
    turns = _BASE ** (-np.arange(size // 2) / (size // 2))
    angle = np.arange(first, first + count)[:, None] * turns[None, :]
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def _through(known: Transformer, past: Past, vector: Singles) -> Singles:
    """Return what the layers make of the vector of the next position, and remember it."""
    width = vector.size
    size = width // HEADS
    cosine, sine = rotations(past.length, 1, size)
    seen = min(past.length + 1, WINDOW)
    place = past.length % WINDOW
    for number, layer in enumerate(known.layers):
        mixed = (_normed(vector, layer.attention_norm) @ layer.mix).reshape(3, HEADS, size)
        query, key = _turned(mixed[0], cosine, sine), _turned(mixed[1], cosine, sine)
        past.keys[number, place], past.values[number, place] = key, mixed[2]
        keys, values = past.keys[number, :seen], past.values[number, :seen]
        score = np.einsum("phs,hs->hp", keys, query) / np.sqrt(np.float32(size))
        weight = np.exp(score - score.max(axis=1, keepdims=True))
        weight /= weight.sum(axis=1, keepdims=True)
        vector = vector + np.einsum("hp,phs->hs", weight, values).reshape(width) @ layer.out
        inner = np.maximum(_normed(vector, layer.work_norm) @ layer.up, 0)
        vector = vector + (inner * inner) @ layer.down
    past.length += 1
    return vector


def _normed(vector: Singles, scale: Singles) -> Singles:
    return np.asarray(vector / np.sqrt((vector * vector).mean() + np.float32(EPSILON)) * scale)


def _turned(vectors: Singles, cosine: Singles, sine: Singles) -> Singles:
    one, other = np.split(vectors, 2, axis=-1)
    return np.concatenate([one * cosine - other * sine, one * sine + other * cosine], axis=-1)


def check_transformer(known: Transformer) -> None:
    """Raise ValueError if shapes do not belong together."""
    width, symbols, starts = known.norm.size, known.symbol.size, known.start.size
    of_layer = ((width,), (width, 3 * width), (width, width), (width,), (width, 4 * width),
                (4 * width, width))  # fmt: skip
    shapes: list[tuple[Singles, tuple[int, ...]]] = [
        (known.embedding, (symbols, width)), (known.bias, (symbols,)),
        (known.program, (starts, width)),
        *(pair for layer in known.layers for pair in zip(layer, of_layer, strict=True)),
    ]  # fmt: skip
    fits = all(part.shape == shape and part.dtype == np.float32 for part, shape in shapes)
    ascending = all((np.diff(one) > 0).all() for one in (known.symbol, known.start))
    if not fits or not ascending or not width or width % (2 * HEADS):
        raise ValueError("weights")
