"""What ``nadi.whatif`` gives; each name is loaded when it is first used."""

from .balance_change import Balance as Balance
from .change_syntax import (
    parse_change as parse_change,
    parse_selection as parse_selection,
    parse_values as parse_values,
)
from .changes import (
    AddDependency as AddDependency,
    Change as Change,
    CutDependencies as CutDependencies,
    NoGaps as NoGaps,
    NoOverhead as NoOverhead,
    OnNetwork as OnNetwork,
    Remove as Remove,
    Scale as Scale,
    ScaleWait as ScaleWait,
    SetTime as SetTime,
    apply_change as apply_change,
)
from .parts import PartOf as PartOf, part_operations as part_operations
from .prediction_intervals import Interval as Interval
from .promising_changes import TriedChange as TriedChange, best_changes as best_changes
from .reordering.move_search import (
    Candidate as Candidate,
    Found as Found,
    Reordering as Reordering,
    find_reorders as find_reorders,
    reorder as reorder,
)
from .reordering.moves import Move as Move, MoveEarlier as MoveEarlier
from .selection import Selection as Selection
from .stream_changes import Fuse as Fuse, Graphed as Graphed, MoveToStream as MoveToStream
from .what_if_results import (
    Limit as Limit,
    WhatIf as WhatIf,
    balanced_ranks as balanced_ranks,
    ideal_limits as ideal_limits,
    redraw as redraw,
    sweep as sweep,
    what_if as what_if,
)
