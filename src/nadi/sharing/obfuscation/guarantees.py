"""What each level preserves, what it removes, against whom it protects, and what it is not."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["GUARANTEES", "IN_BOX", "LEVELS", "NOT_GUARANTEED", "Guarantee"]

LEVELS = ("names", "shapes", "structure", "private")
"""The levels of obfuscation; each removes what those before it do."""


IN_BOX = 0.02
"""By which share the step time may differ at level shapes on any system of the box."""


class Guarantee(NamedTuple):
    """What a level promises, each in a few sentences.

    Attributes
    ----------
    preserved, removed
        What stays, and what goes.
    against
        Who learns nothing about what, and who still can.
    tolerance
        By how much step time and critical path may differ on a system, as a share of the step
        time; negative if nothing is promised.
    """

    preserved: str
    removed: str
    against: str
    tolerance: float


GUARANTEES = {
    "names": Guarantee(
        "operations in their order, kinds, classes, durations, sizes, FLOPs, dependencies, process "
        "groups, layers and micro-batches",
        "names, modules, paths, hosts, users, process and thread numbers, operands, free text, and "
        "the time of day",
        "someone without the key who wants names; not against someone who knows which models "
        "exist, because shapes and counts say which one it is",
        0.01,
    ),
    "shapes": Guarantee(
        "operations in their order, kinds, classes, durations and dependencies; sizes and FLOPs "
        "up to the factor that the tolerance allows",
        "what names removes, and exact sizes and shapes",
        "someone who looks a size up; not against someone who counts layers or combines "
        "several sizes",
        0.01,
    ),
    "structure": Guarantee(
        "computing time between communications, types, groups and volume of communication, and "
        "what overlaps",
        "what shapes removes; single operations, their classes and their number, layers, "
        "micro-batches and phases",
        "someone who compares operations, shapes, sequences and timing ratios with those of known "
        "models; not against someone who knows the parallel layout and device, and computes the "
        "ratio of computation to communication",
        0.03,
    ),
    "private": Guarantee(
        "for how long each rank computes and how much each axis of communication carries, both "
        "noisy",
        "what structure removes; order, types, number and overlap of communications, groups "
        "within an axis, and the exact time and size of everything",
        "someone who knows all of the job but whether one short computation or one small "
        "communication is in it, up to epsilon; not about the parallel layout, which is published "
        "as it is",
        -1.0,
    ),
}
"""What each level promises, by its name."""

NOT_GUARANTEED = (
    "It is no encryption: what simulations need can be read by everyone.",
    "Parallel layout is not hidden; below private, types of collectives and their order neither.",
    "Step time, and so about how large the job is, is not hidden.",
    "Releases of several recordings of one job can be recognized as of one job, at every level.",
    "Reports of releases at private add up: their epsilons are summed for one job.",
)
"""What no level promises, in sentences."""
