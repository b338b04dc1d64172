"""How many bytes of tensors each stage of a recorded rank has at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nadi.jobs.recorded_blocks import EVERY, Blocks
from nadi.jobs.recorded_memory import Lives, Sharing, peak_bytes
from nadi.jobs.recorded_ranks import Direction, RecordedRank
from nadi.trace.arrays import Ints

__all__ = ["StageBlocks", "stage_bytes"]


class StageBlocks(NamedTuple):
    """The blocks of a model, those of each stage, and the micro-batches of a step."""

    blocks: Blocks
    cuts: Sequence[Ints]
    micro_batches: int


def stage_bytes(
    known: RecordedRank, lives: Lives, sharing: Sharing | None, stages: StageBlocks
) -> list[int]:
    """Return the most bytes of tensors of each stage.

    A stage holds what its forward gives for the backward once for each micro-batch that 1F1B has
    under way there. States of an optimizer that works on all weights at once are divided as
    weights are.
    """
    blocks, cuts, micro_batches = stages
    block = _block_of_lives(known, lives, blocks)
    direction = known.parts.direction[known.operators.part]
    given = np.maximum(lives.giver, 0)
    is_saved = (lives.giver >= 0) & (direction[given] == Direction.FORWARD)
    is_saved &= direction[lives.last] == Direction.BACKWARD
    is_saved &= known.parts.micro_batch[known.operators.part[given]] == 0  # of one
    of_forward = lives._replace(first=np.zeros_like(lives.first), last=np.zeros_like(lives.last))
    lasts = (lives.giver < 0) & (block == EVERY)
    whole = max(int(blocks.weights.sum()), 1)
    found = []
    for number, own in enumerate(cuts):
        is_own = np.isin(block, own)
        under_way = min(len(cuts) - number, micro_batches)
        saved = peak_bytes(of_forward, sharing, is_own & is_saved)
        beside = peak_bytes(of_forward, sharing, lasts) * blocks.weights[own].sum() / whole
        moving = is_own | ((lives.giver >= 0) & (block == EVERY))
        found.append(round(peak_bytes(lives, sharing, moving) + (under_way - 1) * saved + beside))
    return found


def _block_of_lives(known: RecordedRank, lives: Lives, blocks: Blocks) -> Ints:
    """Return the block of each storage: of who gives it, or of the weights that it belongs to."""
    found = np.where(lives.giver >= 0, blocks.of_operator[np.maximum(lives.giver, 0)], EVERY)
    operators = known.operators
    reader: dict[int, int] = {}
    ends = np.flatnonzero(known.parts.direction[operators.part] == Direction.END)
    for number in ends.tolist():
        for use in operators.inputs[number]:
            reader.setdefault(use.storage, int(blocks.of_operator[number]))
    for place in np.flatnonzero(lives.giver < 0).tolist():
        storage = int(lives.storage[place])
        found[place] = blocks.of_weight.get(storage, reader.get(storage, EVERY))
    return found
