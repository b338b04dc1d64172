"""Estimates of networks that ship, or that a file describes."""

from pathlib import Path
from typing import Any

from nadi.estimates.network_steps import NetworkEstimate, estimate_network
from nadi.models.networks.network_file import NeuralNetwork
from nadi.models.networks.network_jobs import planned_network
from nadi.systems.library import load_system


def network_estimate(
    network: str | Path | NeuralNetwork, system: str | Path, **plan: Any
) -> NetworkEstimate:
    """Estimate a step without simulating it; network and plan as for :func:`network_job`.

    Raises
    ------
    UsageError, InputError, FormatError
        As for :func:`network_job`, and if there is no such system.
    """
    found, checked = planned_network(network, plan)
    return estimate_network(found, checked, load_system(system, checked.ranks))
