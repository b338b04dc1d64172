"""Which rank has which tables, where ranks share them (model parallel embeddings).

Whole tables go to ranks, heaviest first, each to the rank with the least work so far. If there are
more ranks than tables, tables are cut into equal blocks of columns.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

from nadi.models.networks.layer_kinds import EmbeddingBag, LayerKind


class TableShare(NamedTuple):
    """What a rank has of the tables of a layer."""

    # rows, parameters: rows of its tables, and their elements
    rows: int = 0
    parameters: int = 0
    columns: int = 0  # of all of its tables together: elements that it gives for a sample
    lookups: int = 0  # rows that a sample takes of them
    elements: int = 0  # elements of these rows


def most_shares(kind: LayerKind) -> int:
    """Return how many ranks can have a part of the tables of a layer."""
    assert isinstance(kind, EmbeddingBag)
    return len(kind.rows) * (kind.width & -kind.width)


def table_shares(kind: EmbeddingBag, ranks: int) -> list[TableShare]:
    """Return the share of each rank.

    The work of a table is the elements that are looked up in it and given. Deterministic;
    O(tables log tables).
    """
    blocks = 1
    while len(kind.rows) * blocks < ranks:
        blocks *= 2
    columns = kind.width // blocks
    parts = [
        TableShare(rows, rows * columns, columns, lookups, lookups * columns)
        for rows, lookups in zip(kind.rows, kind.of_tables, strict=True)
        for _ in range(blocks)
    ]
    parts.sort(key=lambda part: (part.elements, part.parameters), reverse=True)
    shares = [TableShare()] * ranks
    least = [(0, 0, rank) for rank in range(ranks)]
    for part in parts:
        _, _, rank = heapq.heappop(least)
        share = TableShare(*(a + b for a, b in zip(shares[rank], part, strict=True)))
        shares[rank] = share
        heapq.heappush(least, (share.elements + share.columns, share.parameters, rank))
    return shares
