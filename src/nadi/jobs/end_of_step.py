"""What stages do after the last backward, if they have other layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from nadi.errors import Parameter, UsageError
from nadi.jobs.class_rows import Origin
from nadi.jobs.rank_blocks import RoleNames
from nadi.jobs.stage_blocks import EMBEDDING, FORWARD, HEAD, LAST, Stage, TimedRow, Times
from nadi.models.job_rows import BEFORE, Row
from nadi.trace.work import Work

__all__ = ["EndRow", "StepEnds"]

_FEW = 8  # bytes: of a norm of all gradients


class EndRow(NamedTuple):
    """A row after the last backward, its times, and where it comes from."""

    row: Row
    times: Times
    origin: Origin


class StepEnds:
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

    def rows(self, keys: Sequence[int]) -> list[EndRow]:
        """Return the rows of a stage with some blocks, and their waits."""
        source = self.stages[-1] if HEAD in keys else self.stages[0]
        found: list[EndRow] = []
        for one in self._of_stage(source, keys):
            before = () if not found else (len(found) - 1,)
            waits = (BEFORE, *before) if one.row.work is None else before
            found.append(one._replace(row=one.row._replace(waits=waits)))
        computed = max((k for k, one in enumerate(found) if one.row.work), default=BEFORE)
        for key in keys:
            for gather in self._gathers(key):
                row = gather.row._replace(waits=(computed,))
                found.append(EndRow(row, gather.times, Origin.COPIED))
        return found

    def _of_stage(self, source: Stage, keys: Sequence[int]) -> Iterator[EndRow]:
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
                yield EndRow(row._replace(comm_bytes=size), times, origin)
            else:
                yield EndRow(row, times, Origin.COPIED)

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


def _sized(row: Row, times: Times, share: float) -> EndRow:
    """Return the update of other parameters."""
    work = row.work
    assert isinstance(work, Work)
    if share == 1:
        return EndRow(row, times, Origin.COPIED)
    flops = round(work.flops * share) if work.flops > 0 else work.flops
    changed = work._replace(flops=flops, bytes=round(work.bytes * share))
    scaled = Times(*(round(time * share) if time > 0 else time for time in times))
    return EndRow(row._replace(work=changed), scaled, Origin.RESIZED)
