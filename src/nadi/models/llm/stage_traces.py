"""The trace of a stage of the pipeline: its chunks, in the order of the schedule."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.models.job_rows import Link
from nadi.models.llm.chunk_rows import (
    BackwardKind,
    Chunk,
    Links,
    backward_rows,
    chunk_of,
    forward_rows,
)
from nadi.models.llm.chunk_tensors import ChunkTensors
from nadi.models.llm.language_model import LanguageModel
from nadi.models.llm.lasting_tensors import LastingTensors
from nadi.models.llm.optimizer_rows import optimizer_rows
from nadi.models.llm.parallel_plan import ParallelPlan
from nadi.models.llm.pipeline_schedules import (
    BACKWARD,
    FORWARD,
    INPUT_GRADIENT,
    WEIGHT_GRADIENT,
    StageOrder,
    neighbors,
)
from nadi.models.row_traces import StepOrder, trace_of_rows
from nadi.trace.arrays import Bools, Ints
from nadi.trace.trace import Trace

__all__ = ["stage_chunks", "stage_trace"]


def stage_chunks(model: LanguageModel, plan: ParallelPlan, stage: int) -> list[Chunk]:
    """Return the chunks of the model's layers that a stage holds."""
    positions = [place.position for place in _places(plan, stage)]
    return [chunk_of(model, plan, one, has_table=0 in positions) for one in positions]


def stage_trace(model: LanguageModel, plan: ParallelPlan, stage: int, order: StageOrder) -> Trace:
    """Make the trace that all ranks of a stage share, whose groups are roles.

    Computations have no durations. O(nodes).
    """
    return trace_of_rows(
        _step(model, plan, stage, order), list(plan.groups(model)), plan.world_size
    )


def _places(plan: ParallelPlan, stage: int) -> list[_Place]:
    v = plan.chunks if plan.schedule == "interleaved" else 1
    found = []
    for chunk in range(plan.stage_chunks):
        position, source, destination = neighbors(plan.schedule, stage, chunk, plan.pp, v)
        before = None if source is None or source[0] == stage else source[0]
        after = None if destination is None or destination[0] == stage else destination[0]
        # messages of a micro-batch are numbered by the place where they cross, and their direction
        links = Links(
            None if before is None else Link(before, 2 * position - 2),
            None if after is None else Link(after, 2 * position),
            None if after is None else Link(after, 2 * position + 1),
            None if before is None else Link(before, 2 * position - 1),
        )
        found.append(_Place(position, links))
    return found


class _Place(NamedTuple):
    """Where a chunk stands along the pipeline, and its links."""

    position: int
    links: Links


_BACKWARDS = {
    BACKWARD: (True, True), INPUT_GRADIENT: (True, False), WEIGHT_GRADIENT: (False, True),
}  # fmt: skip


def _step(model: LanguageModel, plan: ParallelPlan, stage: int, order: StageOrder) -> StepOrder:
    """Return which piece comes when, of which micro-batch, and the rows of the pieces."""
    phase, chunk = order.phase, order.chunk
    reduces = _is_last(np.isin(phase, (BACKWARD, WEIGHT_GRADIENT)), chunk)
    keys = np.stack([phase, chunk, reduces.astype(np.int64)])
    different, number = np.unique(keys, axis=1, return_inverse=True)
    places, chunks = _places(plan, stage), stage_chunks(model, plan, stage)
    lasting = LastingTensors(model, plan, [one for chunk in chunks for one in chunk.layers])
    tensors = _tensors(model, plan, stage, chunks, lasting)
    made = []
    # all forwards come first, then those gradients of inputs that are apart
    for of_phase, of_chunk, is_last in different.T.tolist():
        own, links, flow = chunks[of_chunk], places[of_chunk].links, tensors[of_chunk]
        if of_phase == FORWARD:
            made.append(forward_rows(model, plan, own, links, flow))
            continue
        kind = BackwardKind(*_BACKWARDS[of_phase], bool(is_last))
        made.append(backward_rows(model, plan, own, links, flow, kind))
    pieces, micro_batches = number.reshape(-1), order.micro_batch
    if not plan.inference:
        made.append(optimizer_rows(model, plan, chunks, lasting))
        pieces = np.append(pieces, len(made) - 1)
        micro_batches = np.append(micro_batches, -1)
    return StepOrder(made, pieces, micro_batches, 2 * plan.positions)


def _tensors(
    model: LanguageModel, plan: ParallelPlan, stage: int, chunks: list[Chunk],
    lasting: LastingTensors,
) -> list[ChunkTensors]:  # fmt: skip
    """Return the tensors of each chunk; one after another on the same stage gets what it gives."""
    v = plan.chunks if plan.schedule == "interleaved" else 1
    found: list[ChunkTensors] = []
    for number, chunk in enumerate(chunks):
        source = neighbors(plan.schedule, stage, number, plan.pp, v).source
        before = found[source[1]] if source is not None and source[0] == stage else None
        found.append(ChunkTensors(model, plan, chunk.layers, lasting, before))
    return found


def _is_last(chosen: Bools, chunk: Ints) -> Bools:
    """Return which are the last chosen ones of their chunk."""
    found = np.zeros(chosen.size, dtype=np.bool_)
    for number in np.unique(chunk[chosen]).tolist():
        found[np.flatnonzero(chosen & (chunk == number))[-1]] = True
    return found
