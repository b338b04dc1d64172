"""Estimates from names and files: a model, a system, and a plan or an execution."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from nadi.errors import UsageError
from nadi.estimate.described_systems import model_of_language_model
from nadi.estimate.estimated_model import ModelDescription
from nadi.estimate.execution import Execution
from nadi.estimate.machine_description import MachineDescription
from nadi.estimate.plan_execution import check_offload, execution_of_plan
from nadi.estimate.search_layouts import CHOICES, LAYOUT
from nadi.estimate.stated_files import Described, StatedFiles
from nadi.generate.llm.model_description import LanguageModel
from nadi.generate.llm.parallel_plan import ParallelPlan
from nadi.load.estimate_files import (
    machine_from_keys,
    read_execution,
    read_machine,
    read_machine_keys,
    read_model,
    read_plan_fields,
)
from nadi.pipeline.generated_jobs import checked_plan
from nadi.pipeline.plan_fields import plan_from
from nadi.simulator.machine.system_file import SystemFile

__all__ = ["DescribedStep", "describe_search", "describe_step", "describe_sweep"]

_OVERLAP = "overlap"


class DescribedStep(NamedTuple):
    """What an estimate is of; the plan is None for Calculon's execution files."""

    model: ModelDescription
    machine: MachineDescription
    execution: Execution
    plan: ParallelPlan | None


class _PlanKeys(ParallelPlan, frozen=True, kw_only=True):
    """What says how a model is run: the fields of a plan, and what an estimate has beside them."""

    overlap: Literal["none", "ring", "pipe"] = "none"


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
        return DescribedStep(_model(model), machine, execution, None)
    described = _model(model, int(fields.get("sequence", 0) or 0))
    _, checked = checked_plan(described.language_model, fields)
    machine = read_machine(system, checked.world_size)
    check_offload(offload)
    if offload and not machine.mem2.GiB:
        raise UsageError(
            f"{system}: $.memory.remote.capacity", "there is no second memory tier to offload to",
            'state memory.remote in a copy of the file, such as kind = "per-rank", '
            'bandwidth = "64 GB/s", capacity = "512 GiB"',
        )  # fmt: skip
    execution = _execution(described, machine, checked, overlap, offload)
    return DescribedStep(described, machine, execution, checked)


def describe_sweep(
    model: str | Path | LanguageModel, system: str | Path, plan: Mapping[str, Any] | str | Path, *,
    overlap: str = "none", offload: Collection[str] = (),
) -> Described:  # fmt: skip
    """Find the same as :func:`describe_step`, and what files state of it, to vary any key.

    The second memory tier may be one that the sweep adds.
    """
    fields = read_plan_fields(plan) if isinstance(plan, str | Path) else dict(plan)
    keys = read_machine_keys(system)
    if fields is None:
        execution = read_execution(str(plan))
        machine = read_machine(system, execution.num_procs)
        return _with_system(Described(_model(model), machine, execution), keys, system)
    check_offload(offload)
    described = _model(model, int(fields.get("sequence", 0) or 0))
    fields[_OVERLAP] = overlap

    def anew(now: Described) -> Described:
        assert now.files is not None
        told = now.files.told
        here = dict(told["execution"])
        how = plan_from(_PlanKeys, here).overlap
        del here[_OVERLAP]
        _, checked = checked_plan(now.model.language_model, here)
        machine = now.machine
        if "machine" in told:
            machine = machine_from_keys(told["machine"], system, checked.world_size)
        execution = _execution(now.model, machine, checked, how, offload)
        return now._replace(machine=machine, execution=execution)

    told: dict[str, Mapping[str, Any]] = {"execution": fields}
    kinds: dict[str, type[msgspec.Struct]] = {"execution": _PlanKeys}
    if keys is not None:
        told["machine"], kinds["machine"] = keys, SystemFile
    # the machine and the execution are described with it
    start = Described(described, read_machine(system), _template(1, 1))
    return anew(start._replace(files=StatedFiles(told, kinds, anew)))


def describe_search(
    model: str | Path, system: str | Path, processors: int, batch: int, sequence: int = 0
) -> Described:  # fmt: skip
    """Find a model and a system for a search that is swept; the execution is one of its space."""
    machine = read_machine(system, processors)
    described = Described(read_model(model, sequence), machine, _template(processors, batch))
    return _with_system(described, read_machine_keys(system), system)


def _with_system(
    described: Described, keys: dict[str, Any] | None, system: str | Path
) -> Described:
    """Add what a system's file states, if it is one of Nadi's own."""
    if keys is None:
        return described

    def anew(now: Described) -> Described:
        assert now.files is not None
        told = now.files.told["machine"]
        machine = machine_from_keys(told, system, now.execution.num_procs)
        return now._replace(machine=machine)

    return described._replace(files=StatedFiles({"machine": keys}, {"machine": SystemFile}, anew))


def _model(model: str | Path | LanguageModel, sequence: int = 0) -> ModelDescription:
    if isinstance(model, LanguageModel):
        return model_of_language_model(model, sequence)
    return read_model(model, sequence)


def _execution(
    model: ModelDescription, machine: MachineDescription, plan: ParallelPlan, overlap: str,
    offload: Collection[str],
) -> Execution:  # fmt: skip
    has_experts = model.language_model.moe is not None
    return execution_of_plan(
        plan, machine, has_experts=has_experts, overlap=overlap, offload=offload
    )


def _template(processors: int, batch: int) -> Execution:
    """Give an execution that has every field, as paths are read in one."""
    first = {field: values[0] for field, values in CHOICES.items()} | dict.fromkeys(LAYOUT, 1)
    tiers = {field: 0 for field in first if field.endswith("_net")}
    return Execution(**(first | tiers | {"num_procs": processors, "batch_size": batch}))
