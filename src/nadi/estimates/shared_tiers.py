"""Pipelines whose stages move tensors of a second memory tier: all of their moves are followed.

When a stage waits for its moves depends on the order of its passes, and where stages share the
tier on those of all others. No closed form is near it. So the moves are followed one by one
(:mod:`nadi.estimates.shared_tier_kernels`), once for executions that have the same ones.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from nadi.estimates.calculon.machine_description import MachineDescription, MemoryColumns
from nadi.estimates.described_columns import columns_in, rows_of
from nadi.estimates.execution import Executions, StepShape
from nadi.estimates.generated_blocks import GeneratedCosts, VisitShares
from nadi.estimates.shared_tier_kernels import (
    AT,
    LINK,
    LOAD,
    PARTS,
    PIPELINE,
    SLICE,
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
from nadi.trace.rows import number_rows

_MOVED = np.isin(np.arange(len(PIPELINE)), [
    PIPELINE.weights, PIPELINE.experts, PIPELINE.kept, PIPELINE.stored_again,
    PIPELINE.loaded_again, PIPELINE.rows, PIPELINE.head, PIPELINE.state, PIPELINE.first_state,
    PIPELINE.last_state,
])  # fmt: skip
_COUNTED = [*range(PIPELINE.forward_count, PIPELINE.forward_work), PIPELINE.is_whole]
_PASSED = np.array([1.0, 1.0, 0.0])  # what is later if passes are, of what is followed
_OTHERS = 7  # columns that tell pipelines apart beside those of PIPELINE
_BELOW = 1.0 - 1e-9  # what rounding may take from a bound
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
    visits: VisitShares  # when passes store and load these
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


def at_least(
    executions: Executions, shape: StepShape, costs: GeneratedCosts, moves: SharedMoves
) -> Followed:
    """Give what passes take at least with any second tier, by what the stages compute alone.

    Gradients are reduced, and states are loaded, beside them. Each position has the layers that
    divide, and some stage has the mean of all or more.
    """
    e = executions
    rows = np.flatnonzero(are_followed(e))
    found = Followed(rows, e.num_executions, *np.zeros((3, rows.size)))
    if not rows.size:
        return found
    layer, first, last = (
        found.of(one)
        for one in (
            moves.forward + moves.backward, costs.first.forward.whole + costs.first.backward.whole,
            costs.last.forward.whole + costs.last.backward.whole,
        )
    )  # fmt: skip
    stages, chunks, count = map(found.of, (shape.stages, shape.chunks, shape.microbatches))
    blocks, ends = found.of(shape.num_blocks), found.of(e.ends_as_layers.astype(np.float64))
    each = np.floor((blocks + 2.0 * ends) / (stages * chunks))
    own = np.maximum(chunks * each - ends, 0.0) * layer
    before = np.maximum((stages - 1.0) * each - ends, 0.0) * layer
    before = before + first + 2.0 * (stages - 1.0) * found.of(moves.hop)
    passes = np.maximum(count * (own + first), count * (own + last) + before)
    passes = np.maximum(passes, count * np.ceil(blocks / stages) * layer)
    return found._replace(passes=passes * _BELOW, backward=np.full(rows.size, _LATE))


class Pipelines:
    """Executions of pipelines whose moves are followed, whatever bandwidth the second tier has.

    Those that have the same moves are followed once.

    - ``rows``: int64, shape (followed,): which of ``every`` executions.
    - ``alike``: The different ones among them.
    - ``number``: int64, shape (followed,): which of the different ones each is.
    - ``layers``: float64, shape (followed,): of a pass.
    """

    def __init__(
        self, rows: Ints, every: int, alike: "_Different", number: Ints, layers: Floats
    ) -> None:
        """Work with those of :func:`pipelines_of`."""
        self.rows, self.every, self.number, self.layers = rows, every, number, layers
        self.alike = alike

    def part(self, rows: Ints) -> "Pipelines":
        """Give those of some executions, by number."""
        place = np.full(self.every, -1)
        place[self.rows] = np.arange(self.rows.size)
        place = place[rows]
        here = place[place >= 0]
        return Pipelines(
            np.flatnonzero(place >= 0), rows.size, self.alike, self.number[here], self.layers[here]
        )

    def followed(self, tier: MemoryColumns, *, follows: bool) -> Followed:
        """Follow them; if not ``follows``, give what is known of their moves without it.

        Passes take at least as long as given then, and gradients are reduced, and states are
        loaded, beside them.
        """
        if not self.rows.size:
            return Followed(self.rows, self.every, *np.zeros((3, 0)))
        used, first, again = np.unique(self.number, return_index=True, return_inverse=True)
        seconds = self.alike.seconds(used, rows_of(tier, self.rows[first]), follows=follows)
        passes, loaded, backwards = seconds[again].T
        # the last pass of a stage has one chunk
        backward = backwards / self.layers + (0.0 if follows else _LATE)
        return Followed(self.rows, self.every, passes, loaded - passes, backward)


def pipelines_of(
    machine: MachineDescription, executions: Executions, shape: StepShape, costs: GeneratedCosts,
    moves: SharedMoves,
) -> Pipelines:  # fmt: skip
    """Find the different ones among executions of pipelines whose moves no closed form gives."""
    e, num = executions, executions.num_executions
    rows = np.flatnonzero(are_followed(e))
    first, last, counts = costs.first, costs.last, costs.counts
    columns = (
        *(e.pipeline_par, e.pipeline_interleaving, shape.microbatches, shape.num_blocks),
        *(e.ends_as_layers, e.procs_of_stage, moves.latency),
        *(moves.forward, moves.backward),
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
        *moves.visits,
        *(moves.state, moves.first_state, moves.last_state, machine.mem2.stages_together(e)),
        *columns_in(machine.mem2),
    )
    listed = [
        np.array(np.broadcast_to(np.asarray(one, dtype=np.float64), num)[rows]) for one in columns
    ]
    number, where = number_rows([one.view(np.int64) for one in listed])
    table = np.stack([one[where] for one in listed], axis=1)
    pipelines = table[:, _OTHERS : _OTHERS + len(PIPELINE)]
    different = _Different(
        table[:, :5].astype(np.int64), table[:, 5].astype(np.int64), table[:, 6],
        np.ascontiguousarray(pipelines),
    )  # fmt: skip
    layers = np.broadcast_to(shape.num_blocks / shape.chunks, num)[rows]
    return Pipelines(rows, num, different, number, layers)


class _Different:
    """Executions of pipelines, each with other moves."""

    def __init__(self, schedules: Ints, processors: Ints, latency: Floats, rows: Floats) -> None:
        """Work with what :func:`pipelines_of` finds.

        - ``schedules``: int64, shape (executions, 5): fields of :class:`_Schedules`.
        - ``processors``: Of a stage.
        - ``latency``: Seconds of a byte.
        - ``rows``: float64, shape (executions, PIPELINE).
        """
        self.processors, self.latency, self.rows = processors, latency, rows
        self.kind, first = number_rows(list(np.ascontiguousarray(schedules.T)))
        self.kinds = schedules[first]
        self.sharing = rows[:, PIPELINE.sharing].astype(np.int64)
        self.is_known = np.zeros(len(rows), dtype=np.bool_)
        self.computed = np.zeros(len(rows))  # seconds of passes at least, by computations
        most = int((self.kinds[:, 0]).max()) if len(rows) else 0
        self.moved = np.zeros((len(rows), most, 2))  # bytes of each group of stages

    def seconds(self, which: Ints, tier: MemoryColumns, *, follows: bool) -> Floats:
        """Give what ``follow_pipelines`` does for some, or the least thrice: (which, 3)."""
        found = np.repeat(self._least(which, tier)[:, None], 3, axis=1)
        if not follows:
            return found
        for place, schedules in self._schedules(which):
            one = rows_of(tier, place)
            rows, of_bytes = self._with_tier(which[place], one)
            ends = schedules.followed(rows, of_bytes, duplex=one.duplex)
            # more micro-batches are followed by what some of them take
            late = np.maximum(found[place, :1] - ends[:, :1], 0.0)
            found[place] = ends + late * _PASSED
        return found

    def _schedules(self, which: Ints) -> Iterator[tuple[Ints, "_Schedules"]]:
        """Give those among some that have a schedule, for each schedule."""
        kind = self.kind[which]
        for number in np.unique(kind).tolist():
            yield np.flatnonzero(kind == number), _Schedules(*self.kinds[number].tolist())

    def _with_tier(self, which: Ints, tier: MemoryColumns) -> tuple[Floats, Floats]:
        """Give some, without moves that take no time, and the seconds of a byte."""
        rows, of_bytes = self.rows[which], self._of_bytes(which, tier)
        rows[np.ix_(~(of_bytes > 0).any(axis=(1, 2)), _MOVED)] = 0.0
        return rows, of_bytes

    def _of_bytes(self, which: Ints, tier: MemoryColumns) -> Floats:
        of_bytes = _seconds_of_bytes(tier, self.rows[which], self.processors[which])
        latency = self.latency[which, None, None]
        return np.where(of_bytes > 0, of_bytes + latency, of_bytes)

    def _least(self, which: Ints, tier: MemoryColumns) -> Floats:
        """Give what the passes of some take at least: shape (which,).

        No stage is done before its own computations and those of one micro-batch on all stages
        before it, and no tier is done before it has moved the bytes of its stages at the rate that
        it has at best. The larger one of two bounds is one, too.
        """
        self._count(which[~self.is_known[which]])
        best = np.zeros((which.size, 2))
        for sharing in np.unique(self.sharing[which]).tolist():
            here = np.flatnonzero(self.sharing[which] == sharing)
            of_bytes = self._of_bytes(which[here], rows_of(tier, here))
            movers = np.arange(1, of_bytes.shape[1] + 1)[:, None]
            best[here] = (of_bytes / movers).min(axis=1)
        moving = self.moved[which] * np.where(best > 0, best, 0.0)[:, None]
        moving = moving.max(axis=2) if tier.duplex else moving.sum(axis=2)
        found: Floats = np.maximum(self.computed[which], moving.max(axis=1))
        return found

    def _count(self, which: Ints) -> None:
        """Find what some compute and move in their passes, which no bandwidth changes."""
        for place, schedules in self._schedules(which):
            here = which[place]
            rows = self.rows[here]
            self.computed[here] = schedules.computed(rows)
            moved = schedules.moved(rows)
            groups = np.arange(schedules.stages) // rows[:, PIPELINE.sharing, None]
            for group in range(int(groups.max()) + 1):
                of_group = np.where((groups == group)[:, :, None], moved, 0.0)
                self.moved[here, group] = of_group.sum(axis=1)
        self.is_known[which] = True


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


# what parts of a search ask for again: how often stages move a layer's tensors
_known: dict[tuple[object, ...], Floats] = {}
_MOST_KNOWN = 1 << 16


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

    def computed(self, rows: Floats) -> Floats:
        """Give what passes of executions take at least, by what is computed: (executions,)."""

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
        return found

    def moved(self, rows: Floats) -> Floats:
        """Give the bytes that passes load and store: shape (executions, stages, 2).

        Which layers' tensors stay between two passes depends on how many operations these have, and
        on how many layers' backward is shorter than the head, for which others wait.
        In a settled pipeline, each round of micro-batches moves as much as the one before it.
        """
        head = rows[:, PIPELINE.last_forward] + rows[:, PIPELINE.last_backward]
        early = (head - 2.0 * rows[:, PIPELINE.hop]) // rows[:, PIPELINE.backward]
        asked = np.column_stack([np.clip(early, -1, self.layers), rows[:, _COUNTED]])
        number, first = number_rows([np.ascontiguousarray(one).view(np.int64) for one in asked.T])
        counts = asked[first]
        found = np.zeros((len(rows), self.stages, 2))
        passes = self.micro_batches * self.cuts.reshape(self.chunks, self.stages).sum(axis=0)
        for way, name in ((LOAD, PIPELINE.loaded_again), (STORE, PIPELINE.stored_again)):
            found[:, :, way] = passes * rows[:, name, None]
        found[:, 0, LOAD] += self.micro_batches * rows[:, PIPELINE.rows]
        found[:, -1, LOAD] += self.micro_batches * rows[:, PIPELINE.head]
        names = [
            name for name in (PIPELINE.weights, PIPELINE.experts, PIPELINE.kept)
            if rows[:, name].any()
        ]  # fmt: skip
        for name, moved in zip(names, self._moved_bytes(names, counts), strict=True):
            found += moved[number] * rows[:, name, None, None]
        return found

    def _moved_bytes(self, names: Sequence[int], counts: Floats) -> Floats:
        """Give how often stages load and store a layer's tensors: (names, counts, stages, 2)."""
        keys = [(self, name, *one) for name in names for one in counts.tolist()]
        new = [number for number, key in enumerate(keys) if key not in _known]
        if new:
            rows = np.ones((len(names), len(counts), len(PIPELINE)))
            rows[..., [PIPELINE.last_backward, PIPELINE.hop]] = 0.0
            rows[..., [PIPELINE.last_forward, *_COUNTED]] = counts
            rows[..., _MOVED] = 0.0
            rows[range(len(names)), :, names] = 1.0
            if len(_known) > _MOST_KNOWN:
                _known.clear()
            counted = self.counted(rows.reshape(-1, len(PIPELINE))[new])
            _known.update(zip((keys[number] for number in new), counted, strict=True))
        found = np.empty((len(keys), self.stages, 2))
        for number, key in enumerate(keys):
            found[number] = _known[key]
        return found.reshape(len(names), len(counts), self.stages, 2)

    def counted(self, rows: Floats) -> Floats:
        """Count moved bytes: shape (executions, stages, 2)."""

        def until(few: int) -> Floats:
            found, schedule = np.empty((len(rows), self.stages, 2)), self.of(few)
            count_moves(schedule, _work(schedule, few), rows, found)
            return found

        few, rounds = self.few
        found = until(few)
        return found + rounds * (until(few + self.stages) - found) if rounds else found


@lru_cache(maxsize=1024)
def _cuts(layers: int, places: int, ends: int) -> Ints:
    spread = spread_layers(layers, places, ends=bool(ends))
    return np.array([len(one) for one in spread], dtype=np.int64)


def _work(schedule: Schedule, micro_batches: int) -> Work:
    stages, positions = schedule.first.size - 1, schedule.cuts.size
    units = int((schedule.cuts[schedule.passes[:, 1]] * PARTS + 2).sum()) + stages
    return Work(
        np.zeros((units, len(UNIT))), np.zeros((2, PARTS, len(SLICE))),
        np.zeros((units, len(LINK)), dtype=np.int64),
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
