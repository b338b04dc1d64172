"""The seconds of pipelines whose chunks have different numbers of layers.

Which stage waits for which then depends on all of them, and no closed form is near it. So the
schedule itself is followed, for all executions at once that have the same one: an operation begins
when the one before it on its stage, and the one whose tensor it reads, are done.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from nadi.models.llm.pipeline_schedules import (
    FORWARD,
    PipelineSchedule,
    neighbors,
    pipeline_schedule,
    spread_layers,
)
from nadi.trace.arrays import Bools, Floats, Ints

_FEW = 1 << 11  # operations: longer schedules are followed only where embedding and head count
_SETTLED = 3  # times as many micro-batches as stages, after which each further one takes as long


class ChunkSeconds(NamedTuple):
    """Seconds of a micro-batch, forward and backward: float64 of shape (2, executions)."""

    layer: Floats
    first: Floats  # of the embedding
    last: Floats  # of the head
    hop: Floats  # of a message; shape (executions,)


class _Operation(NamedTuple):
    """A chunk's forward or backward of one micro-batch."""

    stage: int
    way: int  # 0 forward, 1 backward
    position: int
    source: int  # the operation whose tensor it reads, or -1
    is_near: bool  # whether that is on the same stage, so that no message comes in between


def is_followed(stages: Ints, chunks: Ints, places: Ints, ends: Ints) -> Bools:
    """Tell which executions have schedules that are followed: bool, shape (executions,)."""
    uneven = (places % (stages * chunks) != 0) & (2 * _SETTLED * stages**2 * chunks <= _FEW)
    found: Bools = (stages > 1) & (stages * chunks <= places) & (uneven | (ends == 1))
    return found


def followed_seconds(layers: int, schedules: Ints, seconds: ChunkSeconds) -> Floats:
    """Give the seconds of all micro-batches of executions.

    - ``layers``: Of the model.
    - ``schedules``: Shape (4, executions): stages, chunks of each, micro-batches, and whether
      embedding and head count as layers.
    """
    stages, chunks, micro_batches, ends = schedules
    settled = _SETTLED * stages + micro_batches % stages
    rounds = np.where(micro_batches > settled + stages, (micro_batches - settled) // stages, 0)
    few = np.where(rounds > 0, settled, micro_batches)
    kinds, number = np.unique(
        np.stack([stages, chunks, few, ends, rounds > 0]), axis=1, return_inverse=True
    )
    found = np.empty(stages.size)
    for kind, (p, v, m, counted, goes_on) in enumerate(kinds.T.tolist()):
        here = number.reshape(-1) == kind
        own = ChunkSeconds(*(column[..., here] for column in seconds))
        cuts = [len(one) for one in spread_layers(layers, p * v, ends=bool(counted))]
        found[here] = _seconds(cuts, (p, v, m), own)
        if goes_on:
            more = _seconds(cuts, (p, v, m + p), own)
            found[here] += rounds[here] * (more - found[here])
    return found


def _seconds(cuts: list[int], shape: tuple[int, int, int], seconds: ChunkSeconds) -> Floats:
    """Give the seconds of executions with the same stages, chunks and micro-batches.

    - ``cuts``: The layers of each chunk.
    """
    stages, chunks, micro_batches = shape
    took = [[cut * one for cut in cuts] for one in seconds.layer]
    for way in range(2):
        took[way][0] = took[way][0] + seconds.first[way]
        took[way][-1] = took[way][-1] + seconds.last[way]
    free = [np.zeros_like(seconds.hop)] * stages
    done: list[Floats] = []
    for stage, way, position, source, is_near in _operations(stages, chunks, micro_batches):
        begin = free[stage]
        if source >= 0:
            begin = np.maximum(begin, done[source] + (0.0 if is_near else seconds.hop))
        free[stage] = begin + took[way][position]
        done.append(free[stage])
    found: Floats = np.maximum.reduce(free)
    return found


@lru_cache(maxsize=256)
def _operations(stages: int, chunks: int, micro_batches: int) -> tuple[_Operation, ...]:
    """List the operations of a schedule so that each comes behind those it waits for."""
    name: PipelineSchedule = "interleaved" if chunks > 1 else "1f1b"
    # where micro-batches do not fill all stages, the last ones lack some
    full = -(-micro_batches // stages) * stages if chunks > 1 else micro_batches
    orders = [
        list(zip(*(one.tolist() for one in order[:3]), strict=True))
        for order in pipeline_schedule(name, stages, full, chunks)
    ]
    last = stages * chunks - 1
    number: dict[tuple[int, int, int], int] = {}
    found: list[_Operation] = []
    turn = [0] * stages
    while any(turn[stage] < len(order) for stage, order in enumerate(orders)):
        for stage, order in enumerate(orders):
            while turn[stage] < len(order):
                phase, chunk, micro_batch = order[turn[stage]]
                way = 0 if phase == FORWARD else 1
                position = neighbors(name, stage, chunk, stages, chunks).position
                if way == 0:
                    source = (0, position - 1, micro_batch) if position else None
                else:
                    source = (0, last, micro_batch) if position == last else (
                        1, position + 1, micro_batch
                    )  # fmt: skip
                if source is not None and source not in number:
                    break
                turn[stage] += 1
                if micro_batch >= micro_batches:
                    number[way, position, micro_batch] = -1
                    continue
                before = -1 if source is None else number[source]
                is_near = source is not None and source[1] % stages == stage
                number[way, position, micro_batch] = len(found)
                found.append(_Operation(stage, way, position, before, is_near))
    return tuple(found)
