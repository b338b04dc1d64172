"""A recording with other tensor parallel ranks or pipeline stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, NoReturn

import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.jobs.class_rows import RankClass
from nadi.jobs.gradient_sums import DATA_PARALLEL, with_recorded_sums
from nadi.jobs.rank_blocks import RoleNames, resized_axis
from nadi.jobs.recorded_blocks import Blocks, find_blocks
from nadi.jobs.recorded_ranks import Direction, KnownRank, Sharing, find_lives, peak_bytes
from nadi.jobs.recorded_shares import (
    TENSOR_PARALLEL,
    SharedRank,
    with_shared_operators,
    working_rows,
)
from nadi.jobs.recorded_stages import (
    PIPELINE,
    StageBlocks,
    cut_evenly,
    recorded_stages,
    stage_bytes,
)
from nadi.jobs.replicated_classes import WITHIN, Classes, has_lone_messages, within_replica
from nadi.jobs.shared_operators import SharedOperators, share_operators
from nadi.systems.device import Device
from nadi.trace.arrays import Ints
from nadi.trace.groups import RankGroups

_SHARES = (
    "products share outputs, the next ones what they sum over, and all else follows the tensors; "
    "embeddings stay whole"
)
_STAGES = (
    "a stage's optimizer and sums of gradients take its share of the weights, and work that names "
    "no weights is done by each"
)


_SUMS = (
    "one replica sums no gradients: they are summed as they come, in buckets of 25 MiB, the first "
    "of 1 MiB, as DistributedDataParallel does"
)


class ScaledTo(NamedTuple):
    """What a recording is scaled to: ranks along axes and micro-batches; 0 for as many as now.

    ``sums`` is whether it gets sums of gradients.
    """

    tp: int = 0
    pp: int = 0
    micro_batches: int = 0
    sums: bool = False


class ScaledRecording(NamedTuple):
    """A recording scaled."""

    classes: Classes  # what ranks do
    names: RoleNames  # what its roles are called
    # bytes of tensors that a rank has at most, before, and after in each stage
    memory: tuple[int, ...]
    # found, guesses: what it was found to consist of, and what was assumed; a sentence each
    found: tuple[str, ...]
    guesses: tuple[str, ...]


def scale_recording(
    job: Classes, ranks: Sequence[KnownRank], names: RoleNames, asked: ScaledTo,
    device: Device | None,
) -> ScaledRecording:  # fmt: skip
    """Scale a recording of data parallel ranks, or of one.

    Parameters
    ----------
    ranks
        What is known of each rank of the job.
    names
        What its roles are called.
    device
        Whose prices say how times on devices change.

    Raises
    ------
    UsageError
        If its operators cannot be shared, or no layers are found; the message says why.
    """
    _check_roles(names, asked)
    first = [int(np.flatnonzero(job.of == k)[0]) for k in range(len(job.listed))]
    known = [ranks[rank] for rank in first]
    groups, before = job.groups, job.listed
    if any(map(has_lone_messages, before)):
        before = tuple(map(within_replica, before))
        groups = _with_role(groups, WITHIN, np.arange(groups.world_size)[None])
    listed = [SharedRank(*pair) for pair in zip(before, known, strict=True)]
    split = _Split(listed, groups, job.of, names)
    if asked.tp > 1:
        split = _with_tensor_ranks(split, asked.tp, device)
    if asked.sums:
        split = _with_sums(split)
    lives = find_lives(known[0].operators, known[0].parts)
    memory = [peak_bytes(lives), peak_bytes(lives, split.sharing)]
    groups, of = split.groups, split.of
    classes = [one.of_class for one in split.listed]
    found, guesses, names = split.found, split.guesses, split.names
    if asked.pp > 1:
        classes, said, stages = _staged(split.listed, asked)
        memory[1:] = stage_bytes(known[0], lives, split.sharing, stages)
        world = groups.world_size
        axis = resized_axis(groups, world, 1, asked.pp)
        members = np.arange(world)[:, None] + world * np.arange(asked.pp)
        groups = _with_role(axis.groups, PIPELINE, members)
        of = of[axis.old] * asked.pp + np.arange(groups.world_size) // world
        found, guesses = (*found, said), (*guesses, _STAGES)
        names = names._replace(pp=PIPELINE)
    return ScaledRecording(
        Classes(tuple(classes), of, groups), names, tuple(memory), found, guesses
    )


class _Split(NamedTuple):
    """A recording on its way, with what was found and assumed.

    ``share`` is of the gradients of the recording what a rank has, and ``sharing`` of its tensors.
    """

    listed: list[SharedRank]
    groups: RankGroups
    of: Ints
    names: RoleNames
    found: tuple[str, ...] = ()
    guesses: tuple[str, ...] = ()
    share: float = 1.0
    sharing: Sharing | None = None


def _check_roles(names: RoleNames, asked: ScaledTo) -> None:
    """Raise UsageError if ranks of the recording share operators, or have stages, already."""
    for parameter, role in (("tp", names.tp), ("pp", names.pp)):
        if role and getattr(asked, parameter) > 1:
            raise UsageError(
                Parameter(parameter), f"the recording has groups {role!r} already, and only those "
                "without are split", ["change ", Parameter("dp"), " only"],
            )  # fmt: skip


def _with_tensor_ranks(split: _Split, ranks: int, device: Device | None) -> _Split:
    """Share the operators of each rank among so many, neighbors in their numbers."""
    shares = [share_operators(one.known.operators, one.known.parts, ranks) for one in split.listed]
    listed = [
        with_shared_operators(one.of_class, one.known, shared, ranks, device)
        for one, shared in zip(split.listed, shares, strict=True)
    ]
    axis = resized_axis(split.groups, 1, 1, ranks)
    everyone = np.arange(axis.groups.world_size)
    whole, own = shares[0].weights
    return split._replace(
        listed=listed, of=split.of[axis.old], names=split.names._replace(tp=TENSOR_PARALLEL),
        groups=_with_role(axis.groups, TENSOR_PARALLEL, everyone.reshape(-1, ranks)),
        found=(*split.found, _told_shares(shares[0])), guesses=(*split.guesses, _SHARES),
        share=own / max(whole, 1), sharing=shares[0].tensors,
    )  # fmt: skip


def _with_sums(split: _Split) -> _Split:
    """Let each rank sum its gradients, in a group of its own."""
    alone = np.arange(split.groups.world_size)[:, None]
    return split._replace(
        listed=[with_recorded_sums(one, split.share) for one in split.listed],
        groups=_with_role(split.groups, DATA_PARALLEL, alone),
        guesses=(*split.guesses, _SUMS), names=split.names._replace(dp=DATA_PARALLEL),
    )  # fmt: skip


def _with_role(groups: RankGroups, role: str, members: Ints) -> RankGroups:
    return RankGroups({**groups.members, role: members}, groups.world_size)


def _told_shares(shared: SharedOperators) -> str:
    products = int((shared.place > 0).sum())
    sums = sum(one.comm_type == "all_reduce" for one in shared.exchanges)
    gathers = len(shared.exchanges) - sums
    whole = f"; not divisible: {', '.join(shared.whole)}" if shared.whole else ""
    gathered = f" and {gathers} all-gathers" if gathers else ""
    return f"{products:,} products are shared, with {sums:,} all-reduces{gathered}{whole}"


def _staged(
    listed: Sequence[SharedRank], asked: ScaledTo
) -> tuple[list[RankClass], str, StageBlocks]:
    blocks = [find_blocks(one.known) for one in listed]
    recorded = 1 + int(listed[0].known.parts.micro_batch.max())
    numbers = {one.number for one in blocks}
    if len(numbers) > 1:
        _refuse(f"ranks have {', '.join(map(str, sorted(numbers)))} layers")
    layers = blocks[0].number
    if asked.pp > layers:
        _refuse(f"{asked.pp} stages of {layers} layers", f"at most {layers}")
    cuts = cut_evenly(_times(listed[0], blocks[0]), asked.pp)
    number = asked.micro_batches or recorded
    classes = [
        stage
        for one, own in zip(listed, blocks, strict=True)
        for stage in recorded_stages(one, own, cuts, number)
    ]
    sizes = ", ".join(str(one.size) for one in cuts)
    passed = [int(blocks[0].passed[one[0]]) for one in cuts[1:]]
    return (
        classes,
        (
            f"{layers} layers repeat; stages have {sizes}, {number} micro-batches a step, and pass "
            f"{', '.join(f'{size:,}' for size in sorted(set(passed)))} bytes"
        ),
        StageBlocks(blocks[0], cuts, number),
    )


def _refuse(what: str, remedy: str = "change other axes") -> NoReturn:
    raise UsageError(Parameter("pp"), what, remedy)


def _times(one: SharedRank, blocks: Blocks) -> Ints:
    """Return the time of each block where it works, forward and backward."""
    chosen, _ = working_rows(one.of_class.trace)
    direction = one.known.parts.direction[one.known.parts.at(one.known.time)]
    rows = chosen & (blocks.of_node >= 0) & (direction != Direction.END)
    time = np.maximum(one.of_class.times.typical[rows], 0)
    return np.bincount(blocks.of_node[rows], time, minlength=blocks.number).astype(np.int64)
