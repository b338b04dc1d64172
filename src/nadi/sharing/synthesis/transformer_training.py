"""Train the transformer of :mod:`nadi.sharing.synthesis.transformer`, with torch on the CPU.

The embedding of a token is a vector of its own and one for each of its fields: so tokens that are
alike in name, stream or what they wait for are so from the start.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.sharing.synthesis.tokens import Token
from nadi.sharing.synthesis.transformer import (
    EPSILON,
    HEADS,
    WINDOW,
    LayerWeights,
    Transformer,
    rotations,
)
from nadi.trace.arrays import Bools, Ints

__all__ = ["required_torch", "train_transformer"]

_WIDTH, _LAYERS = 96, 3
_ROWS, _LENGTH = 4, 384
_LEAD = 64
"""Symbols of a part from within a sequence that are only context."""
_UPDATES = 600
_WARM_UP = 20
_RATE, _LAST_RATE = 3e-3, 0.1
_RECENT, _GOOD = 20, 0.01
"""Training ends when so many updates had a mean loss below so many nats."""
_FIELDS = ("label", "kind", "comm_type", "op_class", "dtype", "thread", "stream", "group",
           "nth_group", "peer", "size", "waits")  # fmt: skip


class _Batch(NamedTuple):
    """Parts of sequences in rows; int64 and bool, shape (rows, length).

    Attributes
    ----------
    symbol
        Position of the symbol before; -1 at the start of a sequence.
    start
        Position of what the sequence begins with.
    part
        Which part of the row each position belongs to.
    target
        Position of the symbol that comes.
    counts
        Whether it is asked for.
    """

    symbol: Ints
    start: Ints
    part: Ints
    target: Ints
    counts: Bools


def required_torch() -> Any:
    """Return the package torch.

    Raises
    ------
    UsageError
        If it is not installed.
    """
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise UsageError(
            Parameter("model", "transformer"), "it needs the package torch, which is not installed",
            "pip install 'nadi[learn]', or learn with ngram",
        ) from None  # fmt: skip


def train_transformer(
    sequences: Sequence[tuple[Sequence[int], int]],
    tokens: Sequence[Token],
    progress: Callable[[str], None] = lambda _: None,
) -> Transformer:
    """Learn what follows what; the same sequences give the same weights on the same machine.

    Sequences with the same start have as much weight together as others, for each symbol of
    theirs. O(updates), at most 600: a few minutes on one core.

    Parameters
    ----------
    sequences
        As of :func:`nadi.sharing.synthesis.back_off.count_contexts`.
    tokens
        By number. Other symbols are negative, or larger than that.

    Raises
    ------
    UsageError
        If torch is not installed.
    """
    torch = required_torch()
    symbol = np.unique(np.concatenate([np.array(one[1:]) for one, _ in sequences]))
    start = np.unique([one[0] for one, _ in sequences])
    training = _Training(torch, _fields(symbol, tokens), start.size)
    recent: list[float] = []
    for number, batch in enumerate(_batches(sequences, symbol, start)):
        recent = [*recent[-_RECENT + 1 :], training.update(batch, number)]
        mean = sum(recent) / len(recent)
        if number % 10 == 0:
            progress(f"training: {number} of {_UPDATES} updates, loss {mean:.3f}")
        if len(recent) == _RECENT and mean < _GOOD:
            break
    return training.trained(symbol, start)


def _fields(symbol: Ints, tokens: Sequence[Token]) -> Ints:
    """Return numbers of each symbol and of the fields of its token; int64, (symbols, fields).

    -1 for a field of what is no token.
    """
    known: dict[tuple[str, object], int] = {}
    rows = []
    for place, one in enumerate(symbol.tolist()):
        row = [known.setdefault(("symbol", place), len(known))]
        for name in _FIELDS:
            is_token = 0 <= one < len(tokens)
            key = name, getattr(tokens[one], name) if is_token else None
            row.append(known.setdefault(key, len(known)) if is_token else -1)
        rows.append(row)
    return np.array(rows, dtype=np.int64)


def _batches(
    sequences: Sequence[tuple[Sequence[int], int]], symbol: Ints, start: Ints
) -> Iterator[_Batch]:
    """Give random parts of sequences, several in a row where they are short."""
    random = np.random.default_rng(0)
    first = np.array([np.searchsorted(start, one[0]) for one, _ in sequences])
    coded = [np.searchsorted(symbol, np.array(one[1:])) for one, _ in sequences]
    weight = np.array([weight for _, weight in sequences], dtype=np.float64)
    weight /= np.bincount(first, weights=weight)[first]
    weight *= [max(one.size, 1) for one in coded]
    weight /= weight.sum()
    for _ in range(_UPDATES):
        shape = _ROWS, _LENGTH
        symbol_before, of_start, of_part, target = (
            np.zeros(shape, dtype=np.int64) for _ in range(4)
        )
        counts = np.zeros(shape, dtype=np.bool_)
        batch = _Batch(symbol_before, of_start, of_part, target, counts)
        for row in range(_ROWS):
            at = part = 0
            while at < _LENGTH:
                which = int(random.choice(first.size, p=weight))
                own = coded[which]
                # starts come as often as other places, though fewer parts hold them
                begin = max(int(random.integers(-_LEAD, max(own.size - _LENGTH, 0) + 1)), 0)
                size = min(own.size - begin, _LENGTH - at)
                rows = slice(at, at + size)
                before = np.append(-1, own)[begin : begin + size]
                batch.symbol[row, rows], batch.target[row, rows] = before, own[begin : begin + size]
                batch.start[row, rows], batch.part[row, rows] = first[which], part
                batch.counts[row, rows] = np.arange(size) >= (_LEAD if begin else 0)
                at, part = at + size, part + 1
        yield batch


class _Training:
    """Weights that are being learned, and what an update does."""

    def __init__(self, torch: Any, fields: Ints, num_starts: int) -> None:
        self._torch = torch
        random = torch.Generator().manual_seed(0)

        def drawn(*shape: int, scale: float) -> Any:
            return torch.randn(*shape, generator=random).mul_(scale).requires_grad_()

        def ones() -> Any:
            return torch.ones(_WIDTH).requires_grad_()

        self._fields = torch.from_numpy(np.maximum(fields, 0))
        self._stated = torch.from_numpy((fields >= 0).astype(np.float32))[..., None]
        inner = _WIDTH**-0.5
        small = inner / (2 * _LAYERS) ** 0.5
        self._table = drawn(int(fields.max()) + 1, _WIDTH, scale=0.02)
        self._bias = torch.zeros(fields.shape[0]).requires_grad_()
        self._program = drawn(num_starts, _WIDTH, scale=0.1)
        self._norm = ones()
        self._layers = [
            [ones(), drawn(_WIDTH, 3 * _WIDTH, scale=inner), drawn(_WIDTH, _WIDTH, scale=small),
             ones(), drawn(_WIDTH, 4 * _WIDTH, scale=inner),
             drawn(4 * _WIDTH, _WIDTH, scale=small / 2)]
            for _ in range(_LAYERS)
        ]  # fmt: skip
        weights = [self._table, self._bias, self._program, self._norm,
                   *(one for layer in self._layers for one in layer)]  # fmt: skip
        self._optimizer = torch.optim.AdamW(weights, lr=_RATE, betas=(0.9, 0.98), weight_decay=0.01)
        self._weights = weights
        self._turn = [torch.from_numpy(one)[None, None]
                      for one in rotations(0, _LENGTH, _WIDTH // HEADS)]  # fmt: skip

    def update(self, batch: _Batch, number: int) -> float:
        """Learn from a batch; returns the mean loss in nats."""
        torch = self._torch
        done = number / _UPDATES
        rate = _RATE * min((number + 1) / _WARM_UP, 1 - (1 - _LAST_RATE) * done)
        self._optimizer.param_groups[0]["lr"] = rate
        symbol, start, part, target, counts = (torch.from_numpy(one) for one in batch)
        embedding = self._embedding()
        vectors = embedding[symbol.clamp(min=0)] * (symbol >= 0)[..., None]
        logits = self._through(vectors + self._program[start], part) @ embedding.T + self._bias
        loss = torch.nn.functional.cross_entropy(logits[counts], target[counts])
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._weights, 1.0)
        self._optimizer.step()
        return float(loss.detach())

    def trained(self, symbol: Ints, start: Ints) -> Transformer:
        """Return what was learned, as arrays."""

        def array(one: Any) -> Any:
            return one.detach().numpy().copy()

        return Transformer(
            symbol, array(self._embedding()), array(self._bias), start, array(self._program),
            array(self._norm), tuple(LayerWeights(*map(array, one)) for one in self._layers),
        )  # fmt: skip

    def _embedding(self) -> Any:
        return (self._table[self._fields] * self._stated).sum(dim=1)

    def _through(self, vectors: Any, part: Any) -> Any:
        """As of :mod:`nadi.sharing.synthesis.transformer`, for all positions at once."""
        torch = self._torch
        rows, length, _ = vectors.shape
        place = torch.arange(length)
        apart = place[:, None] - place[None, :]
        mask = (apart >= 0) & (apart < WINDOW) & (part[:, :, None] == part[:, None, :])
        for before, mix, out, between, up, down in self._layers:
            mixed = (self._normed(vectors, before) @ mix).view(rows, length, 3, HEADS, -1)
            query, key, value = mixed.permute(2, 0, 3, 1, 4)
            found = torch.nn.functional.scaled_dot_product_attention(
                self._turned(query), self._turned(key), value, attn_mask=mask[:, None]
            )
            vectors = vectors + found.transpose(1, 2).reshape(rows, length, -1) @ out
            vectors = vectors + torch.relu(self._normed(vectors, between) @ up) ** 2 @ down
        return self._normed(vectors, self._norm)

    def _normed(self, vectors: Any, scale: Any) -> Any:
        mean = (vectors * vectors).mean(-1, keepdim=True)
        return vectors * self._torch.rsqrt(mean + EPSILON) * scale

    def _turned(self, vectors: Any) -> Any:
        one, other = vectors.chunk(2, dim=-1)
        cosine, sine = self._turn
        return self._torch.cat([one * cosine - other * sine, one * sine + other * cosine], dim=-1)
