"""What ``nadi.folding`` gives; each name is loaded when it is first used."""

from .folded_job import FoldedJob as FoldedJob
from .folded_trace import (
    FoldedTrace as FoldedTrace,
    fold_trace as fold_trace,
    unfold_trace as unfold_trace,
)
from .rank_roles import RankClasses as RankClasses, classes_of_ranks as classes_of_ranks
