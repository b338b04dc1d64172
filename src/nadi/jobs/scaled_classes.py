"""A job scaled up: its stages, its shares of operations and its replicas, one after the other.

Prices of operations as times with an interval, so that a simulation states one.

Sequences shared by more context parallel ranks, or fewer.

A rank has a part of the tokens of each sequence, and attends from it to the keys and values of all,
which are gathered (arXiv 2407.21783). So work changes with the tokens; what attention reads of keys
and values, weights, and the sums of their gradients stay, and shards of weights have more owners.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, NoReturn

import numpy as np
import polars as pl

from nadi.errors import Parameter, UsageError, Wording
from nadi.jobs.class_rows import (
    Origin,
    RankClass,
    RowSizes,
    classes_of,
    comm_types,
    of_role,
    resized,
    row_sizes,
    typical_columns,
    with_more_members,
)
from nadi.jobs.gradient_sums import (
    DATA_PARALLEL,
    SUMS,
    is_one_replica,
    with_gradient_sums,
    with_recorded_sums,
)
from nadi.jobs.recorded_ranks import (
    Direction,
    KnownRank,
    Sharing,
    find_lives,
    peak_bytes,
    with_own_roles,
)
from nadi.jobs.recorded_shares import (
    TENSOR_PARALLEL,
    SharedRank,
    with_shared_operators,
    working_rows,
)
from nadi.jobs.recorded_stages import (
    PIPELINE,
    Blocks,
    StageBlocks,
    cut_evenly,
    find_blocks,
    recorded_stages,
    stage_bytes,
)
from nadi.jobs.replicated_classes import (
    WITHIN,
    Classes,
    RoleNames,
    grown,
    has_lone_messages,
    named_roles,
    replicas_of,
    resized_axis,
    with_replicas,
    within_replica,
)
from nadi.jobs.shared_operators import SharedOperators, share_operators
from nadi.jobs.staged_classes import with_stages
from nadi.jobs.tensor_shares import (
    FEW,
    GRADIENT,
    ITEM_SIZES,
    ExpertShares,
    check_rows,
    expert_rows,
    resized_groups,
    with_shares,
)
from nadi.recordings.folded.folded_job import FoldedJob, fold_classes
from nadi.recordings.folded.folded_trace import NodeTimes, with_own_times
from nadi.recordings.folded.repeats import RankClasses, operands_apart
from nadi.systems.device import Device
from nadi.systems.prices.price_list import price
from nadi.systems.prices.traced_operations import stated_operations
from nadi.systems.system import System
from nadi.trace.arrays import Ints
from nadi.trace.groups import RankGroups
from nadi.trace.operands import AttributesWithOperands
from nadi.trace.operations import OP_CLASSES, Operations
from nadi.trace.trace import Trace, on_host

_GEMM, _ATTENTION, _OPTIMIZER = map(OP_CLASSES.index, ("gemm", "attention", "optimizer"))
_M, _K = 1, 3  # where a product has its tokens, forward and in the gradient of its weights
_QUERIES = 1
_OF_INPUT = ".input_gradient"  # how backwards of what has no weights end
_OTHER_AXES: Wording = [
    "change ", Parameter("dp"), ", ", Parameter("tp"), " and ", Parameter("pp"),
    " only, or generate the job with this degree (nadi generate llm)",
]  # fmt: skip


# attributes that say again what columns and groups say, as it was before
_OUTDATED = ("version", "process_groups", "rank", "world_size", "pg_name", "comm_size", "comm_src",
             "comm_dst", "num_ops", "tensor_size")  # fmt: skip


_GUESSES = {
    "pp": "the size of a stage's reduction of partial gradients is proportional to its number of "
          "norms",
    "tp": "gradients and the optimizer change as weights of products do; the rest of a layer's "
          "parameters is whole on each rank where its gradients are summed",
    "sums": "the job has one replica, so it reduces no gradients: each layer gets a reduction "
            "after its last backward, of the weights of its products in float32; norms, biases "
            "and an embedding table beside the head's are left out",
    "dp": "what replicas gather are shards, and operations that update these keep their times",
}  # fmt: skip
_TIMES = "measured times change as operations or bytes, or not at all; a system prices them"


class Wanted(NamedTuple):
    """How many ranks a job shall have along each axis; 0 for as many as it has."""

    dp: int = 0
    tp: int = 0
    pp: int = 0
    micro_batches: int = 0
    cp: int = 0


class _Sizes(NamedTuple):
    """Ranks of a job, and those along its axes."""

    ranks: int
    dp: int
    tp: int
    pp: int
    cp: int


class ScaledJob(NamedTuple):
    """A job scaled up.

    Attributes
    ----------
    job, source
        The new job, and the one that it was made from.
    before, after
        Ranks along the axes.
    origin
        A row per kind of node and origin: ``kind`` (``computation``, ``collective`` or
        ``message``), ``origin`` (``copied``, ``resized``, ``guessed`` or ``made``) and ``nodes``,
        of all ranks.
    repriced
        How many of them have a measured time that was changed.
    guesses
        What was assumed, a sentence each.
    found
        What a recording was found to consist of, a sentence each.
    memory
        Of a recording: the most bytes of tensors that a rank has at once, before, and after in each
        stage; empty where operators state no tensors.
    num_steps
        How many steps the job consists of; 0 if that is not known.
    """

    job: FoldedJob
    source: FoldedJob
    before: _Sizes
    after: _Sizes
    origin: pl.DataFrame
    repriced: int
    guesses: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    memory: tuple[int, ...] = ()
    num_steps: int = 0


def scale_job(
    job: FoldedJob, wanted: Wanted, device: Device | None = None,
    recorded: Sequence[KnownRank] = (),
) -> ScaledJob:  # fmt: skip
    """Scale a folded job up.

    Parameters
    ----------
    wanted
        Ranks along the axes.
    device
        Whose prices say how measured times change with sizes.
    recorded
        What is known of each rank, if the job is a recording.

    Raises
    ------
    UsageError
        If the job cannot be scaled so; the message says why.
    """
    _check(wanted)
    known = _known(job, may_be_alone=bool(recorded))
    names = named_roles(known.groups)
    before = _sizes(known.groups, names)
    staged, shared, names, more, found, memory = _split(known, names, wanted, device, recorded)
    summed = shared
    if not recorded and wanted.dp > 1 and is_one_replica(shared.groups, names):
        summed, names = with_gradient_sums(shared), names._replace(dp=SUMS)
    now = with_replicas(summed, names, wanted.dp, device) if wanted.dp else shared
    guesses = [
        _GUESSES[axis]
        for axis, earlier, later in (("pp", known, staged), ("tp", staged, shared),
                                     ("sums", shared, summed), ("dp", summed, now))
        if _num_guessed(later) > _num_guessed(earlier) and not (recorded and axis in ("pp", "tp"))
    ]  # fmt: skip
    guesses = [*more, *guesses]
    world = now.groups.world_size
    traces = [_of_world(one.trace, world) for one in now.listed]
    classes = RankClasses(tuple(traces[k] for k in now.of.tolist()), now.of, now.groups)
    times = {number: one.times for number, one in enumerate(now.listed)}
    origin, repriced = _counted(now)
    if repriced and device is None:
        guesses.append(_TIMES)
    return ScaledJob(
        fold_classes(classes, times, job.issues), job, before, _sizes(now.groups, names), origin,
        repriced, tuple(guesses), found, memory,
    )  # fmt: skip


class _Split(NamedTuple):
    """A job with other stages, and then with other shares of operations, too.

    With what its roles are called, and for a recording what was assumed and found, and the bytes
    of its tensors.
    """

    staged: Classes
    shared: Classes
    names: RoleNames
    guesses: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    memory: tuple[int, ...] = ()


def _check(wanted: Wanted) -> None:
    """Raise UsageError if numbers make no sense."""
    for name, number in wanted._asdict().items():
        if number < 0:
            raise UsageError(Parameter(name), f"{number} are asked for", "give 1 or more")
    if wanted.micro_batches and not wanted.pp:
        raise UsageError(
            Parameter("micro_batches"), "their number changes only where stages do",
            ["give ", Parameter("pp")],
        )  # fmt: skip


def _split(
    known: Classes, names: RoleNames, wanted: Wanted, device: Device | None,
    recorded: Sequence[KnownRank],
) -> _Split:  # fmt: skip
    """Return a job with other stages and shares of operations."""
    if not recorded:
        staged = with_stages(known, names, wanted.pp, wanted.micro_batches) if wanted.pp else known
        shared = with_shares(staged, names, wanted.tp, device) if wanted.tp else staged
        if wanted.cp:
            shared = with_contexts(shared, names, wanted.cp, device)
        return _Split(staged, shared, names)
    if wanted.cp > 1:
        raise UsageError(
            Parameter("cp"), "operators of a recording do not say which tokens they work on",
            ["change ", Parameter("dp"), ", ", Parameter("tp"), " and ", Parameter("pp"),
             " only, or generate the job (nadi generate llm)"],
        )  # fmt: skip
    return _scale_recording(known, recorded, names, wanted, device)


def _num_guessed(job: Classes) -> int:
    """Count rows that were guessed, once for each class of ranks."""
    return sum(int((one.origin == Origin.GUESSED).sum()) for one in job.listed)


def _known(job: FoldedJob, *, may_be_alone: bool) -> Classes:
    """Return what ranks do, and their groups by role."""
    listed = tuple(classes_of(job))
    if job.rank_groups is not None:
        return Classes(listed, job.of, job.rank_groups)
    if may_be_alone and job.of.size == 1 and not listed[0].trace.groups.height:
        return Classes(listed, job.of, RankGroups({}, 1))
    if not any(one.trace.groups.height for one in listed):
        raise UsageError(
            "job", "it has no process groups, so nothing says what its ranks sum together",
            "record it in a process group of one or more ranks, such as with "
            "DistributedDataParallel",
        )  # fmt: skip
    if job.of.size > 1:
        raise UsageError(
            "job", "the roles of its process groups cannot be told: groups of a kind have several "
            "sizes or share ranks, or ranks are not stated", "scale a job whose traces state their "
            "groups, of one size each",
        )  # fmt: skip
    trace, groups = with_own_roles(listed[0].trace)
    return Classes((listed[0]._replace(trace=trace),), job.of, groups)


def _of_world(trace: Trace, size: int) -> Trace:
    """Return a trace of a job of so many ranks, which states no groups of the job before."""
    given = trace.given_attributes
    if set(_OUTDATED) & set(trace.attributes_without_operands.names):
        columns, stated = operands_apart(trace)
        codes = [number for number, name in enumerate(stated.names) if name in _OUTDATED]
        kept = stated.filtered(~np.isin(stated.name, codes))
        given = kept if columns is None else AttributesWithOperands(lambda: kept, lambda: columns)
    return replace(trace, world_size=size, given_attributes=given)


def _sizes(groups: RankGroups, names: RoleNames) -> _Sizes:
    tp, pp, cp = (
        groups.members[role].shape[1] if role else 1 for role in (names.tp, names.pp, names.cp)
    )
    return _Sizes(groups.world_size, replicas_of(groups, names), tp, pp, cp)


def _counted(job: Classes) -> tuple[pl.DataFrame, int]:
    """Count nodes of all ranks by kind and origin, and those with another measured time."""
    ranks = np.bincount(job.of, minlength=len(job.listed))
    frames = [
        pl.DataFrame({"kind": _kinds(one), "origin": one.origin, "nodes": number})
        for one, number in zip(job.listed, ranks.tolist(), strict=True)
    ]
    counted = pl.concat(frames).group_by("kind", "origin").agg(pl.col("nodes").cast(pl.Int64).sum())
    names = {int(one): one.name.lower() for one in Origin}
    repriced = sum(
        int(one.repriced.sum()) * number
        for one, number in zip(job.listed, ranks.tolist(), strict=True)
    )
    return counted.sort("kind", "origin").with_columns(
        pl.col("origin").replace_strict(names, return_dtype=pl.String)
    ), repriced


def _kinds(one: RankClass) -> pl.Series:
    kind = one.trace.nodes["kind"].cast(pl.String)
    names = {"COMM_COLL": "collective", "COMM_SEND": "message", "COMM_RECV": "message"}
    return kind.replace_strict(names, default="computation", return_dtype=pl.String)


def with_prices(job: FoldedJob, system: System) -> FoldedJob:
    """Return a job whose computations without a time have the prices of a system's device.

    Least and largest times are the ends of the prices' intervals.
    """
    device = system.compute.device
    if device is None or system.compat:
        return job
    listed = [_priced(one, device) for one in classes_of(job)]
    traces = tuple(listed[k].trace for k in job.of.tolist())
    times = {number: one.times for number, one in enumerate(listed)}
    return fold_classes(RankClasses(traces, job.of, job.rank_groups), times, job.issues)


def _priced(one: RankClass, device: Device) -> RankClass:
    trace = one.trace
    work = stated_operations(trace)
    is_wanted = (trace.nodes["kind"] == "COMP").to_numpy() & ~on_host(trace)
    is_wanted &= (one.times.typical < 0) | ((one.times.typical == 0) & (work.flops > 0))
    rows = np.flatnonzero(is_wanted)
    found = price(Operations(*(column[rows] for column in work)), device)
    rows, found = rows[found.duration >= 0], found.at(np.flatnonzero(found.duration >= 0))
    columns = [column.copy() for column in typical_columns(one.times)]
    for column, prices in zip(columns, (found.duration, found.low, found.high), strict=True):
        column[rows] = prices
    times = NodeTimes(*columns)
    nodes = with_own_times(trace.nodes, times.typical)
    return one._replace(trace=replace(trace, nodes=nodes), times=times)


_SHARES = (
    "products share outputs, the next ones what they sum over, and all else follows the tensors; "
    "embeddings stay whole"
)
_STAGES = (
    "a stage's optimizer and sums of gradients take its share of the weights, and work that names "
    "no weights is done by each"
)


_SUMS = (
    "the job has one replica, so it reduces no gradients: they are reduced as they come, in "
    "buckets of 25 MiB, the first of 1 MiB, as DistributedDataParallel does"
)


def _scale_recording(
    job: Classes, ranks: Sequence[KnownRank], names: RoleNames, asked: Wanted,
    device: Device | None,
) -> _Split:  # fmt: skip
    """Scale a recording of data parallel ranks, or of one.

    - ``ranks``: What is known of each rank of the job.
    - ``names``: What its roles are called.
    - ``device``: Whose prices say how times on devices change.
    - Raises UsageError if its operators cannot be shared, or no layers are found; the message says
      why.
    """
    _check_roles(names, asked)
    first = [int(np.flatnonzero(job.of == k)[0]) for k in range(len(job.listed))]
    known = [ranks[rank] for rank in first]
    groups, before = job.groups, job.listed
    if any(map(has_lone_messages, before)):
        before = tuple(map(within_replica, before))
        groups = _with_role(groups, WITHIN, np.arange(groups.world_size)[None])
    listed = [SharedRank(*pair) for pair in zip(before, known, strict=True)]
    split = _StageSplit(listed, groups, job.of, names)
    if asked.tp > 1:
        split = _with_tensor_ranks(split, asked.tp, device)
    if asked.dp > 1 and not job.groups.members:
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
    made = Classes(tuple(classes), of, groups)
    return _Split(made, made, names, guesses, found, tuple(memory))


class _StageSplit(NamedTuple):
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


def _check_roles(names: RoleNames, asked: Wanted) -> None:
    """Raise UsageError if ranks of the recording share operators, or have stages, already."""
    for parameter, role in (("tp", names.tp), ("pp", names.pp)):
        if role and getattr(asked, parameter) > 1:
            raise UsageError(
                Parameter(parameter), f"the recording has groups {role!r} already, and only those "
                "without are split", ["change ", Parameter("dp"), " only"],
            )  # fmt: skip


def _with_tensor_ranks(split: _StageSplit, ranks: int, device: Device | None) -> _StageSplit:
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


def _with_sums(split: _StageSplit) -> _StageSplit:
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
    listed: Sequence[SharedRank], asked: Wanted
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


def with_contexts(job: Classes, names: RoleNames, wanted: int, device: Device | None) -> Classes:
    """Return a job with so many context parallel ranks.

    - Raises UsageError if the job does not say what depends on them, or cannot be shared so.
    """
    members = job.groups.members.get(names.cp)
    before = 1 if members is None else members.shape[1]
    if before == wanted:
        return job
    if members is None:
        _refuse_cp("the job has no context parallel groups, so nothing says which keys and values "
                "are gathered", "scale a job with 2 context parallel ranks")  # fmt: skip
    if wanted < 2:
        _refuse_cp("one rank gathers no keys and values, and the job does", "give 2 or more")
    check_rows(job, "cp")
    found = [expert_rows(one.trace, row_sizes(one.trace), names) for one in job.listed]
    experts = ExpertShares(before, wanted, any(one.is_split for one in found), job.groups)
    has_gradients = any("backward" in one.trace.nodes["phase"] for one in job.listed)
    axis = resized_groups(job.groups, names, experts, "cp", has_gradients=has_gradients)
    listed = [_shared(one, names, before, wanted, device) for one in job.listed]
    return Classes(tuple(listed), job.of[axis.old], axis.groups)


def _refuse_cp(what: str, remedy: Wording) -> NoReturn:
    raise UsageError(Parameter("cp"), what, remedy)


def _shared(
    one: RankClass, names: RoleNames, before: int, after: int, device: Device | None
) -> RankClass:
    """Return what a rank does with its share of the tokens."""
    trace, sizes = one.trace, row_sizes(one.trace)
    origin = with_more_members(trace, sizes, [names.cp], before, after)
    gathered = _gathered(trace, sizes, names) * after  # of keys and values, of all ranks
    work, text = sizes.work, trace.nodes["name"].cast(pl.String).to_list()
    of_tokens = (work.op_class > 0) & (work.op_class != _OPTIMIZER)
    whole = np.zeros(len(text), dtype=np.int64)  # bytes that do not depend on tokens
    for row in np.flatnonzero(of_tokens & (work.op_class == _GEMM)).tolist():
        whole[row] = _share_product(row, text[row], work, before, after)
    for row in np.flatnonzero(work.op_class == _ATTENTION).tolist():
        whole[row] = gathered * (2 if text[row].endswith(_OF_INPUT) else 1)
        work.shape[row, _QUERIES] = _part(int(work.shape[row, _QUERIES]), before, after)
    work.flops[of_tokens] = -(-work.flops[of_tokens] * before // after)
    work.bytes[of_tokens] = (whole + -(-(work.bytes - whole) * before // after))[of_tokens]
    origin[of_tokens] = Origin.RESIZED
    is_end = (trace.nodes["phase"].cast(pl.String) == "optimizer").to_numpy()
    moved = of_role(trace, [role for role in (names.tp, names.pp, names.ep) if role]) & ~is_end
    rows = np.flatnonzero(moved & (sizes.comm_bytes > FEW))
    sizes.comm_bytes[rows] = -(-sizes.comm_bytes[rows] * before // after)
    origin[rows] = Origin.RESIZED
    sums = [role for role in (names.dp, names.edp) if role]
    return grown(resized(one, sizes, origin, device), sums, before, after, device)


def _gathered(trace: Trace, sizes: RowSizes, names: RoleNames) -> int:
    """Return the bytes of keys and values that a rank gives in each layer."""
    given = sizes.comm_bytes[of_role(trace, [names.cp]) & (comm_types(trace) == "all_gather")]
    different = np.unique(given).tolist()
    if len(different) != 1:
        what = "context parallel ranks do not gather parts of one size, so it cannot be told what "
        _refuse_cp(f"{what}attention reads", _OTHER_AXES)
    return int(different[0])


def _share_product(row: int, name: str, work: Operations, before: int, after: int) -> int:
    """Give a product its share of the tokens; returns the bytes that it moves anyway.

    Tokens are its rows, and what it sums over where it makes the gradients of weights.
    """
    batch, m, n, k = work.shape[row].tolist()
    moved, itemsize = int(work.bytes[row]), ITEM_SIZES[int(work.dtype[row])]
    of_weights = name.endswith(GRADIENT)
    if of_weights:
        whole = moved - itemsize * batch * k * (m + n)
    else:  # scores and values of heads have two such products in one, backward
        products = max(int(work.flops[row]) // (2 * batch * m * n * k), 1)
        whole = products * itemsize * batch * n * k
    place = _K if of_weights else _M
    work.shape[row, place] = _part(int(work.shape[row, place]), before, after, rounds=batch > 1)
    return int(whole)


def _part(size: int, before: int, after: int, *, rounds: bool = False) -> int:
    """Return the share of one rank; tokens of one expert or head are rounded."""
    if size * before % after and not rounds:
        _refuse_cp(f"{after} does not divide {size * before} tokens", "give a divisor")
    return max(size * before // after, 1)
