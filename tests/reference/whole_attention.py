"""A transformer, position by position from the start, in plain Python."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np


def likeliness(known: Any, start: int, symbols: Sequence[int]) -> list[float]:
    """Say how likely each symbol comes next; as ``TransformerDraws.logits``, without memory."""
    program = known.program[known.start.tolist().index(start)]
    places = [known.symbol.tolist().index(one) for one in symbols]
    inputs = [program, *(known.embedding[one] + program for one in places)]
    vectors = [np.array(one, dtype=np.float64) for one in inputs]
    for layer in known.layers:
        rows = [norm(one, layer.attention_norm) @ layer.mix for one in vectors]
        vectors = [
            one + attended(rows, place) @ layer.out for place, one in enumerate(vectors)
        ]  # fmt: skip
        vectors = [
            one + np.array([max(x, 0.0) ** 2 for x in norm(one, layer.work_norm) @ layer.up])
            @ layer.down
            for one in vectors
        ]  # fmt: skip
    last = norm(vectors[-1], known.norm)
    return [
        float(row @ last) + float(b) for row, b in zip(known.embedding, known.bias, strict=True)
    ]


def norm(vector: Any, scale: Any) -> Any:
    size = sum(float(one) ** 2 for one in vector) / len(vector)
    return vector / math.sqrt(size + 1e-6) * scale


def attended(rows: list[Any], place: int) -> Any:
    """Mix the values of the last 256 positions, for each of four heads."""
    width = rows[0].size // 3
    size = width // 4
    found = []
    for head in range(4):
        own = slice(head * size, (head + 1) * size)
        query = turned(rows[place][:width][own], place)
        seen = range(max(place - 255, 0), place + 1)
        score = [
            float(query @ turned(rows[at][width : 2 * width][own], at)) / math.sqrt(size)
            for at in seen
        ]  # fmt: skip
        weight = [math.exp(one - max(score)) for one in score]
        found.append(sum(
            w * rows[at][2 * width :][own] for w, at in zip(weight, seen, strict=True)
        ) / sum(weight))  # fmt: skip
    return np.concatenate(found)


def turned(vector: Any, place: int) -> Any:
    half = vector.size // 2
    found = np.array(vector, dtype=np.float64)
    for pair in range(half):
        angle = place * 1000.0 ** (-pair / half)
        one, other = vector[pair], vector[half + pair]
        found[pair] = one * math.cos(angle) - other * math.sin(angle)
        found[half + pair] = one * math.sin(angle) + other * math.cos(angle)
    return found
