"""What-if: the same job with some of its operations or dependencies changed."""

from nadi.whatif.answers import Limit, WhatIf, ideal_limits, sweep, what_if
from nadi.whatif.change_syntax import FORMS, parse_change, parse_selection, parse_values
from nadi.whatif.changes import Change, apply_change
from nadi.whatif.dependency_changes import AddDependency, CutDependencies
from nadi.whatif.duration_changes import NoGaps, NoOverhead, Scale, SetTime
from nadi.whatif.launch_changes import Fuse, Graphed
from nadi.whatif.network_change import Network
from nadi.whatif.removal_change import Remove
from nadi.whatif.selection import Selection
from nadi.whatif.stream_change import MoveToStream

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
