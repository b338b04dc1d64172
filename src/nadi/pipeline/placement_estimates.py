"""Steps of generated jobs with some tensors in a lower tier, beside what an estimate says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from nadi.errors import UsageError
from nadi.estimate.described_systems import machine_of_system, model_of_language_model
from nadi.estimate.machine_description import MachineDescription
from nadi.estimate.plan_execution import OFFLOADED, execution_of_plan
from nadi.estimate.single_estimate import estimate
from nadi.pipeline.generated_jobs import checked_plan
from nadi.pipeline.placed_steps import MovedRole, PlainStep
from nadi.placement.placement_choice import ByRules, PlacementRule
from nadi.placement.staged_moves import Staging
from nadi.simulator.machine.system import RemoteMemory, System

__all__ = ["EstimatedRoles", "PlacementEstimates", "estimates_beside"]

_WITH = {"optimizer": ("optimizer", "gradients")}  # what an estimate moves as one
_ANY = 1e6  # GiB: the simulation has room as well
_NEAR = 0.03  # differences that are not explained
_WHY = {
    "weights": "a simulation loads the first weights as the step begins and stores those that were "
    "updated as it ends, with nothing beside",
    "activations": "a simulation keeps what the backward uses next; an estimate moves the "
    "activations of all layers alike",
    "optimizer": "a simulation updates all weights at the end and sums gradients in each "
    "micro-batch; an estimate spreads these moves over the backward",
}
_UNKNOWN = "no rule is known that makes them differ this way"


class EstimatedRoles(NamedTuple):
    """How long a step is with tensors of some roles in a lower tier, over that without.

    Attributes
    ----------
    roles
        Whose tensors live there.
    simulated, estimated
        Ratios of the same step.
    reason
        Why they differ; empty where they hardly do.
    """

    roles: tuple[str, ...]
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

    roles: tuple[EstimatedRoles, ...] = ()
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
            roles = tuple(role for role in _WITH.get(part, (part,)) if role in known)
            ns = known[part] if len(roles) == 1 else _moved(plain, roles, system, staging)
            ratios = (ns / max(plain.ns, 1), seconds(part) / without)
            found.append(EstimatedRoles(roles, *ratios, _reason(part, *ratios)))
    except UsageError as error:
        return PlacementEstimates(missing=str(error))
    return PlacementEstimates(tuple(found))


def _reason(part: str, simulated: float, estimated: float) -> str:
    """Say why ratios differ; each reason makes one of them the longer one."""
    if abs(simulated / estimated - 1) <= _NEAR:
        return ""
    as_usual = (simulated < estimated) == (part == "activations")
    return _WHY[part] if as_usual else _UNKNOWN


def _with_second_tier(system: System) -> MachineDescription:
    """Describe the system for an estimate, with the first of its lower tiers."""
    machine = machine_of_system(msgspec.structs.replace(system, remote_memory=RemoteMemory()))
    tier = msgspec.structs.replace(machine.mem2, GiB=_ANY)
    return msgspec.structs.replace(machine, mem2=tier)


def _moved(plain: PlainStep, roles: Sequence[str], system: System, staging: Staging) -> int:
    """Return the length of the step with the tensors of several roles in the lower tier."""
    lower = system.tiers[0].name
    rules = ByRules([PlacementRule(role, "bytes", "", 0, lower) for role in roles])
    return plain.placed(plain.chosen(rules, system, staging), system, staging).ns
