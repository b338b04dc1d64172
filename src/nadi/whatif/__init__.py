"""What-if: the same job with some of its operations or dependencies changed."""

from nadi.whatif.answers import Limit, WhatIf, ideal_limits, sweep, what_if
from nadi.whatif.changes import Change, apply_change
from nadi.whatif.dependencies import AddDependency, CutDependencies
from nadi.whatif.launching import Fuse, Graphed
from nadi.whatif.network import Network
from nadi.whatif.parse import FORMS, parse_change, parse_selection, parse_values
from nadi.whatif.removal import Remove
from nadi.whatif.selection import Selection
from nadi.whatif.streams import MoveToStream
from nadi.whatif.weights import NoGaps, NoOverhead, Scale, SetTime

__all__ = [
    "FORMS",
    "AddDependency",
    "Change",
    "CutDependencies",
    "Fuse",
    "Graphed",
    "Limit",
    "MoveToStream",
    "Network",
    "NoGaps",
    "NoOverhead",
    "Remove",
    "Scale",
    "Selection",
    "SetTime",
    "WhatIf",
    "apply_change",
    "ideal_limits",
    "parse_change",
    "parse_selection",
    "parse_values",
    "sweep",
    "what_if",
]
