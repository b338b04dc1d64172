"""Estimates of networks against the simulation of their generated jobs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, reject, settings, strategies as st

import nadi
from nadi.cli import main
from nadi.estimates import network_estimate
from nadi.models import network_job
from nadi.systems import shipped_systems
from tests.amounts import examples


@settings(max_examples=examples(15))
@given(st.sampled_from(sorted(shipped_systems())), st.data())
def test_a_network_takes_what_is_simulated_on_each_node(system: str, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["dlrm-kaggle", "dlrm-dcnv2", "resnet50"]))
    plan: dict[str, Any] = {
        "ranks": data.draw(st.sampled_from([1, 2, 4])),
        "batch": data.draw(st.sampled_from([64, 2048, 8192])),
        "zero": data.draw(st.sampled_from([0, 1])),
    }
    try:
        described = nadi.load_system(system, plan["ranks"])
    except nadi.NadiError:
        reject()
    found = network_estimate(name, system, **plan)
    done = nadi.simulate(network_job(name, **plan), described)
    several = sum(one.size > 1 for one in described.network.dimensions) > 1
    near = 0.12 if several else 0.03  # of which parts of two collectives use one each at once
    assert found.seconds == pytest.approx(done.makespan / 1e9, rel=near)
    assert min(found.times.values()) > 0


def test_a_collective_goes_first_that_comes_first() -> None:
    # a reduction stands before the exchange of tables in the program, and comes later to the links
    plan = {"ranks": 8, "batch": 2048}
    done = nadi.simulate(network_job("dlrm-dcnv2", **plan), nadi.load_system("dgx-b200", 8))
    found = network_estimate("dlrm-dcnv2", "dgx-b200", **plan)
    assert found.seconds == pytest.approx(done.makespan / 1e9, rel=0.01)


def test_the_command_estimates_a_network(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["estimate", "dlrm-dcnv2", "dgx-h100", "--dp", "8", "--global-batch", "65536"]
    assert main([*given, "--zero", "0"]) == 0
    told = capsys.readouterr().out
    assert "a step of 65,536 samples" in told
    assert "bound by tables" in told
    assert main([*given, "--tp", "8", "--check"]) == 2
    assert "--tp --check: dlrm-dcnv2 is a network" in capsys.readouterr().err
    assert main([*given[:-1], "65537"]) == 2
    assert "give a multiple of --dp" in capsys.readouterr().err
