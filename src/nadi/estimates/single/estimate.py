"""Estimates from names and files: a model, a system, and a plan or an execution."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from nadi.errors import UsageError, parameters_of_file
from nadi.estimates.calculon.machine_description import MachineDescription
from nadi.estimates.described_systems import model_of_language_model
from nadi.estimates.estimated_model import ModelDescription
from nadi.estimates.execution import Execution
from nadi.estimates.plan_execution import execution_of_plan, tier_of_offload
from nadi.estimates.search_layouts import CHOICES, LAYOUT
from nadi.estimates.stated_files import (
    Described,
    StatedFiles,
    machine_from_keys,
    read_execution,
    read_language_keys,
    read_machine,
    read_machine_keys,
    read_model,
    read_plan_fields,
    system_and_plan,
)
from nadi.models.llm.generated_jobs import checked_plan
from nadi.models.llm.language_model import LanguageModel, language_model_from
from nadi.models.llm.parallel_plan import ParallelPlan
from nadi.systems.system_file import SystemFile

if TYPE_CHECKING:
    from nadi.estimates.calibration import Calibration

PlanOrFile: TypeAlias = ParallelPlan | Mapping[str, Any] | str | Path


class DescribedStep(NamedTuple):
    """What an estimate is of; the plan is None for Calculon's execution files."""

    model: ModelDescription
    machine: MachineDescription
    execution: Execution
    plan: ParallelPlan | None


def describe_step(
    model: str | Path | LanguageModel, system: str | Path, plan: PlanOrFile, *,
    offload: Collection[str] = (), calibration: Calibration | None = None,
) -> DescribedStep:  # fmt: skip
    """Find a model and a system, and make an execution.

    Parameters
    ----------
    model
        The name of a language model, its file, a description, or Calculon's application file.
    system
        The name of a system, its file, or Calculon's system file.
    plan
        A :class:`nadi.models.ParallelPlan`, its fields, a file of them, or Calculon's execution
        file, which may also stand before the system's file, as Calculon has it.
    offload
        As for :func:`nadi.estimates.execution_of_plan`.
    calibration
        What was measured on the system (:func:`nadi.estimates.read_calibration`).

    Raises
    ------
    InputError, FormatError
        If a file cannot be read or is invalid.
    UsageError
        If there is no such name, or they do not fit together.
    """
    system, plan = system_and_plan(system, plan)
    fields = _fields_of(plan, offload)
    if fields is None:
        execution = read_execution(str(plan))
        machine = read_machine(system, execution.num_procs, calibration=calibration)
        return DescribedStep(_model(model), machine, execution, None)
    stated = fields.get("sequence")
    described = _model(model, stated if isinstance(stated, int) else 0)  # else it is refused next
    is_file = isinstance(plan, str | Path)
    with parameters_of_file(str(plan)) if is_file else nullcontext():
        _, checked = checked_plan(described.language_model, fields)
    offload, tier = tier_of_offload(offload)
    machine = read_machine(system, checked.world_size, tier, calibration)
    if offload and not machine.mem2.GiB:
        raise UsageError(
            f"{system}: $.memory.remote.capacity", "there is no second memory tier to offload to",
            'state memory.remote or memory.tiers in a copy of the file, such as kind = "per-rank", '
            'bandwidth = "64 GB/s", capacity = "512 GiB"',
        )  # fmt: skip
    execution = _execution(described, machine, checked, offload)
    return DescribedStep(described, machine, execution, checked)


def describe_sweep(
    model: str | Path | LanguageModel, system: str | Path, plan: PlanOrFile, *,
    offload: Collection[str] = (), calibration: Calibration | None = None,
) -> Described:  # fmt: skip
    """Find the same as :func:`describe_step`, and what files state of it, to vary any key.

    The second memory tier may be one that the sweep adds.
    """
    system, plan = system_and_plan(system, plan)
    fields = _fields_of(plan, offload)
    if fields is None:
        execution = read_execution(str(plan))
        machine = read_machine(system, execution.num_procs, calibration=calibration)
        described = Described(_model(model), machine, execution)
        return _with_files(described, model, system, calibration=calibration)
    offload, tier = tier_of_offload(offload)
    sequence = int(fields.get("sequence", 0) or 0)
    machine = read_machine(system, tier=tier, calibration=calibration)
    start = Described(_model(model, sequence), machine, _template(1, 1))
    found = _with_files(start, model, system, fields, (offload, tier), calibration)
    assert found.files is not None
    return found.files.describe(found)


def describe_search(
    model: str | Path, system: str | Path, ranks: int, global_batch: int, sequence: int = 0,
    calibration: Calibration | None = None,
) -> Described:  # fmt: skip  # fmt: skip
    """Find a model and a system for a search that is swept; the execution is one of its space."""
    machine = read_machine(system, ranks, calibration=calibration)
    described = Described(read_model(model, sequence), machine, _template(ranks, global_batch))
    return _with_files(described, model, system, calibration=calibration)


def _fields_of(plan: PlanOrFile, offload: Collection[str]) -> dict[str, Any] | None:
    """Return the fields of a plan; None for Calculon's execution, which states all by itself."""
    if isinstance(plan, ParallelPlan):
        return msgspec.structs.asdict(plan)
    fields = dict(plan) if isinstance(plan, Mapping) else read_plan_fields(plan)
    if fields is None and offload:
        raise UsageError(
            str(plan), "Calculon's execution says what is offloaded, too",
            "change it there, or use a plan of Nadi's",
        )  # fmt: skip
    return fields


def _with_files(
    described: Described, model: str | Path | LanguageModel, system: str | Path,
    plan: dict[str, Any] | None = None, to_tier: tuple[Collection[str], str] = ((), ""),
    calibration: Calibration | None = None,
) -> Described:  # fmt: skip
    """Add what Nadi's own files state, and how all is described by it."""
    kinds: dict[str, type[msgspec.Struct]] = {
        "model": LanguageModel, "machine": SystemFile, "execution": ParallelPlan
    }  # fmt: skip
    language = None if isinstance(model, LanguageModel) else read_language_keys(model)
    keys = {"model": language, "machine": read_machine_keys(system), "execution": plan}
    told = {owner: stated for owner, stated in keys.items() if stated is not None}
    tokens = described.model.seq_size

    offload, tier = to_tier

    def anew(now: Described) -> Described:
        assert now.files is not None
        told = now.files.told
        if "model" in told:
            stated = language_model_from(told["model"], str(model))
            is_told = told["model"].get("sequence") != (language or {}).get("sequence")
            length = stated.sequence if is_told else tokens
            now = now._replace(model=model_of_language_model(stated, length))
        checked = None
        if "execution" in told:
            _, checked = checked_plan(now.model.language_model, told["execution"])
        if "machine" in told:
            ranks = checked.world_size if checked else now.execution.num_procs
            now = now._replace(
                machine=machine_from_keys(told["machine"], system, ranks, tier, calibration)
            )
        if checked is not None:
            execution = _execution(now.model, now.machine, checked, offload)
            now = now._replace(execution=execution)
        return now

    if not told:
        return described
    return described._replace(
        files=StatedFiles(told, {owner: kinds[owner] for owner in told}, anew)
    )


def _model(model: str | Path | LanguageModel, sequence: int = 0) -> ModelDescription:
    if isinstance(model, LanguageModel):
        return model_of_language_model(model, sequence)
    return read_model(model, sequence)


def _execution(
    model: ModelDescription, machine: MachineDescription, plan: ParallelPlan,
    offload: Collection[str],
) -> Execution:  # fmt: skip
    has_experts = model.language_model.moe is not None
    return execution_of_plan(plan, machine, has_experts=has_experts, offload=offload)


def _template(ranks: int, batch: int) -> Execution:
    """Give an execution that has every field, as paths are read in one."""
    first = {field: values[0] for field, values in CHOICES.items()} | dict.fromkeys(LAYOUT, 1)
    tiers = {field: 0 for field in first if field.endswith("_net")}
    return Execution(**(first | tiers | {"num_procs": ranks, "batch_size": batch}))
