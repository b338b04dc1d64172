"""Jobs that follow from a description: of a language model and how it is spread over ranks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nadi.models.llm.job_statistics import JobStatistics, statistics_of
from nadi.models.llm.language_model import LanguageModel
from nadi.models.llm.library import load_language_model
from nadi.models.llm.llm_jobs import job_of_model
from nadi.models.llm.parallel_plan import ParallelPlan
from nadi.models.llm.stage_traces import plan_from
from nadi.trace.trace import Job


def llm_job(model: str | Path | LanguageModel, **plan: Any) -> Job:
    """Make the job of a training step of a language model, or of inference.

    Parameters
    ----------
    model
        The name of a model that ships with Nadi (:func:`nadi.models.shipped_language_models`), the
        path of a description in TOML, YAML or JSON, or a description.
    plan
        Fields of :class:`nadi.models.ParallelPlan`: ``tp``, ``pp``, ``dp``, ``micro_batch``,
        ``global_batch`` and others.

    Returns
    -------
    Job
        For :func:`nadi.simulate` and :func:`nadi.models.write_job`. Ranks of a stage share a
        trace, so that 100,000 ranks are a few traces; see ``Job.rank_groups``.

    Raises
    ------
    UsageError
        If model and plan do not fit together; the message names values that would.
    InputError, FormatError
        If there is no such model, or its description is invalid.

    Examples
    --------
    >>> job = nadi.llm_job("gpt3-175b", tp=8, pp=16, dp=8, micro_batch=1, global_batch=1536)
    >>> nadi.simulate(job, nadi.load_system("dgx-h100", 1024))
    """
    return job_of_model(*checked_plan(model, plan))


def llm_statistics(model: str | Path | LanguageModel, **plan: Any) -> JobStatistics:
    """Compute parameters, FLOPs, communication and memory of a job, as :func:`llm_job` makes it."""
    return statistics_of(*checked_plan(model, plan))


def checked_plan(
    model: str | Path | LanguageModel, fields: Mapping[str, Any]
) -> tuple[LanguageModel, ParallelPlan]:
    """Find a model, and make a plan from its fields, with every default put in.

    Raises
    ------
    UsageError
        If there is no such field, its value is of another type or range, or the plan does not fit
        the model.
    InputError, FormatError
        If there is no such model, or its description is invalid.
    """
    found = model if isinstance(model, LanguageModel) else load_language_model(str(model))
    return found, plan_from(ParallelPlan, fields).of(found)
