"""Time that stages of a pipeline wait for each other, at the begin and end of a step."""

from __future__ import annotations

import numpy as np

from nadi.estimates.step_shape import StepShape
from nadi.trace.arrays import Floats

__all__ = ["bubble_time"]


def bubble_time(shape: StepShape, base: Floats, edge: Floats) -> Floats:
    """Give the seconds of the bubble.

    Parameters
    ----------
    base, edge
        Seconds of a base and of an edge block of one microbatch: forward, backward, and all that
        is exposed.

    Notes
    -----
    Each further stage waits for a chunk. Where microbatches do not fill the stages, each chunk
    but one waits for those that lack. Stages that have a block less shorten it, by the mean of
    both kinds of block, or by an edge block where chunks have no other.
    """
    stages = shape.stages
    chunk = (shape.chunk_blocks - 1) * base + edge
    rest = shape.microbatches % stages
    lacking = np.where(rest > 0, (shape.chunks - 1) * (stages - rest), 0.0)
    saved = shape.missing * np.where(shape.chunk_blocks > 1, (base + edge) / 2, edge)
    return (stages - 1 + lacking) * chunk - saved
