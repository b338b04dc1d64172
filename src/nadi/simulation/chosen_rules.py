"""The rules that a system asks for."""

from __future__ import annotations

from nadi.simulation.default_rules import DefaultRules
from nadi.simulation.rules import AstraSimRules
from nadi.systems.system import System

__all__ = ["rules_of"]

_RULES = {"": DefaultRules(), "astra-sim": AstraSimRules()}


def rules_of(system: System) -> DefaultRules:
    """Give the rules by which a system is simulated, as its ``compat`` says."""
    return _RULES[system.compat]
