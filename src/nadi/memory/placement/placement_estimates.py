"""Steps of generated jobs with some tensors in a lower tier, beside what an estimate says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from nadi.errors import UsageError
from nadi.estimates.calculon.machine_description import MachineDescription
from nadi.estimates.described_systems import machine_of_system, model_of_language_model
from nadi.estimates.plan_execution import OFFLOADED, execution_of_plan
from nadi.estimates.single_estimate import estimate
from nadi.memory.placement.placed_steps import MovedRole, PlainStep
from nadi.memory.staged_moves import Staging
from nadi.models.llm.generated_jobs import checked_plan
from nadi.systems.system import System

__all__ = ["EstimatedRole", "PlacementEstimates", "estimates_beside"]

_ANY = 1e6  # GiB: the simulation has room as well
_NEAR = 0.03  # differences that are not explained
_EDGES = "a simulation stores activations beside the backward, too, and keeps what it uses next"
_UNKNOWN = "no rule is known that makes them differ this way"


class EstimatedRole(NamedTuple):
    """How long a step is with tensors of a role in a lower tier, over that without.

    Attributes
    ----------
    role
        Whose tensors live there.
    simulated, estimated
        Ratios of the same step.
    reason
        Why they differ; empty where they hardly do.
    """

    role: str
    simulated: float
    estimated: float
    reason: str


class PlacementEstimates(NamedTuple):
    """What estimates say beside simulations.

    Attributes
    ----------
    roles
        One for each part that an estimate can offload.
    missing
        Why there are none; empty if there are.
    """

    roles: tuple[EstimatedRole, ...] = ()
    missing: str = ""


def estimates_beside(
    plain: PlainStep, alone: Sequence[MovedRole], fields: Mapping[str, Any], system: System,
    staging: Staging,
) -> PlacementEstimates:  # fmt: skip
    """Estimate the step of a generated job with each part offloaded that estimates can offload.

    Parameters
    ----------
    alone
        Each role moved alone: those that the job has.
    fields
        Of its plan, with ``model``.
    system
        With lower tiers.
    """
    if staging.in_place:
        return PlacementEstimates(missing="an estimate has no access in place")
    known = {one.role: one.ns for one in alone}
    try:
        machine = _with_second_tier(system)
        how = {name: value for name, value in fields.items() if name != "model"}
        model, plan = checked_plan(fields["model"], how)
        described = model_of_language_model(model, plan.sequence or model.sequence)

        def seconds(*offload: str) -> float:
            execution = execution_of_plan(
                plan, machine, has_experts=model.moe is not None, offload=offload
            )
            return estimate(described, machine, execution).seconds

        without = seconds()
        found = []
        for part in (one for one in OFFLOADED if one in known):
            ratios = (known[part] / max(plain.ns, 1), seconds(part) / without)
            found.append(EstimatedRole(part, *ratios, _reason(part, *ratios)))
    except UsageError as error:
        return PlacementEstimates(missing=str(error))
    return PlacementEstimates(tuple(found))


def _reason(part: str, simulated: float, estimated: float) -> str:
    """Say why ratios differ."""
    if abs(simulated / estimated - 1) <= _NEAR:
        return ""
    return _EDGES if part == "activations" and simulated < estimated else _UNKNOWN


def _with_second_tier(system: System) -> MachineDescription:
    """Describe the system for an estimate, with the first of its lower tiers."""
    machine = machine_of_system(msgspec.structs.replace(system, remote_memory=None))
    tier = msgspec.structs.replace(machine.mem2, GiB=_ANY)
    return msgspec.structs.replace(machine, mem2=tier)
