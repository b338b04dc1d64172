"""What clocks of ranks may be, worked out pair by pair."""

from __future__ import annotations

import math
from typing import Any

Part = dict[str, Any]
ALL_WAIT = {"all_reduce", "all_gather", "all_to_all", "reduce_scatter", "barrier"}


def waits_for(one: Part, other: Part) -> bool:
    """Tell whether a rank's part in a communication cannot end before another's has begun."""
    kind = one["comm_type"]
    if one["comm_bytes"] == 0 and kind != "barrier":
        return False
    if kind in ALL_WAIT:
        return True
    if kind in ("broadcast", "scatter"):
        return bool(other["rank"] == one["src"])
    if kind in ("reduce", "gather"):
        return bool(one["rank"] == one["dst"])
    return bool(kind == "recv" and other["comm_type"] == "send")


def distances(num_ranks: int, parts: list[Part]) -> list[list[float]]:
    """Give for ranks i and j how much more than i's the shift of j may be (Floyd, Warshall)."""
    bound = [[0 if i == j else math.inf for j in range(num_ranks)] for i in range(num_ranks)]
    for one in parts:
        for other in parts:
            same = one["collective"] == other["collective"] and one["rank"] != other["rank"]
            if same and waits_for(one, other):
                i, j = one["rank"], other["rank"]
                bound[i][j] = min(bound[i][j], one["end"] - other["start"])
    for k in range(num_ranks):
        for i in range(num_ranks):
            for j in range(num_ranks):
                bound[i][j] = min(bound[i][j], bound[i][k] + bound[k][j])
    return bound


def components(num_ranks: int, parts: list[Part]) -> list[int]:
    """Give the lowest rank that each rank has to do with, be it by way of others."""
    lowest = list(range(num_ranks))
    for _ in range(num_ranks):
        for one in parts:
            for other in parts:
                if one["collective"] == other["collective"]:
                    lowest[one["rank"]] = min(lowest[one["rank"]], lowest[other["rank"]])
    return lowest
