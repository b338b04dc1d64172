"""A job of a network: a trace for all ranks, or for each different share of its tables."""

from __future__ import annotations

import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.models.networks.layer_kinds import EmbeddingBag
from nadi.models.networks.network_file import NeuralNetwork
from nadi.models.networks.network_plan import NetworkPlan
from nadi.models.networks.network_rows import Step, step_of, step_rows
from nadi.models.networks.table_shares import TableShare, table_shares
from nadi.models.row_traces import StepOrder, trace_of_rows
from nadi.trace.groups import RankGroups
from nadi.trace.schema import ISSUES, MATCHES
from nadi.trace.trace import Job, Trace

_MOST = 1 << 60  # operations or bytes of a node


def job_of_network(network: NeuralNetwork, plan: NetworkPlan) -> Job:
    """Make the job of a training step of a network, or of its inference.

    Parameters
    ----------
    network
        Its layers.
    plan
        Ranks, samples, and what ranks shard.

    Returns
    -------
    Job
        ``plan.ranks`` ranks, with groups by role. Those that have as much of the tables share a
        trace. Computations state FLOPs, bytes, class and shape, but no duration.

    Raises
    ------
    UsageError
        If network and plan do not fit together.
    """
    steps, kinds = steps_of_kinds(network, plan)
    made = [_trace(step) for step in steps]
    used = {role for trace in made for role in trace.groups["name"].to_list()}
    members = {role: ranks for role, ranks in plan.groups().items() if role in used}
    groups = RankGroups(members, plan.ranks)
    return Job(
        tuple(made[kind] for kind in kinds), MATCHES.empty(), ISSUES.empty(), rank_groups=groups
    )


def steps_of_kinds(network: NeuralNetwork, plan: NetworkPlan) -> tuple[list[Step], list[int]]:
    """Return the step of each kind of rank, and of which kind each rank is.

    Ranks of a kind have as much of the tables.

    Raises
    ------
    UsageError
        If network and plan do not fit together.
    """
    plan.check(network)
    of_ranks = shares_of_ranks(network, plan)
    widest = {table: max(own[table].columns for own in of_ranks) for table in of_ranks[0]}
    numbers: dict[tuple[TableShare, ...], int] = {}
    kinds = [numbers.setdefault(tuple(own.values()), len(numbers)) for own in of_ranks]
    shares = [of_ranks[kinds.index(kind)] for kind in range(len(numbers))]
    return [step_of(network, plan, own, widest) for own in shares], kinds


def shares_of_ranks(network: NeuralNetwork, plan: NetworkPlan) -> list[dict[int, TableShare]]:
    """Return what each rank has of the tables of each layer whose tables are shared."""
    found: list[dict[int, TableShare]] = [{} for _ in range(plan.ranks)]
    for number, layer in enumerate(network.layers):
        if isinstance(layer.kind, EmbeddingBag) and layer.kind.spread:
            for own, share in zip(found, table_shares(layer.kind, plan.ranks), strict=True):
                own[number] = share
    return found


def _trace(step: Step) -> Trace:
    pieces, plan = step_rows(step), step.plan
    largest = max(
        (max(row.work.flops, row.work.bytes) if row.work else row.comm_bytes)
        for rows in pieces
        for row in rows
    )
    if largest > _MOST:
        what = f"an operation of {plan.batch} samples has more work than int64 can count"
        raise UsageError([Parameter("batch")], what, "use a smaller one")
    micro_batch = np.array([0, 0, -1][: len(pieces)], dtype=np.int64)
    order = StepOrder(pieces, np.arange(len(pieces)), micro_batch)
    return trace_of_rows(order, list(plan.groups()), plan.ranks)
