"""Layers spread over other stages of a pipeline, in the order of the same schedule.

What stages do after the last backward, if they have other layers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

import numpy as np
import polars as pl

from nadi.errors import Parameter, UsageError, Wording
from nadi.jobs.class_rows import Origin, RankClass
from nadi.jobs.replicated_classes import Classes, RoleNames, resized_axis
from nadi.jobs.stage_blocks import (
    BACKWARD,
    EMBEDDING,
    FORWARD,
    HEAD,
    LAST,
    LayerChunks,
    PlacedRow,
    Stage,
    StepPart,
    TimedRow,
    Times,
    read_stage,
    with_last,
)
from nadi.models.job_rows import BEFORE, Link, Row, joined_ranges
from nadi.models.llm.pipeline_schedules import (
    FORWARD as FORWARD_PHASE,
    PipelineSchedule,
    StageOrder,
    neighbors,
    pipeline_schedule,
    spread_layers,
)
from nadi.models.row_traces import StepOrder, trace_of_rows
from nadi.recordings.folded.folded_trace import NodeTimes, with_own_times
from nadi.trace.groups import RankGroups
from nadi.trace.trace import Trace
from nadi.trace.work import Work

_FEW = 8  # bytes: of a norm of all gradients


class StagedEnds:
    """The ends of a step, of stages with any layers.

    Parameters
    ----------
    stages
        As they are.
    names
        Roles that stand for an axis.
    sizes
        Ranks of a group of each role.
    ends
        Roles whose groups have the first and last stage.
    """

    def __init__(
        self, stages: Sequence[Stage], names: RoleNames, sizes: Mapping[str, int],
        ends: Sequence[str],
    ) -> None:  # fmt: skip
        self.stages, self.names, self.ends = stages, names, ends
        self.stage_of = {
            key: number for number, stage in enumerate(stages) for key in stage.blocks(LAST)
        }
        self.parameters = {key: self._parameters(key, sizes) for key in self.stage_of}
        if not any(self.parameters.values()):
            raise UsageError(
                Parameter("pp"),
                "gradients are not summed by data parallel groups, so nothing says how many "
                "parameters a layer has", "scale a job that has 2 replicas",
            )  # fmt: skip
        self.norms = {
            key: sum(
                one.row.work is not None and one.row.work.op_class == "norm"
                for one in stages[number].blocks(FORWARD).get(key, ())
            )
            for key, number in self.stage_of.items()
        }

    def _parameters(self, key: int, sizes: Mapping[str, int]) -> float:
        """Return what the optimizer's work for a block is proportional to."""
        total = 0.0
        for row, *_ in self.stages[self.stage_of[key]].blocks(LAST)[key]:
            if row.role in (self.names.dp, self.names.edp) and row.role:
                shards = sizes[row.role] if row.comm_type == "reduce_scatter" else 1
                is_sum = row.comm_type in ("reduce_scatter", "all_reduce")
                total += row.comm_bytes / shards if is_sum else 0
        return total

    def rows(self, keys: Sequence[int]) -> list[PlacedRow]:
        """Return the rows of a stage with some blocks, and their waits."""
        source = self.stages[-1] if HEAD in keys else self.stages[0]
        found: list[PlacedRow] = []
        for one in self._of_stage(source, keys):
            before = () if not found else (len(found) - 1,)
            waits = (BEFORE, *before) if one.row.work is None else before
            found.append(one._replace(row=one.row._replace(waits=waits)))
        computed = max((k for k, one in enumerate(found) if one.row.work), default=BEFORE)
        for key in keys:
            for gather in self._gathers(key):
                row = gather.row._replace(waits=(computed,))
                found.append(PlacedRow(row, gather.times, Origin.COPIED))
        return found

    def _of_stage(self, source: Stage, keys: Sequence[int]) -> Iterator[PlacedRow]:
        """Give what a stage does as a whole, sized by its blocks."""
        own = list(source.blocks(LAST))
        whole = [one for one in source.end if not _is_gather(one)]
        for row, times, _ in whole:
            if row.role in self.ends and not {EMBEDDING, HEAD} & set(keys):
                continue
            if row.work is not None:
                share = sum(map(self.parameters.__getitem__, keys))
                yield _sized(row, times, share / sum(map(self.parameters.__getitem__, own)))
            elif row.comm_bytes > _FEW and row.role not in self.ends:
                share = sum(map(self.norms.__getitem__, keys))
                share /= max(sum(map(self.norms.__getitem__, own)), 1)
                size = round(row.comm_bytes * share)
                origin = Origin.COPIED if share == 1 else Origin.GUESSED
                yield PlacedRow(row._replace(comm_bytes=size), times, origin)
            else:
                yield PlacedRow(row, times, Origin.COPIED)

    def _gathers(self, key: int) -> list[TimedRow]:
        """Return the rows that gather the weights of a block."""
        listed = [one for one in self.stages[self.stage_of[key]].end if _is_gather(one)]
        layers = [k for k, one in enumerate(listed) if one.row.layer >= 0]
        if key == EMBEDDING:
            return listed[: layers[0]] if layers else listed
        if key == HEAD:
            return listed[layers[-1] + 1 :] if layers else listed
        return [one for one in listed if one.row.layer == key]


def _is_gather(one: TimedRow) -> bool:
    return one.row.comm_type == "all_gather"


def _sized(row: Row, times: Times, share: float) -> PlacedRow:
    """Return the update of other parameters."""
    work = row.work
    assert isinstance(work, Work)
    if share == 1:
        return PlacedRow(row, times, Origin.COPIED)
    flops = round(work.flops * share) if work.flops > 0 else work.flops
    changed = work._replace(flops=flops, bytes=round(work.bytes * share))
    scaled = Times(*(round(time * share) if time > 0 else time for time in times))
    return PlacedRow(row._replace(work=changed), scaled, Origin.RESIZED)


_SCHEDULES: tuple[PipelineSchedule, ...] = ("1f1b", "gpipe")
_INTERLEAVED: tuple[PipelineSchedule, ...] = ("interleaved",)
_COMPARED = ("name", "kind", "phase", "comm_type", "layer", "micro_batch", "stream", "flops",
             "bytes", "comm_bytes", "src", "dst", "tag")  # fmt: skip
_DP_ONLY: Wording = ["change ", Parameter("dp"), " only"]
_NO_STAGES: list[str | Parameter] = ["change ", Parameter("dp"), " and ", Parameter("tp"), " only"]


def with_stages(
    job: Classes, names: RoleNames, wanted: int, micro_batches: int = 0
) -> Classes:  # fmt: skip
    """Return a job of so many stages.

    The job is first put together anew as it is; one for which that gives another job is refused.

    - ``micro_batches``: Of a step; 0 for as many as it has.
    - Raises UsageError if the job does not consist of layers in the order of a schedule that is
      known.
    """
    members = job.groups.members.get(names.pp)
    if members is None:
        _refuse("the job has one stage, so nothing says what stages pass on",
                "scale a job with 2 stages")  # fmt: skip
    before = members.shape[1]
    if before == wanted and not micro_batches:
        return job
    if wanted < 2:
        _refuse("one stage, in which embedding and head may be one table, is not made of several",
                "give 2 or more")  # fmt: skip
    stride = job.groups.world_size // before
    of_stage = job.of.reshape(before, stride)
    if (members != np.arange(stride)[:, None] + stride * np.arange(before)).any():
        _refuse("the stages are no blocks of neighboring ranks", "number ranks so that stages "
                "come last")  # fmt: skip
    if (of_stage != of_stage[:, :1]).any() or np.unique(of_stage[:, 0]).size < before:
        _refuse("ranks of a stage differ, or those of two stages do not", _DP_ONLY)
    own = [job.listed[k] for k in of_stage[:, 0].tolist()]
    pipeline = _Pipeline(own, job.groups, names)
    as_it_is = pipeline.classes(before, pipeline.micro_batches)
    for stage, (made, given) in enumerate(zip(as_it_is, own, strict=True)):
        _check_same(made.trace, given.trace, stage)
    listed = pipeline.classes(wanted, micro_batches or pipeline.micro_batches)
    groups = resized_axis(job.groups, stride, before, wanted, pipeline.ends).groups
    used = {role for one in listed for role in one.trace.groups["name"].to_list()}
    kept = {role: ranks for role, ranks in groups.members.items() if role in used}
    world = groups.world_size
    return Classes(tuple(listed), np.arange(world) // stride, RankGroups(kept, world))


def _refuse(what: str, remedy: Wording) -> NoReturn:
    raise UsageError(Parameter("pp"), what, remedy)


class _Pipeline:
    """The layers of a job, and how stages of them are put together."""

    def __init__(self, own: Sequence[RankClass], groups: RankGroups, names: RoleNames) -> None:
        self.names, self.roles = names, list(groups.members)
        self.stages = [read_stage(one, number) for number, one in enumerate(own)]
        before = len(own)
        stride = groups.world_size // before
        self.ends = [
            role for role, ranks in groups.members.items()
            if role != names.pp and ranks.shape[1] == 2
            and (ranks[:, 1] // stride - ranks[:, 0] // stride == before - 1).all()
        ]  # fmt: skip
        sizes = {role: ranks.shape[1] for role, ranks in groups.members.items()}
        self.step_ends = StagedEnds(self.stages, names, sizes, self.ends)
        self.chunks = LayerChunks(self.stages)
        self.micro_batches = 1 + max(part.micro_batch for part in self.stages[0].order)
        self.parts = len(self.stages[0].chunks)
        self.schedule = _schedule_of(self.stages, self.micro_batches, self.parts)
        self.layers = sorted(key for key in self.step_ends.stage_of
                             if key not in (EMBEDDING, HEAD))  # fmt: skip
        if self.layers != list(range(len(self.layers))):
            _refuse("its layers are not numbered from 0 without gaps", _DP_ONLY)
        self.ends_as_layers = self._counts_ends()

    def _cuts(self, size: int, *, ends: bool) -> list[list[int]]:
        """Return the layers of each chunk along so many stages."""
        return [list(one) for one in
                spread_layers(len(self.layers), size * self.parts, ends=ends)]  # fmt: skip

    def _counts_ends(self) -> bool:
        """Return whether chunks have the layers that they have if ends count as layers, too."""
        known = set(self.layers)
        own = [sorted(known & stage.chunks[chunk][FORWARD].keys())
               for chunk in range(self.parts) for stage in self.stages]  # fmt: skip
        size = len(self.stages)
        return own != self._cuts(size, ends=False) and own == self._cuts(size, ends=True)

    def classes(self, size: int, micro_batches: int) -> list[RankClass]:
        """Return what the ranks of each of so many stages do, of so many micro-batches.

        - Raises UsageError if there are fewer layers.
        """
        positions = size * self.parts
        places = len(self.layers) + (2 if self.ends_as_layers else 0)
        if positions > places:
            _refuse(
                f"{positions} {'chunks' if self.parts > 1 else 'stages'} of "
                f"{len(self.layers)} layers", f"at most {places // self.parts}",
            )  # fmt: skip
        if self.micro_batches == 1 < micro_batches:
            raise UsageError(
                Parameter("micro_batches"), "the job has one, in which gradients are summed, so "
                "nothing says what others do", "scale a job of 2 micro-batches",
            )  # fmt: skip
        if self.parts > 1 and micro_batches % size:
            _refuse(f"{micro_batches} micro-batches of interleaved stages are no multiple of "
                    f"{size}", "give a divisor")  # fmt: skip
        orders = pipeline_schedule(self.schedule, size, micro_batches, self.parts)
        cuts = self._cuts(size, ends=self.ends_as_layers)
        return [self._stage(number, size, order, cuts) for number, order in enumerate(orders)]

    def _stage(
        self, number: int, size: int, order: StageOrder, cuts: Sequence[list[int]]
    ) -> RankClass:
        pieces: dict[tuple[str, int], list[PlacedRow]] = {}
        every: list[int] = []
        for chunk in range(self.parts):
            place = neighbors(self.schedule, number, chunk, size, self.parts)
            first, last = place.position == 0, place.position == len(cuts) - 1
            keys = [
                *([EMBEDDING] if first else []), *cuts[place.position], *([HEAD] if last else [])
            ]  # fmt: skip
            every += keys
            tag = 2 * place.position
            before, after = place.source, place.destination
            earlier = None if before is None else Link(before[0], tag - 2)
            later = None if after is None else Link(after[0], tag)
            back = None if after is None else Link(after[0], tag + 1)
            ahead = None if before is None else Link(before[0], tag - 1)
            pieces[FORWARD, chunk] = self.chunks.rows(FORWARD, keys, earlier, later)
            if any(part.direction == BACKWARD for part in _parts(order)):
                pieces[BACKWARD, chunk] = self.chunks.rows(BACKWARD, keys[::-1], back, ahead)
            pieces[LAST, chunk] = self.chunks.rows(LAST, keys[::-1], back, ahead)
        ends = self.step_ends.rows(every)
        parts = _parts(order)
        names = list(pieces)
        listed = [*pieces.values(), ends]
        numbers = [names.index((part.direction, part.chunk)) for part in parts]
        made = StepOrder(
            [[one.row for one in rows] for rows in listed],
            np.array([*numbers, len(names)]),
            np.array([*(part.micro_batch for part in parts), -1]), 2 * len(cuts),
        )  # fmt: skip
        return _class(made, listed, self.roles)


def _class(step: StepOrder, listed: Sequence[Sequence[PlacedRow]], roles: list[str]) -> RankClass:
    """Return what ranks do, with the times of its rows."""
    trace = trace_of_rows(step, roles, 0)
    flat = [one for rows in listed for one in rows]
    first = np.cumsum([0, *map(len, listed)])
    row, _ = joined_ranges(first, step.piece)
    columns = np.array([one.times for one in flat], dtype=np.int64).T[:, row]
    times = NodeTimes(*columns)
    trace = replace(trace, nodes=with_own_times(trace.nodes, times.typical))
    origin = np.array([one.origin for one in flat], dtype=np.int64)[row]
    return RankClass(trace, times, origin, (origin == Origin.RESIZED) & (times.typical > 0))


def _parts(order: StageOrder) -> tuple[StepPart, ...]:
    """Return the parts of a step in the order of a schedule."""
    columns = (one.tolist() for one in order[:3])
    return with_last([
        StepPart(FORWARD if phase == FORWARD_PHASE else BACKWARD, chunk, micro_batch)
        for phase, chunk, micro_batch in zip(*columns, strict=True)
    ])  # fmt: skip


def _schedule_of(stages: Sequence[Stage], micro_batches: int, parts: int) -> PipelineSchedule:
    """Return the schedule whose order the stages keep."""
    for name in _SCHEDULES if parts == 1 else _INTERLEAVED:
        if parts > 1 and micro_batches % len(stages):
            continue
        orders = pipeline_schedule(name, len(stages), micro_batches, parts)
        if all(stage.order == _parts(order) for stage, order in zip(stages, orders, strict=True)):
            return name
    _refuse(
        f"the order of its stages is none of {', '.join((*_SCHEDULES, *_INTERLEAVED))}",
        [*_NO_STAGES, ", or generate the job with these stages (nadi generate llm)"],
    )


def _check_same(made: Trace, given: Trace, stage: int) -> None:
    """Raise UsageError if a stage that was put together anew is not what it was."""
    ours, theirs = (
        one.nodes.select(pl.col(*_COMPARED)).with_columns(
            pl.col("name", "phase").cast(pl.String), group=_role_of(one)
        )
        for one in (made, given)
    )
    row = min(ours.height, theirs.height)
    if ours.height == theirs.height and ours.equals(theirs):
        a, b = (
            set(zip(one.deps["src"].to_list(), one.deps["dst"].to_list(), strict=True))
            for one in (made, given)
        )
        if a == b:
            return
        row = min(max(pair) for pair in a ^ b)
    else:
        for k in range(row):
            if ours.row(k) != theirs.row(k):
                row = k
                break
    name = given.nodes["name"].cast(pl.String)[min(row, given.nodes.height - 1)]
    _refuse(f"put together anew, stage {stage} differs from row {row} on ({name!r}), so its layers "
            "are not understood", _NO_STAGES)  # fmt: skip


def _role_of(trace: Trace) -> pl.Series:
    names = [*trace.groups["name"].to_list(), ""]
    return pl.Series([names[k] for k in trace.column("group").tolist()])
