"""Whatever the trace, window and order of events: nodes come as from the plain feeder."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

import nadi
from tests.amounts import examples
from tests.feed.traces import Nodes, graphs, write
from tests.reference.windowed_feeder import WindowedFeeder

SEEDS = st.integers(0, 2**32)
POLICIES = st.sampled_from(["id", "fifo", "lifo"])


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("feed") / "trace.et"


@settings(max_examples=examples(200))
@given(nodes=graphs(), window=st.integers(1, 40), policy=POLICIES, seed=SEEDS)
def test_any_order_of_events_gives_the_plain_feeders_nodes(
    file: Path, nodes: Nodes, window: int, policy: str, seed: int
) -> None:
    ours = nadi.ETFeeder(write(file, nodes), window, policy=policy)
    plain = WindowedFeeder([(a, list(b)) for a, b in nodes], window, policy)
    choices = Random(seed)
    issued: list[int] = []
    ended: list[int] = []
    while plain.held:
        assert ours.has_nodes_to_issue()
        can = ["take"] + ["end", "back"] * bool(plain.in_flight) + ["remove"] * bool(ended)
        what = choices.choice(can)
        if what == "take":
            node, expected = ours.get_next_issuable_node(), plain.take()
            assert (node.id if node else None) == expected
            if expected is None and not plain.in_flight:
                what = "remove"
            elif expected is not None:
                issued.append(expected)
        if what in ("end", "back"):
            number = choices.choice(sorted(plain.in_flight))
            if what == "end":
                ours.free_children_nodes(number)
                plain.end(number)
                ended.append(number)
            else:
                ours.push_back_issuable_node(number)
                plain.put_back(number)
        if what == "remove" and ended:
            number = ended.pop(choices.randrange(len(ended)))
            ours.remove_node(number)
            plain.remove(number)
    assert not ours.has_nodes_to_issue()
    assert ours.get_next_issuable_node() is None
    assert set(issued) == {number for number, _ in nodes}


@settings(max_examples=examples(200))
@given(nodes=graphs(), window=st.integers(1, 40), policy=POLICIES, seed=SEEDS)
def test_batches_are_the_plain_feeders_nodes(
    file: Path, nodes: Nodes, window: int, policy: str, seed: int
) -> None:
    ours = nadi.ETFeeder(write(file, nodes), window, policy=policy)
    plain = WindowedFeeder([(a, list(b)) for a, b in nodes], window, policy)
    choices = Random(seed)
    flying: list[int] = []
    while plain.held:
        limit = choices.choice([None, *range(6)])
        batch = ours.drain(limit)
        expected: list[int] = []
        while (limit is None or len(expected) < limit) and (number := plain.take()) is not None:
            expected.append(number)
        assert batch.id.tolist() == expected
        flying += expected
        if flying:
            order = choices.sample(flying, len(flying))
            count = choices.randint(1, len(order))
            ours.release(order[:count])
            for number in order[:count]:
                plain.end(number)
            plain.remove(*order[:count])
            flying = order[count:]
    assert not ours.has_nodes_to_issue()


@given(nodes=graphs(), window=st.integers(1, 40), policy=POLICIES, limit=st.integers(1, 9))
def test_ending_at_once_is_one_by_one(
    file: Path, nodes: Nodes, window: int, policy: str, limit: int
) -> None:
    ours = nadi.ETFeeder(write(file, nodes), window, policy=policy)
    plain = WindowedFeeder([(a, list(b)) for a, b in nodes], window, policy)
    expected, got = [], []
    while plain.held:
        number = plain.take()
        assert number is not None
        plain.end(number)
        plain.remove(number)
        expected.append(number)
    while ours.has_nodes_to_issue():
        batch = ours.drain(limit, ending=True)
        assert 0 < len(batch) <= limit
        got += batch.id.tolist()
    assert got == expected


@given(nodes=graphs(), window=st.integers(1, 40))
def test_a_batch_may_be_ended_node_by_node_and_the_other_way_round(
    file: Path, nodes: Nodes, window: int
) -> None:
    ours = nadi.ETFeeder(write(file, nodes), window)
    issued = []
    while ours.has_nodes_to_issue():
        for number in (batch := ours.drain()).id.tolist():
            ours.free_children_nodes(number)
            ours.remove_node(number)
        issued += batch.id.tolist()
        if (node := ours.get_next_issuable_node()) is not None:
            issued.append(node.id)
            ours.release([node.id])
    assert sorted(issued) == sorted(number for number, _ in nodes)


@given(nodes=graphs(), window=st.integers(1, 40))
def test_the_next_node_is_the_least_by_a_function(file: Path, nodes: Nodes, window: int) -> None:
    ours = nadi.ETFeeder(write(file, nodes), window, policy=lambda node: (node.id % 3, node.name))
    while ours.has_nodes_to_issue():
        ready = [ours.get_next_issuable_node()]
        while (node := ours.get_next_issuable_node()) is not None:
            ready.append(node)
        keys = [(node.id % 3, node.name, node.id) for node in ready if node is not None]
        assert keys
        assert keys == sorted(keys)
        for node in ready:
            assert node is not None
            ours.free_children_nodes(node.id)
        for node in ready:
            assert node is not None
            ours.remove_node(node.id)


@given(nodes=graphs(), window=st.integers(1, 40))
def test_control_dependencies_count_when_asked_for(tmp_path_factory: pytest.TempPathFactory,
                                                   nodes: Nodes, window: int) -> None:  # fmt: skip
    from tests.feed.traces import content, message

    path = tmp_path_factory.mktemp("feed") / "ctrl.et"
    # some dependencies are of control only, some of both, and each node names itself
    messages = [message(number, deps[::2], ctrl_deps=[*deps[1:], number]) for number, deps in nodes]
    path.write_bytes(content(messages))
    with_data = write(path.with_name("data.et"), nodes)
    ours = nadi.ETFeeder(path, window, ctrl_deps=True)
    expected = nadi.ETFeeder(with_data, window)
    while expected.has_nodes_to_issue():
        assert ours.drain(ending=True).id.tolist() == expected.drain(ending=True).id.tolist()
    assert not ours.has_nodes_to_issue()
