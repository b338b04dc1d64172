"""A trainer that waits for workers of a DataLoader: what it does less, it waits longer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nadi
from nadi.graph.event_graph import EdgeKind, EventGraph

NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
WORK_US, OWN_US = 6_000, 50


def recording(waits_us: list[int], folder: Path, name: str = NEXT) -> EventGraph:
    """Write steps: a wait for a batch, which ends with an operation, and work."""
    events, clock = [], 1000.0

    def event(what: str, begin: float, length: float, category: str) -> None:
        events.append(
            {"ph": "X", "pid": 1, "tid": 1, "name": what, "ts": begin, "dur": length,
             "cat": category}
        )  # fmt: skip

    for number, wait in enumerate(waits_us, 1):
        event(f"ProfilerStep#{number}", clock, wait + OWN_US + WORK_US + 100, "user_annotation")
        event(name, clock, wait + OWN_US, "user_annotation")
        event("aten::set_", clock + wait, 20, "cpu_op")
        event("aten::mm", clock + wait + OWN_US + 10, WORK_US, "cpu_op")
        clock += wait + OWN_US + WORK_US + 100
    file = folder / "device.json"
    file.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return nadi.build_graph(nadi.load_job(file))


def loader_edges(graph: EventGraph) -> int:
    """Count the edges that begin before their operation: from one batch to the next."""
    gaps = (graph.edge_kind == EdgeKind.HOST_GAP) & (graph.edge_op >= 0)
    source = graph.time[graph.in_src]
    return int((gaps & (source < graph.time[2 * graph.edge_op])).sum())


@pytest.mark.parametrize(
    ("waits_us", "number"),
    [
        ([5000] * 4, 3),
        ([5000] * 3, 2),
        ([5000] * 2, 0),  # two may be chance
        ([5000, 5000, 100, 5000, 5000], 0),
        ([5000, 5000, 5000, 100, 5000, 5000, 5000], 4),
        ([100] * 6, 0),
    ],
)
def test_waits_in_a_row_are_the_workers(waits_us: list[int], number: int, tmp_path: Path) -> None:
    graph = recording(waits_us, tmp_path)
    assert loader_edges(graph) == number
    assert (nadi.graph.replay_graph(graph).time == graph.time).all()


def test_a_loader_in_the_process_is_work(tmp_path: Path) -> None:
    name = NEXT.replace("Multi", "Single")
    assert loader_edges(recording([5000] * 6, tmp_path, name)) == 0


def test_less_work_is_more_wait_and_faster_workers_are_a_gain(tmp_path: Path) -> None:
    graph = recording([5000] * 6, tmp_path)
    batch = 5000 + OWN_US + WORK_US + 100
    assert nadi.what_if(graph, "remove aten::mm").gain_ns == WORK_US * 1000  # after the last batch
    assert nadi.what_if(graph, "scale aten::mm 0.5").gain_ns == WORK_US * 500
    # the first wait, and five times from batch to batch
    faster = nadi.what_if(graph, f"scale {NEXT.split('#')[0][:9]} 0.9").gain_ns
    assert faster == pytest.approx(100 * (5000 + 5 * batch), abs=50_000)
    without = nadi.what_if(graph, "remove wait in=DataLoader").gain_ns
    assert without == pytest.approx(6 * 5_000_000, abs=1_000_000)
    # work that takes longer than a batch bounds the step
    slower = nadi.what_if(graph, "scale aten::mm 3").gain_ns
    assert slower == -(6 * 2 * WORK_US * 1000 - 5 * 5_000_000)
