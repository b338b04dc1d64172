"""Sequences shared by more context parallel ranks, or fewer.

A rank has a part of the tokens of each sequence, and attends from it to the keys and values of all,
which are gathered (arXiv 2407.21783). So work changes with the tokens; what attention reads of keys
and values, weights, and the sums of their gradients stay, and shards of weights have more owners.
"""

from typing import NoReturn

import numpy as np
import polars as pl

from nadi.errors import Parameter, UsageError, Wording
from nadi.jobs.class_rows import (
    Origin,
    RankClass,
    RowSizes,
    comm_types,
    of_role,
    resized,
    row_sizes,
    with_more_members,
)
from nadi.jobs.rank_blocks import RoleNames
from nadi.jobs.replicated_classes import Classes, grown
from nadi.jobs.tensor_shares import (
    FEW,
    GRADIENT,
    ITEM_SIZES,
    ExpertShares,
    check_rows,
    expert_rows,
    resized_groups,
)
from nadi.systems.device import Device
from nadi.trace.operations import OP_CLASSES, Operations
from nadi.trace.trace import Trace

_GEMM, _ATTENTION, _OPTIMIZER = map(OP_CLASSES.index, ("gemm", "attention", "optimizer"))
_M, _K = 1, 3  # where a product has its tokens, forward and in the gradient of its weights
_QUERIES = 1
_OF_INPUT = ".input_gradient"  # how backwards of what has no weights end
_OTHER_AXES: Wording = [
    "change ", Parameter("dp"), ", ", Parameter("tp"), " and ", Parameter("pp"),
    " only, or generate the job with this degree (nadi generate llm)",
]  # fmt: skip


def with_contexts(job: Classes, names: RoleNames, wanted: int, device: Device | None) -> Classes:
    """Return a job with so many context parallel ranks.

    - Raises UsageError if the job does not say what depends on them, or cannot be shared so.
    """
    members = job.groups.members.get(names.cp)
    before = 1 if members is None else members.shape[1]
    if before == wanted:
        return job
    if members is None:
        _refuse("the job has no context parallel groups, so nothing says which keys and values "
                "are gathered", "scale a job with 2 context parallel ranks")  # fmt: skip
    if wanted < 2:
        _refuse("one rank gathers no keys and values, and the job does", "give 2 or more")
    check_rows(job, "cp")
    found = [expert_rows(one.trace, row_sizes(one.trace), names) for one in job.listed]
    experts = ExpertShares(before, wanted, any(one.is_split for one in found), job.groups)
    has_gradients = any("backward" in one.trace.nodes["phase"] for one in job.listed)
    axis = resized_groups(job.groups, names, experts, "cp", has_gradients=has_gradients)
    listed = [_shared(one, names, before, wanted, device) for one in job.listed]
    return Classes(tuple(listed), job.of[axis.old], axis.groups)


def _refuse(what: str, remedy: Wording) -> NoReturn:
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
        _refuse("context parallel ranks do not gather parts of one size, so it cannot be told what "
                "attention reads", _OTHER_AXES)  # fmt: skip
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
        _refuse(f"{after} does not divide {size * before} tokens", "give a divisor")
    return max(size * before // after, 1)
