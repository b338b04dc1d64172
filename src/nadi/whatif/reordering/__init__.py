"""Reordering: what may start earlier than the program has it, by the data that it needs."""

from nadi.whatif.reordering.applied_moves import Reordering, reorder
from nadi.whatif.reordering.movable_units import BLOCKERS
from nadi.whatif.reordering.move_search import Candidate, Found, find_reorders
from nadi.whatif.reordering.moves import Move, MoveEarlier

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
