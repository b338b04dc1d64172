"""Serve requests on a system: how many tokens a second, how late, and what bounds it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nadi.errors import checked
from nadi.models.llm.language_model import LanguageModel
from nadi.models.llm.library import load_language_model
from nadi.serving.drawn_requests import drawn_requests
from nadi.serving.engines import EngineRules, ServedRequests, serve_on_engines
from nadi.serving.priced_steps import ServerBasis, server_basis
from nadi.serving.requests import Requests, read_requests
from nadi.serving.server_setup import ServerSetup, setup_of
from nadi.systems.library import load_system
from nadi.systems.system import System
from nadi.trace.arrays import Bools, Floats

METRICS = ("ttft", "tpot", "e2e")
"""Time to the first token, time per further token, and time to the last one."""


class Serving(NamedTuple):
    """A server and how it served.

    Attributes
    ----------
    model, system
        Of what, and on what.
    setup
        What was asked.
    basis
        What the setup comes to on the system.
    runs
        One for each seed; of a file of requests one.
    """

    model: LanguageModel
    system: System
    setup: ServerSetup
    basis: ServerBasis
    runs: tuple[ServedRequests, ...]


@checked
def serve(model: str | Path | LanguageModel, system: str | Path | System, **setup: Any) -> Serving:
    """Serve requests of a language model on a system.

    Parameters
    ----------
    model, system
        Names of those that ship with Nadi, files, or values.
    setup
        Fields of :class:`ServerSetup`; ``requests``, ``rate`` or ``concurrency`` is needed.

    Raises
    ------
    UsageError
        If a field is unknown, or the model does not fit the system.
    InputError
        If a file cannot be read.

    Examples
    --------
    >>> nadi.serve("llama3-8b", "hgx-h200", rate=8, input=2048, output=256)
    """
    return serve_setup(model, system, setup_of(setup))


def serve_setup(
    model: str | Path | LanguageModel, system: str | Path | System, setup: ServerSetup
) -> Serving:
    """Serve a setup's requests, once for each seed."""
    if not isinstance(model, LanguageModel):
        model = load_language_model(model)
    if not isinstance(system, System):
        system = load_system(system)
    basis = server_basis(model, system, setup)
    seeds = range(1 if setup.requests else setup.seeds)
    runs = tuple(
        serve_on_engines(_requests(setup, seed), _rules(setup, basis, seed), [basis.times] * 2)
        for seed in seeds
    )
    return Serving(model, system, setup, basis, runs)


def _requests(setup: ServerSetup, seed: int) -> Requests:
    if setup.requests:
        return read_requests(setup.requests, setup.block)
    return drawn_requests(setup, seed)


def _rules(setup: ServerSetup, basis: ServerBasis, seed: int) -> EngineRules:
    return EngineRules(
        setup.budget, setup.sequences, setup.block, basis.blocks, setup.overlap, setup.reserve,
        setup.prefix_caching, setup.instances, setup.prefill_replicas, setup.pp, setup.routing,
        round(setup.host_us * 1e3), setup.drafts, setup.acceptance, basis.moved_ns, basis.tiers,
        seed,
    )  # fmt: skip


def measures(run: ServedRequests) -> dict[str, Floats]:
    """Give the metrics of each request in ns: time per token is NaN where there is one token.

    The time to the first token counts from the moment at which the request came.
    """
    gaps = np.maximum(run.output - 1, 1)
    per_token = np.where(run.output > 1, (run.last - run.first) / gaps, np.nan)
    return {
        "ttft": (run.first - run.arrival).astype(float), "tpot": per_token,
        "e2e": (run.last - run.arrival).astype(float),
    }  # fmt: skip


def within_limits(run: ServedRequests, setup: ServerSetup) -> Bools:
    """Tell which requests kept all limits: shape (requests,)."""
    kept = np.ones(run.arrival.size, dtype=bool)
    for name, values in measures(run).items():
        limit = getattr(setup, f"{name}_ms")
        if limit:
            kept &= ~(values > limit * 1e6)
    return kept
