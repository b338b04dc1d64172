"""The seconds of pipelines whose chunks have different numbers of layers.

Which stage waits for which then depends on all of them, and no closed form is near it. So the
schedule itself is followed, for all executions at once that have the same one: an operation begins
when the one before it on its stage, and the one whose tensor it reads, are done.
"""

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

_FEW = 341  # stages squared, times chunks: others are followed only where embedding and head count
_SETTLED = 2  # times as many micro-batches as stages, after which each further one takes as long


class ChunkSeconds(NamedTuple):
    """Seconds of a micro-batch, forward and backward: float64 of shape (2, executions)."""

    layer: Floats
    first: Floats  # of the embedding
    last: Floats  # of the head
    waits: Floats  # for a message that was sent before
    hop: Floats  # of a message; shape (executions,)


class _Operation(NamedTuple):
    """A chunk's forward or backward of one micro-batch."""

    stage: int
    way: int  # 0 forward, 1 backward
    position: int
    micro_batch: int
    source: int  # the operation whose tensor it reads, or -1
    is_near: bool  # whether that is on the same stage, so that no message comes in between


def is_followed(stages: Ints, chunks: Ints, places: Ints, ends: Ints) -> Bools:
    """Tell which executions have schedules that are followed: bool, shape (executions,)."""
    uneven = (places % (stages * chunks) != 0) & (stages**2 * chunks <= _FEW)
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
    # those that go on are followed once more, for a round of micro-batches longer
    on = np.flatnonzero(rounds)
    rows = np.concatenate([np.arange(stages.size), on])
    followed = np.concatenate([few, few[on] + stages[on]])
    kinds, number = np.unique(
        np.stack([stages, chunks, ends])[:, rows], axis=1, return_inverse=True
    )
    found = np.empty(rows.size)
    for kind, (p, v, counted) in enumerate(kinds.T.tolist()):
        here = np.flatnonzero(number.reshape(-1) == kind)
        own = ChunkSeconds(*(column[..., rows[here]] for column in seconds))
        cuts = [len(one) for one in spread_layers(layers, p * v, ends=bool(counted))]
        found[here] = _seconds(cuts, (p, v), followed[here], own)
    whole, longer = found[: stages.size], found[stages.size :]
    whole[on] += rounds[on] * (longer - whole[on])
    return whole


def _seconds(
    cuts: list[int], shape: tuple[int, int], micro_batches: Ints, seconds: ChunkSeconds
) -> Floats:
    """Give the seconds of executions with the same stages and chunks.

    A schedule of fewer micro-batches is that of more, without the operations of the others.

    - ``cuts``: The layers of each chunk.
    """
    took = [
        [cut * one + wait for cut in cuts]
        for one, wait in zip(seconds.layer, seconds.waits, strict=True)
    ]
    for way in range(2):
        took[way][0] = took[way][0] + seconds.first[way]
        took[way][-1] = took[way][-1] + seconds.last[way]
    least, most = int(micro_batches.min()), int(micro_batches.max())
    free = [np.zeros_like(seconds.hop)] * shape[0]
    done: list[Floats] = []
    for stage, way, position, micro_batch, source, is_near in _operations(*shape, most):
        begin = free[stage]
        if source >= 0:
            begin = np.maximum(begin, done[source] + (0.0 if is_near else seconds.hop))
        end = begin + took[way][position]
        if micro_batch >= least:
            end = np.where(micro_batch < micro_batches, end, free[stage])
        free[stage] = end
        done.append(end)
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
                found.append(_Operation(stage, way, position, micro_batch, before, is_near))
    return tuple(found)
