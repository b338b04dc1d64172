"""The order in which the stages of a pipeline work, by published schedules.

A pipeline has ``p`` stages and runs ``m`` micro-batches. A stage holds one or more chunks of the
model's layers, and works on one thing at a time: forward (F), the gradient of a chunk's input (B),
the gradient of its weights (W), or both gradients at once (BW). A schedule is the order of each
stage; when something starts follows from the order and from the data that it needs.

- ``gpipe``: all forward, then all backward (Huang et al., arXiv 1811.06965).
- ``1f1b``: one forward, one backward (Narayanan et al., arXiv 2006.09503).
- ``interleaved``: the same with ``v`` chunks per stage, in Megatron-LM's order (Narayanan et al.,
  arXiv 2104.04473, section 2.2).
- ``zero-bubble``: ZB-H1 (Qi et al., arXiv 2401.10241, section 2.1), which puts W where a stage
  would wait, and holds as many activations as 1F1B.
- ``zero-bubble-h2``: ZB-H2 (the same, section 2.2), which begins with twice as many forwards and
  puts W twice as late. Stages begin and end one after the other and hardly wait in between; they
  hold up to ``2 p - 1`` micro-batches.
- ``dualpipe``: half of the micro-batches from each end (DeepSeek-AI, arXiv 2412.19437, section
  3.2.1, and the eight steps of its repository). Stage ``s`` has the layers of position ``s`` for
  those from the first stage (chunk 0), and of ``p - 1 - s`` for the others (chunk 1).

With F, B and W of a stage's layers, a step takes ``m (F + B + W)`` and a bubble, if communication
takes no time: ``(p - 1)(F + B + W)`` for GPipe and 1F1B, a ``v``-th of it if interleaved, and
``(p - 1)(F + B - W)`` for ZB-H1, where W is the shortest and ``m >= p``. With ZB-H2 a stage waits
for ``(p - 1)(F + B - 2 W)`` between its first and its last work, where ``m >= 2 p - 1``; that the
last stage begins later is no wait, if no sum over all stages comes before the next step (section
4). For DualPipe the bubble is
``(p / 2 - 1)(F&B + B - 2 W)`` with F equal to B, where ``F&B`` is the time of a forward and a
backward (B and W) that overlap as one piece of work; it is ``(p / 2 - 1)(F + B - W)`` if they run
one after the other. (The sources of DualPipe call B + W a backward.)
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Literal, NamedTuple, NoReturn, TypeAlias, get_args

import numpy as np

from nadi.errors import UsageError
from nadi.trace.arrays import Bools, Ints

PipelineSchedule: TypeAlias = Literal[
    "gpipe", "1f1b", "interleaved", "zero-bubble", "zero-bubble-h2", "dualpipe"
]
SCHEDULES: tuple[PipelineSchedule, ...] = get_args(PipelineSchedule)

FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, BACKWARD = range(4)
"""Phases: F, B, W, and BW, both gradients at once."""


class StageOrder(NamedTuple):
    """What one stage does, in order."""

    # int64, shape (operations,): ``FORWARD``, ``INPUT_GRADIENT``, ``WEIGHT_GRADIENT`` or
    # ``BACKWARD``
    phase: Ints
    # chunk, micro_batch: int64, shape (operations,): of the stage's chunks, and of the pipeline's
    # micro-batches, from 0
    chunk: Ints
    micro_batch: Ints
    # bool, shape (operations,): a forward that DualPipe runs at the same time as the backward that
    # follows it, so that the communication of each is behind the other's computation
    overlaps_next: Bools


class Neighbors(NamedTuple):
    """Where a chunk stands in the model."""

    # of its layers among all chunks of the model, from 0, the one with the embedding
    position: int
    # source, destination: stage and chunk that its input comes from, and that its output goes to;
    # None at the ends. Gradients go the other way.
    source: tuple[int, int] | None
    destination: tuple[int, int] | None


def chunks_per_stage(schedule: PipelineSchedule, v: int = 1) -> int:
    """Return how many chunks each stage holds: ``v`` if interleaved, 2 for DualPipe, else 1."""
    return {"interleaved": v, "dualpipe": 2}.get(schedule, 1)


def spread_layers(layers: int, positions: int, *, ends: bool) -> list[range]:
    """Return the layers of each chunk; the last chunks have one less where they differ.

    - ``ends``: Whether embedding and head count as a layer each, the first and the last one.
    """
    cuts = np.array_split(np.arange(layers + 2 * ends), positions)
    limits = [0, *(int(cut[-1]) + 1 if cut.size else layers for cut in cuts)]
    if ends:
        limits = [min(max(one - 1, 0), layers) for one in limits]
    return [range(*pair) for pair in pairwise(limits)]


def neighbors(schedule: PipelineSchedule, stage: int, chunk: int, p: int, v: int = 1) -> Neighbors:
    """Return where a chunk of a stage stands in the model, and what stands beside it.

    - ``stage``, ``chunk``: From 0.
    - ``p``, ``v``: Number of stages, and of chunks per stage; the latter is of interleaved
      schedules.
    """
    if schedule == "dualpipe" and chunk == 1:
        source = (stage + 1, 1) if stage < p - 1 else None
        return Neighbors(p - 1 - stage, source, (stage - 1, 1) if stage else None)
    last = p - 1 if schedule == "dualpipe" else p * chunks_per_stage(schedule, v) - 1
    position = chunk * p + stage
    before = ((position - 1) % p, (position - 1) // p) if position else None
    after = ((position + 1) % p, (position + 1) // p) if position < last else None
    return Neighbors(position, before, after)


def check_pipeline(schedule: str, p: int, m: int, v: int = 1) -> None:
    """Raise UsageError if a schedule does not exist, or not for these numbers.

    - ``p``, ``m``, ``v``: Number of stages, of micro-batches of a step, and of chunks per stage.
    """
    if schedule not in SCHEDULES:
        _refuse(f"schedule {schedule!r}", "there is none", f"use one of {', '.join(SCHEDULES)}")
    where = f"schedule {schedule}"
    if min(p, m, v) < 1:
        what = f"{p} stages, {m} micro-batches and {v} chunks per stage"
        _refuse(where, f"{what} are not all 1 or more", "give another number")
    if schedule == "interleaved":
        if v < 2:
            _refuse(where, "a stage has one chunk", "give 2 or more chunks per stage, or use 1f1b")
        if m % p:
            fits = f"{m - m % p} or {m - m % p + p}" if m > p else f"{p}"
            what = f"{m} micro-batches are not a multiple of {p} stages"
            _refuse(where, what, f"{fits} micro-batches would fit")
    elif v != 1:
        what = f"{v} chunks per stage are for schedule interleaved only"
        _refuse(where, what, "leave them out, or use interleaved")
    if schedule == "dualpipe":
        if p % 2:
            fits = f"{p - 1} or {p + 1}" if p > 1 else "2"
            _refuse(where, f"{p} stages are not an even number", f"{fits} stages would fit")
        if m % 2 or m < 2 * p:
            what = f"{m} micro-batches are not an even number of at least twice the {p} stages"
            _refuse(where, what, f"{max(m + m % 2, 2 * p)} micro-batches would fit")


def pipeline_schedule(
    schedule: PipelineSchedule, p: int, m: int, v: int = 1
) -> tuple[StageOrder, ...]:
    """Return what each stage does, in order.

    - ``p``, ``m``, ``v``: Number of stages, of micro-batches of a step, and of chunks per stage.
    - Returns tuple of StageOrder: One per stage, from the first. Time and memory are linear in the
      operations.
    - Raises UsageError if there is no such schedule, or it does not exist for these numbers; the
      message says which would fit.
    """
    check_pipeline(schedule, p, m, v)
    order = _ORDERS[schedule]
    return tuple(order(stage, p, m, v) for stage in range(p))


def _gpipe(stage: int, p: int, m: int, v: int) -> StageOrder:
    return _in_turn(np.repeat(np.array([FORWARD, BACKWARD]), m))


def _one_forward_one_backward(stage: int, p: int, m: int, v: int) -> StageOrder:
    return _in_turn(_alternating(m, min(p - 1 - stage, m)))


def _interleaved(stage: int, p: int, m: int, v: int) -> StageOrder:
    """Give Megatron-LM's order: ``p`` micro-batches through a chunk, then through the next."""
    first = 2 * (p - 1 - stage) + (v - 1) * p
    phase = _alternating(m * v, min(first, m * v))
    turn = np.arange(m * v, dtype=np.int64)
    of_chunk = turn // p % v
    chunk, micro_batch = np.empty_like(phase), np.empty_like(phase)
    for kind, chunks in ((FORWARD, of_chunk), (BACKWARD, v - 1 - of_chunk)):
        chunk[phase == kind] = chunks
        micro_batch[phase == kind] = turn // (p * v) * p + turn % p
    return StageOrder(phase, chunk, micro_batch, np.zeros(phase.size, dtype=np.bool_))


def _zero_bubble(stage: int, p: int, m: int, v: int) -> StageOrder:
    """Give 1F1B with W ``stage`` micro-batches after B: no stage holds more than the first."""
    return _with_late_weights(m, p - 1 - stage, stage)


def _zero_bubble_h2(stage: int, p: int, m: int, v: int) -> StageOrder:
    """Give twice as many forwards at first, and W twice as late: stages shift, and do not wait."""
    return _with_late_weights(m, 2 * (p - 1 - stage), 2 * stage)


def _with_late_weights(m: int, first: int, late: int) -> StageOrder:
    """Return ``first`` forwards, then F, B and, ``late`` micro-batches after its B, W in turn."""
    turn = np.arange(m)
    phase = np.tile(np.array([FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT]), (m, 1))
    first = min(first, m)
    kept = np.stack([turn < m - first, turn >= 0, turn >= late], axis=1)
    last = np.full(min(late, m), WEIGHT_GRADIENT)
    return _in_turn(np.concatenate([np.full(first, FORWARD), phase[kept], last]))


def _alternating(count: int, first: int) -> Ints:
    """Return ``first`` forwards, then forwards and backwards in turn, then backwards."""
    middle = np.tile(np.array([FORWARD, BACKWARD]), count - first)
    return np.concatenate([np.full(first, FORWARD), middle, np.full(first, BACKWARD)])


def _in_turn(phase: Ints) -> StageOrder:
    """Give a stage of one chunk, which takes the micro-batches of each phase in turn."""
    micro_batch = np.empty_like(phase)
    for kind in range(4):
        of_kind = phase == kind
        micro_batch[of_kind] = np.arange(np.count_nonzero(of_kind))
    none = np.zeros(phase.size, dtype=np.bool_)
    return StageOrder(phase.astype(np.int64), np.zeros_like(phase), micro_batch, none)


_NEAR, _FAR = 0, 1  # chunks by where their micro-batches come from: the stage's end, or the other
_Step = tuple[int, int, bool]  # phase, chunk, overlaps the next


def _dualpipe(stage: int, p: int, m: int, v: int) -> StageOrder:
    """Give the eight steps of DualPipe; stages as far from the ends do the same, mirrored."""
    half, own = p // 2, min(stage, p - 1 - stage)
    to_middle = half - own - 1
    near, far = (FORWARD, _NEAR, False), (FORWARD, _FAR, False)
    both = [(FORWARD, _NEAR, True), (BACKWARD, _FAR, False)]
    other = [(FORWARD, _FAR, True), (BACKWARD, _NEAR, False)]
    weight = (WEIGHT_GRADIENT, -1, False)
    steady = m // 2 - p + own + 1
    # the stages in the middle have nothing to wait for at first: the two are faster apart
    start = [near, both[1], *other] if not to_middle else [*both, *other]
    # the second half of step 6 leaves W for the gaps of step 7
    drain = [_FAR, _NEAR] * (own + 1)
    split = [k > own for k in range(len(drain))]
    pieces: list[tuple[list[_Step], int]] = [
        ([near], 2 * to_middle),
        ([near, far], own + 1),
        ([(INPUT_GRADIENT, _FAR, False), weight, far], to_middle),
        (start, 1),
        ([*both, *other], steady - 1),
        ([both[1], *other], to_middle),
        ([(INPUT_GRADIENT if late else BACKWARD, chunk, False)
          for chunk, late in zip(drain, split, strict=True)], 1),
        ([weight, (INPUT_GRADIENT, _NEAR, False)], to_middle),
        ([weight], own + 1),
    ]  # fmt: skip
    rows = np.concatenate(
        [np.tile(np.array(steps, dtype=np.int64), (count, 1)) for steps, count in pieces]
    )
    phase, chunk, overlaps = rows[:, 0].copy(), rows[:, 1].copy(), rows[:, 2].astype(np.bool_)
    return _of_both_ends(phase, chunk, overlaps, mirrored=stage >= half, m=m)


def _of_both_ends(phase: Ints, chunk: Ints, overlaps: Bools, mirrored: bool, m: int) -> StageOrder:
    """Put in micro-batches in turn, and the W of what has waited longest."""
    micro_batch = np.empty_like(phase)
    near_chunk = int(mirrored)
    for role in (_NEAR, _FAR):
        first = m // 2 if role != near_chunk else 0
        for kinds in ((FORWARD,), (INPUT_GRADIENT, BACKWARD)):
            taken = (chunk == role) & np.isin(phase, kinds)
            micro_batch[taken] = first + np.arange(np.count_nonzero(taken))
    waiting, weights = phase == INPUT_GRADIENT, phase == WEIGHT_GRADIENT
    chunk[weights] = chunk[waiting]
    micro_batch[weights] = micro_batch[waiting]
    return StageOrder(phase, 1 - chunk if mirrored else chunk, micro_batch, overlaps)


def _refuse(where: str, what: str, remedy: str) -> NoReturn:
    raise UsageError(where, what, remedy)


_ORDERS: dict[PipelineSchedule, Callable[[int, int, int, int], StageOrder]] = {
    "gpipe": _gpipe,
    "1f1b": _one_forward_one_backward,
    "interleaved": _interleaved,
    "zero-bubble": _zero_bubble,
    "zero-bubble-h2": _zero_bubble_h2,
    "dualpipe": _dualpipe,
}
