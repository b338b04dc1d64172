"""Requests that are drawn: lengths, arrivals, sessions and common beginnings."""

from __future__ import annotations

import numpy as np

from nadi.serving.requests import Requests
from nadi.serving.server_setup import ServerSetup
from nadi.trace.arrays import Floats, Ints


def drawn_requests(setup: ServerSetup, seed: int) -> Requests:
    """Draw a setup's requests.

    Of a session, the prompt of each turn is all that was said before, and ``input`` tokens more.
    With a rate, sessions come at it divided by their turns. With a closed loop, each place has one
    request (or session) after the other.

    Returns
    -------
    Requests
        In the order of sessions, each turn after the one before it. O(requests).
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
        arrival[::turns] = _arrivals(random, setup.rate / turns, setup.burst, sessions)
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
    found: Floats = np.rint(np.cumsum(gaps) - gaps[0])
    return found
