"""What a node says, and nodes and dependencies that a simulator adds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nadi
from tests.feed.traces import attribute, content, message, write
from tests.reference.chakra_messages import IOInfo, attribute_value, read_messages

NUMBERS = ("num_ops", "tensor_loc", "tensor_size", "comm_type", "comm_priority", "comm_size",
           "comm_src", "comm_dst", "comm_tag")  # fmt: skip


@pytest.fixture
def feeder(tmp_path: Path) -> nadi.ETFeeder:
    everything = message(
        7, [3], name="all_reduce", type=7, duration_micros=12,
        inputs=IOInfo(values="[1]", shapes="[[]]", types="['Int']"), outputs=IOInfo(values="[2]"),
        attr=[
            attribute("is_cpu_op", "bool", False), attribute("num_ops", "int64", 2**40),
            attribute("tensor_loc", "uint32", 1), attribute("tensor_size", "uint64", 5),
            attribute("comm_type", "int64", 0), attribute("comm_priority", "int32", -3),
            attribute("comm_size", "double", 4096.0), attribute("comm_src", "sint32", 1),
            attribute("comm_dst", "fixed64", 2), attribute("comm_tag", "float", 9.0),
            attribute("pg_name", "string", "tp"), attribute("note", "string", "grüße"),
            attribute("half", "double", 0.5),
        ],
    )  # fmt: skip
    file = tmp_path / "trace.et"
    file.write_bytes(content([message(3, name=""), everything, message(9, [3])]))
    return nadi.ETFeeder(file)


def test_a_node_says_all_that_the_file_does(feeder: nadi.ETFeeder) -> None:
    node = feeder.lookup_node(7)
    assert (node.id, node.name, node.type) == (7, "all_reduce", nadi.simulation.NodeType.COMM_COLL)
    assert node.runtime == 12
    assert node.is_cpu_op is False
    assert [getattr(node, name) for name in NUMBERS] == [2**40, 1, 5, 0, -3, 4096, 1, 2, 9]
    assert node.pg_name == "tp"
    assert node.get_inputs_values() == "[1]"
    assert node.get_inputs_shapes() == "[[]]"
    assert node.get_inputs_types() == "['Int']"
    assert node.get_outputs_values() == "[2]"
    assert node.get_outputs_shapes() == node.get_outputs_types() == ""
    assert node.has_other_attr("half")
    assert not node.has_other_attr("whole")
    assert not node.has_other_attr("inputs.values")
    assert node.get_other_attr("half") == 0.5
    assert node.get_other_attr("note") == "grüße"
    assert repr(node) == "<ETFeederNode 7 COMM_COLL 'all_reduce'>"


def test_what_a_node_does_not_say(feeder: nadi.ETFeeder) -> None:
    node = feeder.lookup_node(3)
    assert (node.name, node.pg_name, node.get_inputs_values()) == ("", "", "")
    assert {getattr(node, name) for name in NUMBERS} == {-1}
    assert node.is_cpu_op is True


def test_batches_say_the_same(feeder: nadi.ETFeeder) -> None:
    batch = feeder.drain(ending=True)
    assert batch.id.tolist() == [3, 7, 9]
    assert batch.type.tolist() == [4, 7, 4]
    assert batch.runtime.tolist() == [0, 12, 0]
    assert batch.is_cpu_op.tolist() == [True, False, True]
    assert batch.number("comm_priority").tolist() == [-1, -3, -1]
    assert batch.name == ["", "all_reduce", "n9"]
    assert batch.pg_name == ["", "tp", ""]
    assert batch[1].comm_size == 4096


def test_a_number_that_is_too_large_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "large.et"
    file.write_bytes(content([message(1, attr=[attribute("tensor_size", "uint64", 2**63)])]))
    with pytest.raises(
        nadi.errors.FormatError, match=r"node 1 \(n1\) has tensor_size 9223.* too large"
    ):
        nadi.ETFeeder(file)


def test_children_are_those_that_wait(feeder: nadi.ETFeeder) -> None:
    parent = feeder.lookup_node(3)
    assert [child.id for child in parent.get_children()] == [7, 9]
    feeder.lookup_node(7).add_child(feeder.lookup_node(9))
    assert [child.id for child in feeder.lookup_node(7).get_children()] == [9]
    order = []
    while feeder.has_nodes_to_issue():
        order.append((batch := feeder.drain()).id.tolist())
        feeder.release(batch)
    assert order == [[3], [7], [9]]


def test_a_ready_node_can_be_made_to_wait(tmp_path: Path) -> None:
    for policy in ("id", "fifo", "lifo", "runtime"):
        file = write(tmp_path / "t.et", [(1, []), (2, []), (3, [])])
        feeder = nadi.ETFeeder(file, policy=policy)
        feeder.lookup_node(2).add_child(feeder.lookup_node(1))
        batch = feeder.drain()
        assert sorted(batch.id.tolist()) == [2, 3]
        feeder.release(batch)
        assert feeder.drain(ending=True).id.tolist() == [1]


@pytest.mark.parametrize("window", [1, 2, 50])
def test_added_nodes_are_issued_like_others(tmp_path: Path, window: int) -> None:
    feeder = nadi.ETFeeder(write(tmp_path / "t.et", [(n, [n - 1][:n]) for n in range(5)]), window)
    first = feeder.get_next_issuable_node()
    assert first is not None
    feeder.add_node(
        nadi.simulation.ETFeederNode(
            100, "extra", nadi.simulation.NodeType.COMM_SEND, 3, data_deps=[0, 101],
                               comm_size=64, ratio=0.5, pg_name="dp")
    )  # fmt: skip
    feeder.add_node(nadi.simulation.ETFeederNode(101, data_deps=[0]))
    feeder.resolve_dep()
    extra = feeder.lookup_node(100)
    assert (extra.comm_size, extra.get_other_attr("ratio"), extra.pg_name) == (64, 0.5, "dp")
    assert (extra.type, extra.runtime, extra.is_cpu_op) == (
        nadi.simulation.NodeType.COMM_SEND,
        3,
        True,
    )
    feeder.free_children_nodes(0)
    feeder.remove_node(0)
    issued = []
    while feeder.has_nodes_to_issue():
        node = feeder.get_next_issuable_node()
        assert node is not None
        issued.append(node.id)
        feeder.release([node.id])
    assert sorted(issued) == [1, 2, 3, 4, 100, 101]
    assert issued.index(100) > issued.index(101)
    feeder.add_node(nadi.simulation.ETFeederNode(200, data_deps=[4]))  # which has ended
    assert feeder.has_nodes_to_issue()
    assert feeder.drain().id.tolist() == [200]


def test_added_nodes_are_checked(feeder: nadi.ETFeeder) -> None:
    with pytest.raises(nadi.errors.UsageError, match="node -1"):
        nadi.simulation.ETFeederNode(-1)
    with pytest.raises(nadi.errors.UsageError, match="neither a number nor a text"):
        nadi.simulation.ETFeederNode(1, color=[1])  # type: ignore[arg-type]
    with pytest.raises(nadi.errors.UsageError, match="does not belong to a feeder"):
        nadi.simulation.ETFeederNode(1).add_child(nadi.simulation.ETFeederNode(2))
    feeder.add_node(nadi.simulation.ETFeederNode(50, "late", data_deps=[51]))
    with pytest.raises(nadi.errors.FormatError, match=r"node 50 \(late\) depends on node 51"):
        feeder.resolve_dep()


def test_a_node_in_flight_stays_true_while_windows_are_read(tmp_path: Path) -> None:
    file = write(
        tmp_path / "t.et", [(0, []), *((n, [n - 1] if n > 1 else []) for n in range(1, 90))]
    )
    feeder = nadi.ETFeeder(file, 5)
    kept = feeder.get_next_issuable_node()
    assert kept is not None
    for _ in range(60):
        node = feeder.get_next_issuable_node()
        assert node is not None
        feeder.release([node.id])
        assert (kept.name, kept.runtime, kept.get_inputs_values()) == ("n0", 0, "")
    feeder.release([0])
    assert feeder.drain(ending=True).id[0] == 61


def test_policies_sort_by_numbers(tmp_path: Path) -> None:
    urgent = {1: 5, 2: 1, 3: 3, 4: 1}
    file = tmp_path / "t.et"
    file.write_bytes(content([
        message(n, attr=[attribute("comm_priority", "int32", p)], duration_micros=10 - n)
        for n, p in urgent.items()
    ]))  # fmt: skip
    assert nadi.ETFeeder(file, policy="comm_priority").drain().id.tolist() == [2, 4, 3, 1]
    assert nadi.ETFeeder(file, policy="runtime").drain(ending=True).id.tolist() == [4, 3, 2, 1]
    feeder = nadi.ETFeeder(file, policy=lambda node: -node.comm_priority)
    assert feeder.drain().id.tolist() == [1, 3, 2, 4]


def test_other_formats_and_traces_are_fed_alike(tmp_path: Path, demo_folder: Path) -> None:
    trace = nadi.load_job(demo_folder).traces[0]
    nadi.write(trace, tmp_path / "t.et")
    nadi.write(trace, tmp_path / "t.json", to="chakra-json")
    nadi.write(trace, tmp_path / "t.et.gz")
    _, messages = read_messages((tmp_path / "t.et").read_bytes())
    orders = []
    for source in (tmp_path / "t.et", tmp_path / "t.json", tmp_path / "t.et.gz", trace):
        feeder = nadi.ETFeeder(source, 700)
        order = []
        while feeder.has_nodes_to_issue():
            order.append(feeder.drain(ending=True).id)
        orders.append(np.concatenate(order).tolist())
    assert all(order == orders[0] for order in orders)
    assert sorted(orders[0]) == sorted(node.id for node in messages)
    place = {number: at for at, number in enumerate(orders[0])}
    assert all(place[node.id] > place[other] for node in messages for other in node.data_deps)


def test_every_attribute_of_a_real_trace_is_as_protobuf_reads_it(
    tmp_path: Path, demo_folder: Path
) -> None:
    file = tmp_path / "t.et"
    nadi.write(nadi.load_job(demo_folder).traces[1], file)
    _, messages = read_messages(file.read_bytes())
    feeder = nadi.ETFeeder(file)
    for expected in messages[::37]:
        node = feeder.lookup_node(expected.id)
        assert (node.name, int(node.type)) == (expected.name, expected.type)
        assert node.runtime == expected.duration_micros
        assert node.get_inputs_values() == expected.inputs.values
        assert node.get_outputs_types() == expected.outputs.types
        for given in expected.attr:
            assert node.get_other_attr(given.name) == attribute_value(given)[1]


@pytest.mark.parametrize("num_children", [1, 15, 16, 17, 40])
def test_any_number_of_children_follows_a_released_node(tmp_path: Path, num_children: int) -> None:
    ids = list(range(2, 2 + num_children))
    feeder = nadi.ETFeeder(write(tmp_path / "wide.et", [(1, []), *((one, [1]) for one in ids)]))
    feeder.release(feeder.drain())
    batch = feeder.drain()
    assert batch.id.tolist() == ids
    feeder.release(batch)
    assert not feeder.has_nodes_to_issue()
