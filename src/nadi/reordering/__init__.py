"""Reordering: what may start earlier than the program has it, by the data that it needs."""

from nadi.reordering.applied import Reordering, reorder
from nadi.reordering.moves import Move, MoveEarlier
from nadi.reordering.search import Candidate, Found, find_reorders
from nadi.reordering.units import BLOCKERS

__all__ = [
    "BLOCKERS",
    "Candidate",
    "Found",
    "Move",
    "MoveEarlier",
    "Reordering",
    "find_reorders",
    "reorder",
]
