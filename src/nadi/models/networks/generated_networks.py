"""Jobs of networks of layers on data parallel ranks: images, recommendations, diffusion."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nadi.models.llm.stage_traces import plan_from
from nadi.models.networks.network_file import NeuralNetwork
from nadi.models.networks.network_jobs import job_of_network
from nadi.models.networks.network_plan import NetworkPlan, load_network
from nadi.models.networks.network_statistics import NetworkStatistics, statistics_of_network
from nadi.trace.trace import Job


def network_job(network: str | Path | NeuralNetwork, **plan: Any) -> Job:
    """Make the job of a training step of a network, or of its inference.

    Parameters
    ----------
    network
        The name of a network that ships with Nadi (:func:`nadi.models.shipped_networks`), the path
        of a file in TOML, YAML or JSON, or a network.
    plan
        Fields of :class:`nadi.models.NetworkPlan`: ``ranks``, ``batch``, ``zero`` and others.

    Returns
    -------
    Job
        For :func:`nadi.simulate` and :func:`nadi.models.write_job`. Ranks that do the same share
        a trace; see ``Job.rank_groups``.

    Raises
    ------
    UsageError
        If network and plan do not fit together; the message names values that would.
    InputError, FormatError
        If there is no such network, or its file is invalid.

    Examples
    --------
    >>> job = nadi.models.network_job("resnet50", ranks=8, batch=256)
    >>> nadi.simulate(job, nadi.load_system("dgx-h100", 8))
    """
    return job_of_network(*planned_network(network, plan))


def network_statistics(network: str | Path | NeuralNetwork, **plan: Any) -> NetworkStatistics:
    """Compute parameters, FLOPs, communication and memory of a job, as :func:`network_job`."""
    return statistics_of_network(*planned_network(network, plan))


def planned_network(
    network: str | Path | NeuralNetwork, fields: Mapping[str, Any]
) -> tuple[NeuralNetwork, NetworkPlan]:
    """Find a network, and make a plan from its fields, checked against it.

    Raises
    ------
    UsageError
        If there is no such field, its value is of another type or range, or the plan does not fit
        the network.
    InputError, FormatError
        If there is no such network, or its file is invalid.
    """
    found = network if isinstance(network, NeuralNetwork) else load_network(str(network))
    plan = plan_from(NetworkPlan, fields)
    plan.check(found)
    return found, plan
