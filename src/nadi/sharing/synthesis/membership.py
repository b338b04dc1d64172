"""Whether a job is one of those that a model was learned from: an attack on the model's file."""

from collections.abc import Sequence

import numpy as np

from nadi.sharing.synthesis.learned_model import Template, TraceModel
from nadi.sharing.synthesis.learning import template_of
from nadi.trace.trace import Job, Trace

_COUNTS = ("num_ranks", "num_steps", "num_layers", "hidden")


def distance_to_model(model: TraceModel, job: Job | Sequence[Trace]) -> float:
    """Return how far a job is from the nearest that a model was learned from; 0 for the same.

    A model keeps of each job how many ranks, steps and layers it has, its width, its memory, how
    slow each step of each rank was, and how much of this its operations explain. Whoever has a job
    can work out the same numbers of it. O(operations log operations).

    - Raises NadiError if the job cannot be converted to what simulators take.
    """
    own = template_of(job)
    return min(_apart(own, one) for one in model.templates)


def _apart(one: Template, other: Template) -> float:
    apart = float(sum(getattr(one, name) != getattr(other, name) for name in _COUNTS))
    apart += one.memory.lasting != other.memory.lasting
    for mine, theirs in ((one.pace, other.pace), (one.load, other.load)):
        same = mine.shape == theirs.shape
        apart += float(np.abs(mine - theirs).mean()) if same and mine.size else float(not same)
    return apart + abs(one.noise_share - other.noise_share)
