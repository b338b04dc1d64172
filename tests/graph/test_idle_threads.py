"""Times in which a thread runs no operation for long."""

from __future__ import annotations

import nadi
from nadi.graph.unexplained import thread_waits
from tests.conftest import PairWriter

SLEEP = 5_000.0  # us


def described(graph: nadi.EventGraph) -> list[tuple[str, str, int]]:
    """Give the name of what each wait lies in, the name of what follows, and its ns."""
    names = [*graph.op_names.to_list(), ""]
    found = thread_waits(graph)
    return [
        (names[around], names[after], time)
        for around, after, time in zip(
            found.around.tolist(), found.next_op.tolist(), found.time_ns.tolist(), strict=True
        )
    ]


def service(pair: PairWriter, *, frame: str = "") -> nadi.EventGraph:
    """Write three steps: a range in which the thread sleeps, then ten operators with short gaps."""
    at = 0.0
    for step in range(3):
        begin = at
        pair.event("fetch", at + 10, SLEEP, "user_annotation")
        if frame:
            pair.event(frame, at + 11, SLEEP - 2, "python_function")
        at += SLEEP + 20
        for number in range(10):
            pair.op(f"aten::op{number}", at, 30)
            at += 32 + number % 3
        pair.event(f"ProfilerStep#{step}", begin, at - begin - 1, "user_annotation")
    return nadi.build_graph(nadi.load_job(*pair.write()))


def test_a_sleep_is_a_wait_and_python_between_operations_is_none(pair: PairWriter) -> None:
    assert described(service(pair)) == [("fetch", "aten::op0", 5_000_000)] * 3


def test_a_python_function_that_waits(pair: PairWriter) -> None:
    name = "<built-in function sleep>"
    found = described(service(pair, frame=name))
    assert [row for row in found if row[0] == name] == [(name, "aten::op0", 4_998_000)] * 3


def test_a_python_function_that_computes_is_no_wait(pair: PairWriter) -> None:
    assert described(service(pair, frame="tokenizer.py(7): encode")) == []


def test_workers_of_a_loader_are_waited_for_however_short(pair: PairWriter) -> None:
    loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    at = 0.0
    for _ in range(4):
        pair.event(loader, at, 3, "user_annotation")
        pair.op("aten::mm", at + 5, 30)
        pair.op("aten::add", at + 38, 30)
        at += 71
    found = described(nadi.build_graph(nadi.load_job(*pair.write())))
    assert found == [(loader, "aten::mm", 3_000)] * 4


def test_a_change_leaves_the_waits_as_recorded(pair: PairWriter) -> None:
    graph = service(pair)
    changed = nadi.whatif.apply_change(graph, nadi.whatif.parse_change("remove wait"))
    assert described(changed) == described(graph)


def test_a_thread_that_sleeps_before_it_takes_over_waits(pair: PairWriter) -> None:
    """A client thinks between the answer of a server and its next request."""
    at, enclosing = 0.0, []
    for _ in range(4):
        enclosing.append(pair.op("aten::softmax", at, 40))
        at += SLEEP
        pair.op("aten::randn", at, 30, tid=2, parent=enclosing[-1])
        at += 60
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    assert {after for _, after, _ in described(graph)} == {"aten::randn"}
