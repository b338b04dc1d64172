"""The period of steps of inference, against stages whose times a hand adds up."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

import nadi
from nadi.simulation.accounts.times import steady_step
from nadi.simulation.simulation import Simulation
from nadi.systems.system import Dimension, Network, System
from nadi.trace.schema import DEPS, GROUPS, ISSUES, MATCHES, NODES
from nadi.trace.trace import Job, Provenance, Trace
from tests.amounts import examples

TRAFFIC = 64  # bytes of a message


def stage_of(number: int, stages: int, time: int, count: int) -> Trace:
    """Give a stage that receives, computes for so long and sends, for each micro-batch."""
    rows: list[tuple[str, int, int, int, int, int, str]] = []
    deps = []
    for micro_batch in range(count):
        if number:
            rows.append(("COMM_RECV", 1, number - 1, -1, TRAFFIC, micro_batch, "recv"))
            deps.append((len(rows) - 1, len(rows)))
        rows.append(("COMP", 0, -1, -1, -1, micro_batch, "none"))
        if number + 1 < stages:
            deps.append((len(rows) - 1, len(rows)))
            rows.append(("COMM_SEND", 2, -1, number + 1, TRAFFIC, micro_batch, "send"))
    names = ("kind", "stream", "src", "dst", "comm_bytes", "micro_batch", "comm_type")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    nodes = NODES.build(len(rows), {
        "id": range(len(rows)), "name": "node", "category": "kernel", "is_cpu": False, "group": -1,
        "duration": [time if row[0] == "COMP" else -1 for row in rows],
        "tag": columns["micro_batch"], **columns,
    })  # fmt: skip
    return Trace(
        nodes,
        DEPS.build(len(deps), {
            "src": [one for one, _ in deps], "dst": [other for _, other in deps], "kind": "data",
        }),
        GROUPS.empty(), ISSUES.empty(), Provenance("", ()),
    )  # fmt: skip


def simulated(times: list[int], count: int) -> Simulation:
    """Simulate stages of these ns on a network whose messages take 1 us."""
    stages = tuple(
        stage_of(number, len(times), time, count) for number, time in enumerate(times)
    )  # fmt: skip
    network = Network((Dimension("switch", len(times), 64.0, 500.0),))
    return nadi.simulate(Job(stages, MATCHES.empty(), ISSUES.empty()), System(network))


def test_two_stages_by_hand() -> None:
    """Stages of 300 and 500 us: an output each 500 us, and 800 us through both, and a message."""
    done = simulated([300_000, 500_000], 2)
    hop = done.makespan - 300_000 - 2 * 500_000
    assert 0 < hop < 5_000
    assert steady_step(done, feeds_back=False) == steady_step(done, feeds_back=True) == 1_000_000
    # a token that has to be there before the next one keeps both stages from working at once
    alone = simulated([300_000, 500_000], 1)
    assert steady_step(alone, feeds_back=False) == 500_000
    assert steady_step(alone, feeds_back=True) == alone.makespan == 800_000 + hop


@settings(max_examples=examples(60))
@given(
    times=st.lists(st.integers(50_000, 900_000), min_size=1, max_size=4), count=st.integers(1, 6)
)
def test_the_busiest_stage_gives_the_period(times: list[int], count: int) -> None:
    done = simulated(times, count)
    assert steady_step(done, feeds_back=False) == count * max(times)
    longest = max(count * max(times), simulated(times, 1).makespan)
    assert steady_step(done, feeds_back=True) == longest


def test_more_micro_batches_take_a_period_longer() -> None:
    plan = {"tp": 2, "pp": 2, "inference": "decode", "micro_batch": 4}
    system = nadi.load_system("dgx-h100", 4)
    few, more = (
        nadi.simulate(nadi.llm_job("llama3-8b", global_batch=4 * count, **plan), system)
        for count in (2, 3)
    )
    period = more.makespan - few.makespan
    assert steady_step(few, feeds_back=True) / 2 == pytest.approx(period, rel=1e-3)
    assert steady_step(few, feeds_back=True) < 0.7 * few.makespan
