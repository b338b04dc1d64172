"""Experts of a job with other tensor parallel ranks: their groups, and what they exchange.

Tensor parallel ranks either share each expert, as they share other products, or hold experts of
their own and share the tokens. Collectives say which: the outputs of shared experts are summed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.errors import Parameter, UsageError
from nadi.jobs.class_rows import Origin, RowSizes
from nadi.jobs.parameter_shares import FEW, ParameterShares
from nadi.jobs.rank_blocks import Replicas, RoleNames, outer_end, resized_axis
from nadi.jobs.shared_sizes import comm_types, is_sharded, of_role, with_more_members
from nadi.trace.arrays import Bools, Ints
from nadi.trace.groups import RankGroups, groups_along
from nadi.trace.operations import OP_CLASSES
from nadi.trace.trace import Trace

__all__ = ["ExpertRows", "ExpertShares", "expert_rows", "resized_groups", "share_experts",
           "updated"]  # fmt: skip

_PERMUTE = OP_CLASSES.index("permute")


class ExpertRows(NamedTuple):
    """Where the forward of a rank has experts.

    Attributes
    ----------
    inside
        bool, shape (nodes,): between the permutation of tokens to experts and the one back.
    is_split
        Whether tensor parallel ranks share each expert; else each holds experts of its own.
    """

    inside: Bools
    is_split: bool


class ExpertShares(NamedTuple):
    """How experts change with the number of tensor parallel ranks.

    Attributes
    ----------
    before, after
        The number of tensor parallel ranks.
    is_split
        Whether these ranks share each expert; else each holds experts of its own.
    groups
        The groups of all ranks, as they were.
    """

    before: int
    after: int
    is_split: bool
    groups: RankGroups


def expert_rows(trace: Trace, sizes: RowSizes, names: RoleNames) -> ExpertRows:
    """Return where the forward of a rank has experts: between two permutations of tokens."""
    of_forward = (trace.nodes["phase"].cast(pl.String) == "forward").to_numpy()
    rows = np.flatnonzero(of_forward)
    permutes = sizes.work.op_class[rows] == _PERMUTE
    passed = np.cumsum(permutes)
    inside = np.zeros(of_forward.size, dtype=np.bool_)
    inside[rows] = (passed % 2 == 1) & ~permutes
    is_sum = of_role(trace, [names.tp]) & np.isin(
        comm_types(trace), ("all_reduce", "reduce_scatter")
    )
    return ExpertRows(inside, bool((inside & is_sum).any()))


def resized_groups(
    groups: RankGroups, names: RoleNames, shares: ExpertShares, *, has_gradients: bool
) -> Replicas:
    """Give the tensor parallel axis another size; groups of experts that lie across it follow.

    Parameters
    ----------
    has_gradients
        Whether the job has a backward.

    Raises
    ------
    UsageError
        If groups of experts have ranks in another order than experts, copies of experts, stages,
        or if other ranks would have to sum gradients of experts than do now.
    """
    before, after = shares.before, shares.after
    stride = int(groups.members[names.tp][0, 1] - groups.members[names.tp][0, 0])
    roles = [role for role in (names.ep, names.edp) if role and not shares.is_split]
    kept = {role: ranks for role, ranks in groups.members.items() if role not in roles}
    resized = resized_axis(RankGroups(kept, groups.world_size), stride, before, after)
    if not roles:
        return resized
    of_stage = (names.tp, names.dp, names.cp, names.ep, names.edp)
    inner = max(outer_end(groups, role) for role in of_stage if role)
    copies = groups.members[names.ep].shape[1] if names.ep else 1
    made = _groups_of_experts(names, roles, inner, copies, groups.world_size)
    if any(not np.array_equal(made[role], _sorted(groups.members[role])) for role in roles):
        raise UsageError(
            Parameter("tp"), "experts are not on neighbouring ranks of a stage, so it is not known "
            "where they would be", ["change ", Parameter("dp"), " and ", Parameter("pp"), " only"],
        )  # fmt: skip
    inner, world = inner // before * after, resized.groups.world_size
    if inner % copies:
        raise UsageError(
            Parameter("tp"), f"{copies} ranks that share experts do not divide the {inner} ranks "
            "of a stage", "give a multiple",
        )  # fmt: skip
    if has_gradients and not names.edp and inner > copies:
        raise UsageError(
            Parameter("tp"), f"each expert is on one rank, and would be on {inner // copies}: "
            "nothing says how its gradients are summed", "scale a job of 2 or more times as many "
            "replicas as share the experts",
        )  # fmt: skip
    made = _groups_of_experts(names, roles, inner, copies, world)
    listed = {role: made[role] if role in made else resized.groups.members[role]
              for role in groups.members}  # fmt: skip
    return Replicas(RankGroups(listed, world), resized.old)


def _groups_of_experts(
    names: RoleNames, roles: list[str], inner: int, copies: int, world: int
) -> dict[str, Ints]:
    sizes = {"ep": copies, "edp": inner // copies, "pp": world // inner}
    axes: Mapping[str, str] = {names.ep: "ep", names.edp: "edp"}
    return {role: _sorted(groups_along(sizes, [axes[role]])) for role in roles}


def _sorted(ranks: Ints) -> Ints:
    return ranks[np.lexsort(ranks.T[::-1])]


def share_experts(
    trace: Trace, sizes: RowSizes, names: RoleNames, shares: ExpertShares, *, of_tokens: bool
) -> Ints:
    """Change in place what experts exchange, and the sums of their gradients.

    Parameters
    ----------
    of_tokens
        Whether tensor parallel ranks share tokens outside of products.

    Returns
    -------
    int64
        Shape (nodes,): values of :class:`Origin`.
    """
    before, after = shares.before, shares.after
    origin = np.zeros(trace.nodes.height, dtype=np.int64)
    smaller = np.zeros(origin.size, dtype=np.bool_)
    if names.ep and of_tokens:
        smaller |= of_role(trace, [names.ep])
    if names.edp and shares.is_split:
        smaller |= of_role(trace, [names.edp])
    rows = np.flatnonzero(smaller & (sizes.comm_bytes > FEW))
    sizes.comm_bytes[rows] = -(-sizes.comm_bytes[rows] * before // after)
    origin[rows] = Origin.RESIZED
    if names.edp and not shares.is_split:
        more = with_more_members(trace, sizes, [names.edp], before, after)
        origin = np.maximum(origin, more)
    return origin


def updated(
    trace: Trace, names: RoleNames, dense: ParameterShares, experts: int, shares: ExpertShares
) -> float:
    """Return by what the parameters change that a rank updates, with those of its experts.

    Parameters
    ----------
    dense
        By what those change that are no experts'.
    experts
        Parameters of experts on a rank.
    """
    own = {"dp": float(dense.parameters), "edp": float(experts)}
    for axis, role in (("dp", names.dp), ("edp", names.edp)):
        if role and is_sharded(trace, [role]):
            own[axis] /= shares.groups.members[role].shape[1]
    is_less = shares.is_split or bool(names.edp and is_sharded(trace, [names.edp]))
    of_experts = shares.before / shares.after if is_less else 1.0
    whole = own["dp"] + own["edp"]
    return (own["dp"] * dense.of_stage + own["edp"] * of_experts) / whole if whole else of_experts
