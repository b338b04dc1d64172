"""Serving engines: equal to a slow reference, and what holds for all of them."""

from __future__ import annotations

import numpy as np
import pytest

from nadi.serving.engines import CacheTier, EngineRules, ServedRequests, serve_on_engines
from nadi.serving.requests import Requests
from nadi.serving.served import drawn_requests
from nadi.serving.server_setup import setup_of
from nadi.serving.step_times import StepTimes
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
    first = [one.groups[0].number for one in slow.instances]
    for name in ("steps", "beside"):  # what is of steps is the first group's
        values = [getattr(one, name) for one in slow.instances]
        assert found.instances[name][first].tolist() == values
        assert found.instances[name].sum() == found.instances[name][first].sum()
    assert sum(found.bound.values()) == found.instances["busy"].sum()
    # every token is computed, found or loaded once, but for those whose blocks were given up
    sums = {name: int(values.sum()) for name, values in found.instances.items()}
    had = sums["tokens"] + sums["hit_tokens"] + sums["loaded_tokens"] - sums["lost_tokens"]
    assert had == (requests.prompt + requests.output - 1).sum()
    if (found.arrival >= 0).all() and not rules.prefills:  # Little's law
        assert sums["in_system"] == (found.last - found.arrival).sum()


def _steps(wire: float, took: float = 1000.0) -> StepTimes:
    """Steps of one time, of which collectives keep link 0 for a part."""
    two, grid = np.array([1.0, 1001.0]), np.zeros((2, 2, 2, 2))
    return StepTimes(
        two, np.full(2, took), two, np.zeros(2), (np.array([0.0, 64.0]),) * 4, grid, False,
        wires=np.full((1, 2), wire),
    )  # fmt: skip


def test_blocks_and_collectives_have_half_of_a_link_each_while_both_are_there() -> None:
    """Steps of 1,000 ns keep the link for 500; 60 blocks of 5 ns pass it within one of them."""
    one = np.array([1, 1])
    requests = Requests.of(np.array([0, 4100]), one * 60, one * 20)
    rules = EngineRules(100, 8, 1, 200, instances=2, prefills=1, moved_ns=5.0, reuses=False)
    for wire in (0.0, 500.0):
        run = serve_on_engines(requests, rules, [_steps(0.0), _steps(wire)])
        # blocks of the first request meet no step; those of the second take 300 ns alone
        assert run.instances["beside"].tolist() == [0, 300 * wire / 1000]
        assert run.instances["loaded_tokens"].tolist() == [0, 2 * 60]
        steps, busy = run.instances["steps"][1], run.instances["busy"][1]
        assert busy == 1000 * steps + 300 * wire / 1000


def _sessions(rules: EngineRules, wire: float, seed: int) -> ServedRequests:
    setup = setup_of({"rate": 1e6, "number": 60, "input": 40, "output": 20, "spread": 0.5,
                      "turns": 3})  # fmt: skip
    return serve_on_engines(drawn_requests(setup, seed), rules, [_steps(wire)] * 2)


def _rate(run: ServedRequests) -> float:
    return float(run.output.sum()) / float(run.last.max() - run.arrival.min())


def test_transfers_beside_collectives_keep_the_laws() -> None:
    """None of one changes nothing of the other; wider links are not slower in the mean."""
    tier = CacheTier("pool", 400, 2, 60.0, 5.0)
    tiers = EngineRules(64, 8, 4, 150, instances=2, tiers=(tier,))
    apart = EngineRules(64, 8, 4, 150, instances=3, prefills=1, moved_ns=60.0)
    alone = tiers._replace(tiers=())
    for seed in range(3):
        pair = [_sessions(alone, wire, seed).last for wire in (0.0, 400.0)]
        assert np.array_equal(*pair)
    for rules, faster in (
        (tiers, tiers._replace(tiers=(tier._replace(link_ns=15.0),))),
        (apart, apart._replace(moved_ns=15.0)),
    ):
        runs = [[_sessions(one, wire, seed) for seed in range(20)]
                for one, wire in ((rules, 400.0), (rules, 0.0), (faster, 400.0))]  # fmt: skip
        rates = [np.mean([_rate(run) for run in one]) for one in runs]
        assert rates[0] <= 1.005 * min(rates[1:])
        assert all(run.instances["beside"].sum() > 0 for run in runs[0])
        assert all(run.instances["beside"].sum() == 0 for run in runs[1])
        for run in runs[0] + runs[1]:  # what is loaded was read, once
            loaded = run.instances["loaded_tokens"].sum()
            assert loaded == 4 * sum(one.read for one in run.tiers) or rules.prefills
            assert loaded > 0


def _by_tokens(ns: float, experts: float = 0.0) -> StepTimes:
    """Steps that take so long for each token of the slowest group, and of experts in the mean."""
    two, grid = np.array([1.0, 1001.0]), np.zeros((2, 2, 2, 2))
    return StepTimes(
        two, two * (ns + experts), two, np.zeros(2), (np.array([0.0, 64.0]),) * 4, grid, False,
        experts=np.stack([two * experts, np.zeros(2)]),
    )  # fmt: skip


def test_groups_of_an_instance_wait_for_the_slowest() -> None:
    """A group that generates has one token of 10 ns, and waits for a prompt of 50 in the other."""
    arrival, prompt, output = (np.array(one) for one in ([0, 205], [1, 50], [40, 2]))
    requests = Requests.of(arrival, prompt, output)
    for groups, experts, longest in (
        (2, 0.0, 500), (2, 4.0, 500 + 4 * 26), (1, 0.0, 510), (1, 4.0, 14 * 51),
    ):  # fmt: skip
        rules = EngineRules(100, 8, 1, 200, groups=groups, reuses=False, overlaps=False)
        run = serve_on_engines(requests, rules, [_by_tokens(10.0, experts)] * 2)
        begun = -(-205 // (10 + experts)) * (10 + experts)
        assert run.first[1] == begun + longest, (groups, experts)
        assert run.instances["steps"].tolist() == [40] + [0] * (groups - 1)
        assert run.instances["busy"].sum() == run.last.max()  # none of them is idle


def test_groups_with_equal_requests_serve_them_as_one_instance_does() -> None:
    for seed in range(20):
        setup = setup_of({"rate": 2e6, "number": 40, "input": 30, "output": 15, "spread": 0.5})
        requests = drawn_requests(setup, seed)
        rules = EngineRules(64, 8, 4, 40)
        alone = serve_on_engines(requests, rules, [_by_tokens(10.0, 4.0)] * 2)
        rows = np.repeat(np.arange(40), 3)
        triple = Requests.of(requests.arrival[rows], requests.prompt[rows], requests.output[rows])
        run = serve_on_engines(triple, rules._replace(groups=3), [_by_tokens(10.0, 4.0)] * 2)
        assert np.array_equal(run.first, alone.first[rows])
        assert np.array_equal(run.last, alone.last[rows])
        assert alone.put_out.sum() > 0


def test_prompts_wait_until_each_group_has_one() -> None:
    """Both groups generate when a prompt comes: it waits for another one, or for 5 steps."""
    arrival = np.array([0, 0, 1005, 1025])
    requests = Requests.of(arrival, np.array([4, 4, 4, 4]), np.array([400, 400, 2, 2]))
    rules = EngineRules(100, 8, 1, 2000, groups=2, reuses=False, overlaps=False)
    one = [_by_tokens(10.0)] * 2
    for wait, waited in ((0, 0), (5, 2)):
        run = serve_on_engines(requests, rules._replace(wait_steps=wait), one)
        # a step begins at 1010; that with the prompt computes 5 tokens of the group
        assert run.first[2] == 1010 + 10 * waited + 50, wait
        assert (run.bound["prompts"] > 0) == (wait > 0)
    alone = Requests.of(arrival[:3], np.array([4, 4, 4]), np.array([400, 400, 2]))
    for wait in (5, 9):
        run = serve_on_engines(alone, rules._replace(wait_steps=wait), one)
        # engines count steps without prompts, too
        assert 1010 <= run.first[2] - 50 <= 1010 + 10 * wait, wait


def test_the_first_token_of_a_prompt_read_elsewhere_comes_with_its_keys() -> None:
    """It was generated after 60 steps' tokens of 10 ns; 60 blocks of 5 ns follow it."""
    requests = Requests.of(np.array([0]), np.array([60]), np.array([20]))
    rules = EngineRules(100, 8, 1, 200, instances=2, prefills=1, moved_ns=5.0, reuses=False)
    run = serve_on_engines(requests, rules, [_by_tokens(10.0)] * 2)
    assert run.first.tolist() == [600 + 300]
    assert run.last.tolist() == [900 + 19 * 10]
