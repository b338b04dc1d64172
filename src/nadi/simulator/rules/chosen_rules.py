"""The rules that a system asks for."""

from __future__ import annotations

from nadi.simulator.machine.system import System
from nadi.simulator.rules.astra_sim_rules import AstraSimRules
from nadi.simulator.rules.default_rules import DefaultRules

__all__ = ["rules_of"]

_RULES = {"": DefaultRules(), "astra-sim": AstraSimRules()}


def rules_of(system: System) -> DefaultRules:
    """Give the rules by which a system is simulated, as its ``compat`` says."""
    return _RULES[system.compat]
