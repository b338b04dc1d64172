"""Pipelines whose stages move tensors of a second memory tier: all of their moves are followed.

When a stage waits for its moves depends on the order of its passes, and where stages share the
tier on those of all others. No closed form is near it. So the moves are followed one by one
(:mod:`nadi.estimates.shared_tier_kernels`), once for executions that have the same ones.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from nadi.estimates.calculon.machine_description import MachineDescription, MemoryColumns
from nadi.estimates.described_columns import rows_of
from nadi.estimates.execution import Executions, StepShape
from nadi.estimates.generated_blocks import GeneratedCosts
from nadi.estimates.shared_tier_kernels import (
    AT,
    LINK,
    LOAD,
    PARTS,
    PIPELINE,
    STAGE,
    STORE,
    UNIT,
    Schedule,
    Work,
    count_moves,
    follow_pipelines,
)
from nadi.models.llm.pipeline_schedules import (
    FORWARD,
    PipelineSchedule,
    pipeline_schedule,
    spread_layers,
)
from nadi.systems.memory_tiers import usual_buffers
from nadi.trace.arrays import Bools, Floats, Ints

_MOVED = np.isin(np.arange(len(PIPELINE)), [
    PIPELINE.weights, PIPELINE.experts, PIPELINE.kept, PIPELINE.stored_again,
    PIPELINE.loaded_again, PIPELINE.rows, PIPELINE.head, PIPELINE.state, PIPELINE.first_state,
    PIPELINE.last_state,
])  # fmt: skip
_COUNTED = [*range(PIPELINE.forward_count, PIPELINE.forward_work), PIPELINE.is_whole]
_PASSED = np.array([1.0, 1.0, 0.0])  # what is later if passes are, of what is followed
_LATE = 1e3  # seconds, beside which all reductions are hidden
_SETTLED = 2  # times as many micro-batches as stages, after which each further one takes as long


class SharedMoves(NamedTuple):
    """What moves on each stage, float64 of shape (executions,) or (1,)."""

    # forward, backward: seconds of a layer
    forward: Floats
    backward: Floats
    hop: Floats  # seconds of a message to another stage
    # bytes of a layer, of rows of the embedding, and of the head
    weights: Floats  # without experts
    experts: Floats
    kept: Floats
    stored_again: Floats
    loaded_again: Floats
    rows: Floats
    head: Floats
    # bytes of the optimizer's state of a layer, the embedding and the head
    state: Floats
    first_state: Floats
    last_state: Floats
    latency: Floats  # seconds of a byte, by the tensors that move


class Followed(NamedTuple):
    """Of executions whose moves are followed: float64, shape (rows,)."""

    rows: Ints  # int64: which of all executions
    every: int  # how many executions there are
    passes: Floats  # seconds until all passes are done
    loaded: Floats  # seconds from then on until the update's first states are loaded
    backward: Floats  # seconds of a layer's backward of the last micro-batch

    def of(self, column: Floats) -> Floats:
        """Give the values of these executions of those of all."""
        return np.broadcast_to(column, self.every)[self.rows]

    def into(self, column: Floats, values: Floats) -> Floats:
        """Put values of these executions among those of all."""
        if not self.rows.size:
            return column
        found = np.array(np.broadcast_to(column, self.every))
        found[self.rows] = values
        return found


def are_followed(executions: Executions) -> Bools:
    """Tell in which executions the moves of stages are followed."""
    e = executions
    moves = (e.weight_offload | e.activations_offload) == 1
    return np.broadcast_to(moves & (e.training == 1) & (e.pipeline_par > 1), e.num_executions)


def followed(
    machine: MachineDescription, executions: Executions, shape: StepShape, costs: GeneratedCosts,
    moves: SharedMoves, *, follows: bool,
) -> Followed:  # fmt: skip
    """Follow the executions of pipelines whose moves no closed form gives.

    If not ``follows``, what is known of their moves without following them: passes take at least
    as long as given, and gradients are reduced, and states are loaded, beside them.
    """
    e, num = executions, executions.num_executions
    rows = np.flatnonzero(are_followed(e))
    found = Followed(rows, num, *np.zeros((3, rows.size)))
    if not rows.size:
        return found
    first, last, counts = costs.first, costs.last, costs.counts
    some, one = np.array([1e9]), np.ones(1, dtype=np.int64)  # what tells tiers apart
    columns = (
        *(e.pipeline_par, e.pipeline_interleaving, shape.microbatches, shape.num_blocks),
        *(e.ends_as_layers, e.procs_of_stage, moves.forward, moves.backward),
        *(first.forward.whole, first.backward.whole, last.forward.whole, last.backward.whole),
        *(
            moves.hop,
            moves.weights,
            moves.experts,
            moves.kept,
            moves.stored_again,
            moves.loaded_again,
            moves.rows,
            moves.head,
            usual_buffers(machine.mem1.capacity),
        ),
        *(counts.forward, counts.backward, counts.end, *counts[-8:]),
        *(counts.forward_work, counts.backward_work),
        *(counts.end_work, e.is_named("activation_recompute", "full"), counts.late_weights),
        *(counts.kept_until_quarter, counts.kept_until_half, counts.kept_until_three_quarters),
        *(moves.state, moves.first_state, moves.last_state, machine.mem2.stages_together(e)),
        *(machine.mem2.moving_time(*moved, one) for moved in ((some, 0 * some), (0 * some, some))),
        moves.latency,
    )
    table = np.stack([found.of(np.asarray(one, dtype=np.float64)) for one in columns], axis=1)
    different, where, number = np.unique(table, axis=0, return_index=True, return_inverse=True)
    kinds, kind = np.unique(different[:, :5].astype(np.int64), axis=0, return_inverse=True)
    seconds = np.empty((where.size, 3))
    for place, of_kind in enumerate(kinds.tolist()):
        here = np.flatnonzero(kind.reshape(-1) == place)
        some = np.ascontiguousarray(different[here, 6:-3])
        tier = rows_of(machine.mem2, rows[where[here]])
        of_bytes = _seconds_of_bytes(tier, some, different[here, 5].astype(np.int64))
        of_bytes = np.where(of_bytes > 0, of_bytes + different[here, -1, None, None], of_bytes)
        some[np.ix_(~(of_bytes > 0).any(axis=(1, 2)), _MOVED)] = 0.0
        schedules = _Schedules(*of_kind)
        seconds[here] = schedules.least(some, of_bytes, duplex=tier.duplex)[:, None]
        if follows:
            ends = schedules.followed(some, of_bytes, duplex=tier.duplex)
            # more micro-batches are followed by what some of them take
            late = np.maximum(seconds[here, :1] - ends[:, :1], 0.0)
            seconds[here] = ends + late * _PASSED
    passes, loaded, backwards = seconds[number.reshape(-1)].T
    layers = found.of(shape.num_blocks / shape.chunks)  # the last pass of a stage has one chunk
    backward = backwards / layers + (0.0 if follows else _LATE)
    return found._replace(passes=passes, loaded=loaded - passes, backward=backward)


def _seconds_of_bytes(tier: MemoryColumns, rows: Floats, processors: Ints) -> Floats:
    """Give the seconds of a byte while so many stages move some: shape (executions, movers, 2)."""
    weights = rows[:, PIPELINE.weights] + rows[:, PIPELINE.experts]
    size = np.maximum(weights, rows[:, PIPELINE.kept])
    sharing = rows[:, PIPELINE.sharing].astype(np.int64)
    none = np.zeros(1)
    found = np.empty((size.size, 2 * int(sharing.max()), 2))
    for movers in range(1, found.shape[1] + 1):
        # of half duplex tiers, a stage that loads and stores counts twice
        there = np.minimum(movers, sharing)
        for way, moved in enumerate(((size, none), (none, size))):
            each = (tier.moving_time(*moved, there * processors) - tier.latency) / size
            if tier.GBps_of_device[0]:  # its path moves both at once
                device = tier.device_time(np.ones(1), way) * np.minimum(
                    movers * processors, 2 * tier.shared_by
                )
                found[:, movers - 1, way] = np.maximum(each, device)
            else:
                found[:, movers - 1, way] = each * np.maximum(movers / sharing, 1.0)
    return found


class _Schedules(NamedTuple):
    """Executions with the same schedule."""

    stages: int
    chunks: int
    micro_batches: int
    layers: int
    ends: int  # 1 if embedding and head count as layers

    @property
    def cuts(self) -> Ints:
        """The layers at each position."""
        return _cuts(self.layers, self.stages * self.chunks, self.ends)

    @property
    def few(self) -> tuple[int, int]:
        """So many micro-batches are followed, and so many rounds of one per stage come after."""
        settled = _SETTLED * self.stages + self.micro_batches % self.stages
        rounds = (self.micro_batches - settled) // self.stages
        return (settled, rounds) if rounds >= 2 else (self.micro_batches, 0)

    def of(self, micro_batches: int) -> Schedule:
        """Give the passes of so many micro-batches."""
        return Schedule(*_passes(self.stages, self.chunks, micro_batches), self.cuts)

    def followed(self, rows: Floats, seconds: Floats, *, duplex: bool) -> Floats:
        """Follow executions: shape (executions, 3), as of ``follow_pipelines``."""

        def until(few: int) -> Floats:
            found, schedule = np.empty((rows.shape[0], 3)), self.of(few)
            follow_pipelines(schedule, _work(schedule, few), rows, seconds, int(duplex), found)
            return found

        few, rounds = self.few
        found = until(few)
        if not rounds:
            return found
        longer = until(few + self.stages)[:, :1] - found[:, :1]
        whole: Floats = found + rounds * longer * _PASSED
        return whole

    def least(self, rows: Floats, seconds: Floats, *, duplex: bool) -> Floats:
        """Give what the passes of executions take at least: shape (executions,).

        No stage is done before its own computations and those of one micro-batch on all stages
        before it, and no tier is done before it has moved the bytes of its stages at the rate that
        it has at best. The larger one of two bounds is one, too.
        """

        def of(name: int) -> Floats:
            return rows[:, name, None]

        own = self.cuts.reshape(self.chunks, self.stages)
        layer, ends = (
            of(PIPELINE.forward) + of(PIPELINE.backward),
            np.zeros((len(rows), self.stages)),
        )
        ends[:, :1] = of(PIPELINE.first_forward) + of(PIPELINE.first_backward)
        passed = np.cumsum(own[0] * layer + ends + 2.0 * of(PIPELINE.hop), axis=1)
        ends[:, -1:] += of(PIPELINE.last_forward) + of(PIPELINE.last_backward)
        computed = self.micro_batches * (own.sum(axis=0) * layer + ends)
        computed[:, 1:] += passed[:, :-1]
        found: Floats = computed.max(axis=1)
        best = (seconds / np.arange(1, seconds.shape[1] + 1)[:, None]).min(axis=1)
        moving = self._moved(rows) * best[:, None]
        groups = np.arange(self.stages) // of(PIPELINE.sharing)
        for group in range(int(groups.max()) + 1):
            ways = np.where((groups == group)[:, :, None], moving, 0.0).sum(axis=1)
            found = np.maximum(found, ways.max(axis=1) if duplex else ways.sum(axis=1))
        return found

    def _moved(self, rows: Floats) -> Floats:
        """Give the bytes that passes load and store: shape (executions, stages, 2).

        Which layers' tensors stay between two passes depends on how many operations these have, and
        on how many layers' backward is shorter than the head, for which others wait.
        In a settled pipeline, each round of micro-batches moves as much as the one before it.
        """
        head = rows[:, PIPELINE.last_forward] + rows[:, PIPELINE.last_backward]
        early = (head - 2.0 * rows[:, PIPELINE.hop]) // rows[:, PIPELINE.backward]
        asked = np.column_stack([np.clip(early, -1, self.layers), rows[:, _COUNTED]])
        counts, number = np.unique(asked, axis=0, return_inverse=True)
        found = np.zeros((len(rows), self.stages, 2))
        passes = self.micro_batches * self.cuts.reshape(self.chunks, self.stages).sum(axis=0)
        for way, name in ((LOAD, PIPELINE.loaded_again), (STORE, PIPELINE.stored_again)):
            found[:, :, way] = passes * rows[:, name, None]
        found[:, 0, LOAD] += self.micro_batches * rows[:, PIPELINE.rows]
        found[:, -1, LOAD] += self.micro_batches * rows[:, PIPELINE.head]
        for name in (PIPELINE.weights, PIPELINE.experts, PIPELINE.kept):
            if not rows[:, name].any():
                continue
            moved = np.stack([_moved_bytes(self, name, *one) for one in counts.tolist()])
            found += moved[number.reshape(-1)] * rows[:, name, None, None]
        return found

    def counted(self, rows: Floats) -> Floats:
        """Count moved bytes: shape (executions, stages, 2)."""

        def until(few: int) -> Floats:
            found, schedule = np.empty((len(rows), self.stages, 2)), self.of(few)
            count_moves(schedule, _work(schedule, few), rows, found)
            return found

        few, rounds = self.few
        found = until(few)
        return found + rounds * (until(few + self.stages) - found) if rounds else found


@lru_cache(maxsize=16384)  # parts of a search ask for the same ones
def _moved_bytes(schedules: _Schedules, name: int, early: float, *counts: float) -> Floats:
    """Give how often stages load and store a layer's tensors: shape (stages, 2)."""
    row = np.ones((1, len(PIPELINE)))
    row[:, [PIPELINE.last_backward, PIPELINE.hop]] = 0.0
    row[:, [PIPELINE.last_forward, *_COUNTED]] = early, *counts
    row[:, _MOVED] = 0.0
    row[:, name] = 1.0
    found: Floats = schedules.counted(row)[0]
    return found


@lru_cache(maxsize=1024)
def _cuts(layers: int, places: int, ends: int) -> Ints:
    spread = spread_layers(layers, places, ends=bool(ends))
    return np.array([len(one) for one in spread], dtype=np.int64)


def _work(schedule: Schedule, micro_batches: int) -> Work:
    stages, positions = schedule.first.size - 1, schedule.cuts.size
    units = int((schedule.cuts[schedule.passes[:, 1]] * PARTS + 2).sum()) + stages
    return Work(
        np.zeros((units, len(UNIT))), np.zeros((units, len(LINK)), dtype=np.int64),
        np.zeros((positions, micro_batches), dtype=np.int64),
        np.zeros((2, positions, int(schedule.cuts.max()))),
        np.zeros((stages, len(AT)), dtype=np.int64), np.zeros((stages, len(STAGE))),
        np.zeros((2, positions, micro_batches)), np.zeros((stages, 2)),
        np.zeros((stages, 2), dtype=np.int64),
    )  # fmt: skip


@lru_cache(maxsize=64)
def _passes(stages: int, chunks: int, micro_batches: int) -> tuple[Ints, Ints]:
    """List the passes of all stages, and the first one of each."""
    name: PipelineSchedule = "interleaved" if chunks > 1 else "1f1b"
    # where micro-batches do not fill all stages, the last ones lack some
    full = -(-micro_batches // stages) * stages if chunks > 1 else micro_batches
    found = []
    for stage, order in enumerate(pipeline_schedule(name, stages, full, chunks)):
        way = (order.phase != FORWARD).astype(np.int64)
        passes = np.stack([way, order.chunk * stages + stage, order.micro_batch], axis=1)
        found.append(passes[order.micro_batch < micro_batches])
    first = np.cumsum([0, *(one.shape[0] for one in found)])
    return np.ascontiguousarray(np.concatenate(found)), first
