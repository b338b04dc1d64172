"""Estimates from names and files: a model, a system, and a plan or an execution."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from nadi.errors import UsageError
from nadi.estimate.described_systems import model_of_language_model
from nadi.estimate.estimated_model import ModelDescription
from nadi.estimate.execution import Execution
from nadi.estimate.machine_description import MachineDescription
from nadi.estimate.plan_execution import check_offload, execution_of_plan
from nadi.generate.llm.model_description import LanguageModel
from nadi.generate.llm.parallel_plan import ParallelPlan
from nadi.load.estimate_files import (
    read_execution,
    read_machine,
    read_model,
    read_plan_fields,
)
from nadi.pipeline.generated_jobs import checked_plan

__all__ = ["DescribedStep", "describe_step"]


class DescribedStep(NamedTuple):
    """What an estimate is of; the plan is None for Calculon's execution files."""

    model: ModelDescription
    machine: MachineDescription
    execution: Execution
    plan: ParallelPlan | None


def describe_step(
    model: str | Path | LanguageModel, system: str | Path, plan: Mapping[str, Any] | str | Path, *,
    overlap: str = "none", offload: Collection[str] = (),
) -> DescribedStep:  # fmt: skip
    """Find a model and a system, and make an execution.

    Parameters
    ----------
    model
        The name of a language model, its file, a description, or Calculon's application file.
    system
        The name of a system, its file, or Calculon's system file.
    plan
        Fields of :class:`nadi.generate.ParallelPlan`, a file of them, or Calculon's execution file.
    overlap, offload
        As for :func:`nadi.estimate.execution_of_plan`.

    Raises
    ------
    InputError, FormatError
        If a file cannot be read or is invalid.
    UsageError
        If there is no such name, or they do not fit together.
    """
    fields = read_plan_fields(plan) if isinstance(plan, str | Path) else dict(plan)
    if fields is None:
        execution = read_execution(str(plan))
        machine = read_machine(system, execution.num_procs)
        if isinstance(model, LanguageModel):
            return DescribedStep(model_of_language_model(model), machine, execution, None)
        return DescribedStep(read_model(model), machine, execution, None)
    sequence = int(fields.get("sequence", 0) or 0)
    if isinstance(model, LanguageModel):
        described = model_of_language_model(model, sequence)
    else:
        described = read_model(model, sequence)
    _, checked = checked_plan(described.language_model, fields)
    machine = read_machine(system, checked.world_size)
    check_offload(offload)
    if offload and not machine.mem2.GiB:
        raise UsageError(
            f"{system}: $.memory.remote.capacity", "there is no second memory tier to offload to",
            'state memory.remote in a copy of the file, such as kind = "per-rank", '
            'bandwidth = "64 GB/s", capacity = "512 GiB"',
        )  # fmt: skip
    execution = execution_of_plan(
        checked, machine, has_experts=described.language_model.moe is not None, overlap=overlap,
        offload=offload,
    )  # fmt: skip
    return DescribedStep(described, machine, execution, checked)
