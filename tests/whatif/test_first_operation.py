"""The first operation of a job is as any other: what changes make of it does not go by numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

import nadi
from nadi.graph.event_graph import EventGraph
from nadi.whatif import Move, MoveEarlier
from tests.conftest import PairWriter
from tests.whatif.programs import kernel, launch, spans

CHANGES = (
    "scale k. 0.5", "scale kind=host 0.5", "set k. 7us", "set first 3us", "remove k.",
    "remove k1", "remove first", "fuse k.", "move k1 to 9", "cut stream k2", "cut launch k1",
    "no-overhead", "no-overhead k1",
)  # fmt: skip


def program(folder: Path, *, first: str, after_another: bool) -> EventGraph:
    """Launch three kernels, the first of them by the first operation or from within it."""
    folder.mkdir()
    pair = PairWriter(folder)
    if after_another:
        pair.op("another", 10, 500, tid=9)  # of those that begin together the longest is first
    if first == "around":
        pair.op("first", 10, 100)
    for number, start in ((1, 10), (2, 20), (3, 30)):
        called = {"name": "cudaLaunchKernel first"} if first == "call" and number == 1 else {}
        pair.event(called.get("name", "cudaLaunchKernel"), start, 4, "cuda_runtime",
                   correlation=number)  # fmt: skip
    kernel(pair, 1, "k1", 20, 60)
    kernel(pair, 2, "k2", 62, 90)
    kernel(pair, 3, "k3", 95, 110)
    return nadi.build_graph(nadi.load_job(pair.write()[1]))


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("first", ["call", "around"])
def test_a_change_is_the_same_whichever_operation_comes_first(
    tmp_path: Path, change: str, first: str
) -> None:
    one, other = (
        program(tmp_path / str(after), first=first, after_another=after) for after in (False, True)
    )
    assert one.op_names[0].endswith("first")
    assert other.op_names[0] == "another"
    found = spans(other, change.replace("kind=host", "kind=host thread=1"))
    assert found.pop("another") == (0, 500)
    assert spans(one, change) == found
    assert found != spans(one)


def test_the_first_call_may_be_the_only_one(pair: PairWriter) -> None:
    launch(pair, 1, 0, 4)
    kernel(pair, 1, "k1", 20, 60)
    graph = nadi.build_graph(nadi.load_job(pair.write()[1]))
    assert spans(graph, "no-overhead")["k1"][1] - spans(graph, "no-overhead")["k1"][0] == 40
    assert spans(graph, "no-overhead")["cudaLaunchKernel"] == (0, 0)


def test_work_that_moves_right_after_the_first_operation_waits_for_it(pair: PairWriter) -> None:
    """A kernel was running when the recording began: it is the first of all. Two move after it."""
    pair.event("running", 0, 300, "kernel", pid=0, tid=7, stream=7, device=0)
    for number, name in enumerate(("aten::first", "aten::one", "aten::other")):
        pair.op(name, 10 + 30 * number, 20)
        pair.nodes[-1]["outputs" if number == 0 else "inputs"] = {
            "values": [[1 if number < 2 else 9, 1, 0, 6, 4, "cuda:0"]],
            "types": ["Tensor(float)"], "shapes": [[6]],
        }  # fmt: skip
        if number:
            launch(pair, number, 12 + 30 * number, 5)
            kernel(pair, number, f"k{number}", 250 + 50 * number, 290 + 50 * number)
    launch(pair, 3, 82, 5)
    kernel(pair, 3, "k3", 400, 440)
    graph = nadi.build_graph(nadi.load_job(*pair.write(), tensors=True))
    assert graph.op_names[0] == "running"
    row = graph.job.traces[0].nodes["name"].to_list().index
    move = Move(0, (row("aten::other"),), row("aten::first"))
    changed = spans(graph, MoveEarlier((move,), "other", "aten::first"))
    assert changed["running"] == (0, 300)
    assert changed["k2"][0] >= 300
    assert changed["k3"][0] >= changed["k2"][1]
    assert changed["k1"][0] >= changed["k3"][1]
