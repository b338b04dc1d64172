"""A job of a language model: a trace for each stage of the pipeline, which its ranks share."""

from __future__ import annotations

import numpy as np

from nadi.models.llm.language_model import LanguageModel
from nadi.models.llm.parallel_plan import ParallelPlan
from nadi.models.llm.pipeline_schedules import FORWARD, StageOrder, pipeline_schedule
from nadi.models.llm.stage_traces import stage_trace
from nadi.trace.groups import RankGroups
from nadi.trace.schema import ISSUES, MATCHES
from nadi.trace.trace import Job


def job_of_model(model: LanguageModel, plan: ParallelPlan) -> Job:
    """Make the job of one step, or of one prompt or token in inference.

    Parameters
    ----------
    model
        A checked description.
    plan
        How it is spread over ranks.

    Returns
    -------
    Job
        ``plan.world_size`` ranks, whose traces are one for each stage of the pipeline, with groups
        by role. Computations state FLOPs, bytes, class and shape, but no duration.

    Raises
    ------
    UsageError
        If model and plan do not fit together.
    """
    checked = plan.of(model)
    stages = [
        stage_trace(model, checked, stage, order)
        for stage, order in enumerate(stage_orders(checked))
    ]
    of_stage = checked.world_size // checked.pp
    traces = tuple(trace for trace in stages for _ in range(of_stage))
    used = {role for trace in stages for role in trace.groups["name"].to_list()}
    members = {role: ranks for role, ranks in checked.groups(model).items() if role in used}
    groups = RankGroups(members, checked.world_size)
    return Job(traces, MATCHES.empty(), ISSUES.empty(), rank_groups=groups)


def stage_orders(plan: ParallelPlan) -> list[StageOrder]:
    """Return what each stage does, in order; in inference the forwards alone."""
    v = plan.chunks if plan.schedule == "interleaved" else 1
    if not plan.inference:
        return list(pipeline_schedule(plan.schedule, plan.pp, plan.micro_batches, v))
    numbers = np.arange(plan.micro_batches)
    zeros = np.zeros_like(numbers)
    order = StageOrder(zeros + FORWARD, zeros, numbers, zeros.astype(np.bool_))
    return [order] * plan.pp
