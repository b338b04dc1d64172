"""Serving engines: equal to a slow reference, and what holds for all of them."""

from __future__ import annotations

import pytest

from nadi.serving.engines import serve_on_engines
from tests.reference.serving import Server
from tests.serving.drawn import drawn_case


@pytest.mark.parametrize("seed", range(40))
def test_engines_serve_as_the_slow_reference(seed: int) -> None:
    requests, rules, times = drawn_case(seed)
    found = serve_on_engines(requests, rules, times)
    slow = Server(requests, rules, times)
    slow.serve()
    for name in ("queued", "first", "last", "hits", "put_out"):
        assert getattr(found, name).tolist() == [getattr(one, name) for one in slow.requests], name
    assert found.instances["steps"].tolist() == [one.steps for one in slow.instances]
    # every token is computed, found or loaded once, but for those whose blocks were given up
    sums = {name: int(values.sum()) for name, values in found.instances.items()}
    had = sums["tokens"] + sums["hit_tokens"] + sums["loaded_tokens"] - sums["lost_tokens"]
    assert had == (requests.prompt + requests.output - 1).sum()
    if (found.arrival >= 0).all() and not rules.prefills:  # Little's law
        assert sums["in_system"] == (found.last - found.arrival).sum()
