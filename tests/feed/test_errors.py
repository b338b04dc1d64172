"""What is wrong with a trace or a call is told, with the node; nothing ever hangs."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

import nadi
from tests.feed.traces import content, message, write


def drive(feeder: nadi.ETFeeder) -> list[int]:
    issued = []
    while feeder.has_nodes_to_issue():
        node = feeder.get_next_issuable_node()
        assert node is not None
        feeder.free_children_nodes(node.id)
        feeder.remove_node(node.id)
        issued.append(node.id)
    return issued


@pytest.mark.parametrize("window", [1, 2, 3, 100])
@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([(1, []), (2, [1]), (3, [9])], r"node 3 \(n3\) depends on node 9, which is not in"),
        ([(1, []), (2, [2])], r"node 2 \(n2\) depends on itself"),
        ([(1, []), (2, [4]), (3, [2]), (4, [3])],
         r"node 2 \(n2\) depends on itself through node 4 \(n4\), node 3 \(n3\)"),
        ([(1, []), (2, [1]), (1, [])], r"node 1 \(n1\) has the id of another node"),
        ([(1, []), (1, [])], r"node 1 \(n1\) has the id of another node"),
        ([(1, []), (2, []), (3, [1, 2, 1])], r"node 3 \(n3\) depends on node 1 twice"),
    ],
)  # fmt: skip
def test_a_trace_that_cannot_be_run_names_the_node(
    tmp_path: Path, nodes: list[tuple[int, list[int]]], expected: str, window: int
) -> None:
    file = write(tmp_path / "trace.et", nodes)
    with pytest.raises(nadi.errors.FormatError, match=expected) as error:
        drive(nadi.ETFeeder(file, window))
    assert error.value.where == str(file)


def test_control_dependencies_are_checked_when_they_count(tmp_path: Path) -> None:
    file = tmp_path / "trace.et"
    file.write_bytes(content([message(1), message(2, ctrl_deps=[7])]))
    assert drive(nadi.ETFeeder(file)) == [1, 2]
    with pytest.raises(nadi.errors.FormatError, match=r"node 2 \(n2\) depends on node 7"):
        nadi.ETFeeder(file, ctrl_deps=True)
    file.write_bytes(content([message(1), message(2, ctrl_deps=[1, 1])]))
    with pytest.raises(nadi.errors.FormatError, match=r"node 2 \(n2\) depends on node 1 twice"):
        nadi.ETFeeder(file, ctrl_deps=True)


def test_a_file_cut_off_anywhere_is_an_error_or_ends_between_two_nodes(tmp_path: Path) -> None:
    whole = content([message(1), message(2, [1]), message(3, [2])])
    ends = {len(content([message(1), message(2, [1]), message(3, [2])][:n])) for n in range(4)}
    file = tmp_path / "cut.et"
    for size in range(1, len(whole)):
        file.write_bytes(whole[:size])
        if size in ends:
            assert drive(nadi.ETFeeder(file)) == [1, 2, 3][: sorted(ends).index(size)]
        else:
            with pytest.raises(nadi.errors.FormatError, match=r"longer than what is left|no trace"):
                nadi.ETFeeder(file)
    file.write_bytes(whole[:-3])
    with pytest.raises(
        nadi.errors.FormatError, match=r"byte \d+, after node 2 \(n2\): a message is"
    ):
        nadi.ETFeeder(file)


def test_a_gzip_file_cut_off_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "cut.et.gz"
    nodes = [message(number, name=f"node {number * 7919}") for number in range(3_000)]
    packed = gzip.compress(content(nodes))
    file.write_bytes(packed)
    assert drive(nadi.ETFeeder(file)) == list(range(3_000))
    for size in (len(packed) - 1, len(packed) - 8, len(packed) // 2):
        file.write_bytes(packed[:size])
        with pytest.raises(nadi.errors.InputError, match="gzip data is truncated"):
            nadi.ETFeeder(file)


def test_a_length_that_no_message_has_is_not_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "long.et"
    file.write_bytes(content([message(1)]) + b"\xff\xff\xff\xff\x7f" + bytes(99))
    with pytest.raises(nadi.errors.FormatError, match=r"after node 1 \(n1\)"):
        nadi.ETFeeder(file)


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "empty.et"
    file.write_bytes(b"")
    with pytest.raises(nadi.errors.FormatError, match="empty"):
        nadi.ETFeeder(file)
    with pytest.raises(nadi.errors.InputError, match="cannot be read"):
        nadi.ETFeeder(tmp_path / "none.et")
    (tmp_path / "note.txt").write_text("no trace at all")
    with pytest.raises(nadi.errors.InputError):
        nadi.ETFeeder(tmp_path / "note.txt")


def test_a_trace_without_nodes_has_none_to_issue(tmp_path: Path) -> None:
    feeder = nadi.ETFeeder(write(tmp_path / "none.et", []))
    assert not feeder.has_nodes_to_issue()
    assert feeder.get_next_issuable_node() is None
    assert len(feeder.drain()) == len(feeder.drain(ending=True)) == 0


@pytest.fixture
def feeder(tmp_path: Path) -> nadi.ETFeeder:
    return nadi.ETFeeder(write(tmp_path / "trace.et", [(1, []), (2, [1]), (3, []), (4, [3])]))


def issued_one(feeder: nadi.ETFeeder) -> None:
    feeder.get_next_issuable_node()


@pytest.mark.parametrize(
    ("before", "call", "expected"),
    [
        ([], lambda f: f.free_children_nodes(1), r"node 1 \(n1\): is ready and was not issued"),
        ([], lambda f: f.free_children_nodes(2), r"node 2 \(n2\): waits for others"),
        ([], lambda f: f.free_children_nodes(9), "node 9: is not held"),
        ([], lambda f: f.push_back_issuable_node(1), r"node 1 \(n1\): is ready"),
        ([], lambda f: f.remove_node(1), r"node 1 \(n1\): is ready"),
        ([], lambda f: f.lookup_node(-1), "node -1: is not held"),
        ([issued_one], lambda f: f.remove_node(1), r"node 1 \(n1\): was issued and has not"),
        ([issued_one, lambda f: f.free_children_nodes(1)],
         lambda f: f.free_children_nodes(1), r"node 1 \(n1\): has ended"),
        ([issued_one, lambda f: f.release([1])], lambda f: f.lookup_node(1), "node 1: is not held"),
        ([lambda f: f.drain()], lambda f: f.release([1, 3, 1]),
         r"node 1 \(n1\): is given twice"),
        ([lambda f: f.drain()], lambda f: f.release([3, 3]), r"node 3 \(n3\): is given twice"),
        ([lambda f: f.drain()], lambda f: f.release([1, 2]), r"node 2 \(n2\): waits for others"),
        ([lambda f: f.drain()], lambda f: f.release([3, 77]), "node 77: is not held"),
        ([], lambda f: f.lookup_node(1).get_other_attr("x"), "has no attribute 'x'"),
        ([], lambda f: f.lookup_node(1).add_child(f.lookup_node(2)), "is its parent already"),
        ([], lambda f: f.lookup_node(1).add_child(f.lookup_node(1)), "is itself"),
        ([lambda f: f.drain()], lambda f: f.lookup_node(2).add_child(f.lookup_node(3)),
         r"node 3 \(n3\): was issued"),
        ([], lambda f: f.drain().number("color"), "name='color': is not a column"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_refused(
    feeder: nadi.ETFeeder,
    before: list[Callable[[nadi.ETFeeder], None]],
    call: Callable[[nadi.ETFeeder], None],
    expected: str,
) -> None:
    for step in before:
        step(feeder)
    with pytest.raises(nadi.errors.UsageError, match=expected):
        call(feeder)


def test_a_release_refused_changes_nothing(feeder: nadi.ETFeeder) -> None:
    assert feeder.drain().id.tolist() == [1, 3]
    for wrong in ([1, 3, 2], [1, 2], [3, 3], [3, 77]):
        with pytest.raises(nadi.errors.UsageError):
            feeder.release(wrong)
    feeder.release([3, 1])
    assert feeder.drain(ending=True).id.tolist() == [2, 4]
    assert not feeder.has_nodes_to_issue()


def test_settings_that_make_no_sense(tmp_path: Path) -> None:
    file = write(tmp_path / "trace.et", [(1, [])])
    with pytest.raises(nadi.errors.UsageError, match="window_size"):
        nadi.ETFeeder(file, 0)
    with pytest.raises(nadi.errors.UsageError, match="policy='longest': is not a policy"):
        nadi.ETFeeder(file, policy="longest")


def test_who_never_removes_nodes_gets_all_of_them(tmp_path: Path) -> None:
    feeder = nadi.ETFeeder(write(tmp_path / "t.et", [(n, [n - 1][:n]) for n in range(50)]), 4)
    issued = []
    while (node := feeder.get_next_issuable_node()) is not None:
        issued.append(node.id)
        feeder.free_children_nodes(node.id)
    assert issued == list(range(50))
    for number in issued:
        feeder.remove_node(number)
    assert not feeder.has_nodes_to_issue()


def test_children_that_wait_for_each_other_are_told_when_nothing_else_is_left(
    tmp_path: Path,
) -> None:
    feeder = nadi.ETFeeder(write(tmp_path / "t.et", [(1, []), (2, [1]), (3, [2])]))
    feeder.lookup_node(3).add_child(feeder.lookup_node(2))
    feeder.release(feeder.drain())
    for ask in (feeder.get_next_issuable_node, feeder.drain):
        with pytest.raises(nadi.errors.FormatError, match="depends on itself through"):
            ask()
