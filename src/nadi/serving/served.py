"""Serve requests on a system: how many tokens a second, how late, and what bounds it."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nadi.errors import Parameter, UsageError, checked
from nadi.estimates.inference_steps import launched_operations
from nadi.models.llm.language_model import LanguageModel, load_language_model
from nadi.serving.engines import EngineRules, ServedRequests, serve_on_engines
from nadi.serving.priced_steps import ServerBasis, server_basis
from nadi.serving.requests import LATEST, Requests, read_requests
from nadi.serving.server_setup import ServerSetup, setup_of
from nadi.systems.library import read_system_file
from nadi.systems.system import System
from nadi.trace.arrays import Bools, Floats, Ints

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
        system = _system_for(system, setup)
    basis = server_basis(model, system, setup)
    seeds = range(1 if setup.requests else setup.seeds)
    runs = tuple(
        serve_on_engines(
            _requests(setup, seed), _rules(model, setup, basis, seed),
            [basis.reading.times, basis.instance.times],
        ) for seed in seeds
    )  # fmt: skip
    return Serving(model, system, setup, basis, runs)


def _system_for(system: str | Path, setup: ServerSetup) -> System:
    """Load a system with room for all devices, in whole nodes, or for those of an instance.

    Of one that has shapes, it is the smallest with room.
    """
    file = read_system_file(system)
    found = file.fit(None)
    *within, _ = found.network.dimensions
    node = math.prod(one.size for one in within) if within else found.network.num_ranks
    one_of_each = max(setup.ranks, setup.of_prefill.ranks)
    for devices in (setup.devices, one_of_each):
        if not file.network.shapes and devices <= found.network.num_ranks:
            return found
        whole = devices if file.network.shapes else -(-devices // node) * node
        try:
            return file.fit(file.ranks_with_room(whole))
        except UsageError:
            if devices == one_of_each:
                raise
    return found


def _requests(setup: ServerSetup, seed: int) -> Requests:
    if setup.requests:
        return read_requests(setup.requests, setup.block)
    return drawn_requests(setup, seed)


def _rules(model: LanguageModel, setup: ServerSetup, basis: ServerBasis, seed: int) -> EngineRules:
    reading, others = basis.kinds
    return EngineRules(
        setup.budget, setup.sequences, setup.block, others.blocks, setup.overlap, setup.reserve,
        setup.prefix_caching, setup.instances, setup.prefill_replicas, others.stages,
        setup.routing, round(setup.host_us * 1e3), setup.drafts, setup.acceptance,
        others.moved_ns, basis.moved_link, others.tiers, reading, seed,
        round(setup.launch_us * 1e3 * launched_operations(model)), setup.wait_steps,
        math.ceil(setup.wait_share * setup.budget), setup.attention_dp,
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


def drawn_requests(setup: ServerSetup, seed: int) -> Requests:
    """Draw a setup's requests.

    Of a session, the prompt of each turn is all that was said before, and ``input`` tokens more.
    With a rate, sessions come at it divided by their turns. With a closed loop, each place has one
    request (or session) after the other.

    - Returns: In the order of sessions, each turn after the one before it. O(requests).
    """
    random = np.random.default_rng(seed)
    turns = setup.turns
    sessions = -(-setup.number // turns)
    num = sessions * turns
    fresh = _lengths(random, setup.input, setup.spread, num)
    output = _lengths(random, setup.output, setup.spread, num)
    session = np.repeat(np.arange(sessions), turns)
    turn = np.tile(np.arange(turns), sessions)
    said = np.cumsum(fresh + output) - (fresh + output)
    prompt = said - said[session * turns] + np.maximum(fresh, setup.prefix * (turn == 0))
    pause = round(setup.think * 1e9)
    follows = np.where(turn > 0, np.arange(num) - 1, -1)
    arrival = np.where(turn > 0, pause, 0)
    if setup.rate:
        begun = _arrivals(random, setup.rate / turns, setup.burst, sessions)
        if not begun[-1] + float(pause) * num <= LATEST:  # not a number, neither
            what = f"the last of {num} requests comes after more than {LATEST / 1e9:g} s"
            raise UsageError(Parameter("rate", setup.rate), what, "give more a second")
        arrival[::turns] = begun
    else:
        behind = np.arange(setup.concurrency, sessions)
        follows[behind * turns] = (behind - setup.concurrency) * turns + turns - 1
    group = random.integers(0, setup.groups, sessions)[session]
    zero = np.zeros(num, dtype=np.int64)
    return Requests(
        arrival.astype(np.int64), prompt, output, session + 1, -1 - group,
        np.full(num, setup.prefix, dtype=np.int64), follows.astype(np.int64), zero,
        np.zeros(0, dtype=np.int64),
    )  # fmt: skip


def _lengths(random: np.random.Generator, mean: int, spread: float, num: int) -> Ints:
    """Draw lognormal lengths of a mean, each 1 or more."""
    if not spread:
        return np.full(num, mean, dtype=np.int64)
    sigma = np.sqrt(np.log1p(spread**2))
    drawn = random.lognormal(np.log(mean) - sigma**2 / 2, sigma, num)
    return np.maximum(np.rint(drawn), 1).astype(np.int64)


def _arrivals(random: np.random.Generator, rate: float, burst: float, num: int) -> Floats:
    """Draw arrivals in ns, whose gaps have a gamma distribution (of burst 1: exponential)."""
    gaps = np.full(num, 1e9 / rate)
    if burst:
        gaps = random.gamma(1 / burst**2, burst**2 * 1e9 / rate, num)
    with np.errstate(over="ignore", invalid="ignore"):  # which the caller refuses
        found: Floats = np.rint(np.cumsum(gaps) - gaps[0])
    return found
