"""Time by module: the parts add up to the whole."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import nadi
from nadi.graph.event_graph import EventGraph
from nadi.graph.module_times import OUTSIDE, time_by_module
from tests.conftest import PairWriter
from tests.whatif.programs import kernel, launch

FOUR = Path(__file__).resolve().parents[1] / "recordings" / "cpu_mlp4_modules"
PHASES = ("forward", "backward", "optimizer", "other")


def graphs(folder: Path) -> EventGraph:
    return nadi.build_graph(nadi.load_job(folder))


def outermost_time(graph: EventGraph, begin: int, end: int, *, device: bool) -> int:
    """Sum the time of operations that nothing contains, within a range.

    What outlives the operation that it began in, as some do that a step's mark ends, counts from
    that one's end.
    """
    wanted = graph.gather("category").is_in(["kernel", "memcpy", "memset"]).to_numpy() == device
    total = 0
    for op in np.flatnonzero(wanted).tolist():
        low, high = graph.time[2 * op : 2 * op + 2].tolist()
        outer = graph.op_parent[op]
        while outer >= 0:
            low = max(low, int(graph.time[2 * outer + 1]))
            outer = graph.op_parent[outer]
        total += max(0, min(high, end) - max(low, begin))
    return total


@pytest.mark.parametrize(
    ("recording", "step"),
    [("four", "all"), ("four", "2"), ("four", "4"), ("demo", "all"), ("demo", "1")],
)
def test_parts_add_up_to_the_whole(recording: str, step: str, demo_folder: Path) -> None:
    graph = graphs(FOUR if recording == "four" else demo_folder)
    window = nadi.graph.choose_window(graph, nadi.graph.find_steps(graph), step)
    path = nadi.graph.critical_paths.walk_critical_path(nadi.graph.replay_graph(graph), window)
    table = time_by_module(graph, window).table
    begin, end = window.start(graph.time), window.end(graph.time)
    outer = table.filter(pl.col("parent") < 0)
    for place in ("host", "device"):
        total = sum(outer[f"{phase}_{place}"].sum() for phase in PHASES)
        assert total == outermost_time(graph, begin, end, device=place == "device")
    assert outer["critical"].sum() == path.length
    of_nothing = path.segments.filter(pl.col("node") < 0)  # such as time between operations
    time_of_nothing = (of_nothing["end"] - of_nothing["start"]).sum()
    assert time_of_nothing > 0 or (recording, step) != ("demo", "all")
    assert table.row(-1, named=True)["critical"] >= time_of_nothing
    amounts = [f"{phase}_{place}" for phase in PHASES for place in ("host", "device")]
    amounts += ["critical", "device_operations"]
    inner = table.filter(pl.col("parent") >= 0).group_by("parent").agg(pl.col(amounts).sum())
    around = table[inner["parent"].to_list()] if inner.height else table.clear()
    for name in amounts:  # a module contains the modules in it
        assert (around[name] >= inner[name]).all() if inner.height else True
        assert (table[name] >= 0).all()
    assert table["module"][-1] == OUTSIDE
    assert table["module"].is_unique().all()


def test_a_window_of_one_step_is_a_third(four_steps: list[pl.DataFrame]) -> None:
    whole, *steps = four_steps
    for name in ("calls", "forward_host", "backward_host", "optimizer_host"):
        inside = whole.filter(pl.col("module") != OUTSIDE)["module"]
        parts = [step.filter(pl.col("module").is_in(inside.implode()))[name] for step in steps]
        assert (parts[0] + parts[1] + parts[2] == whole[name][:-1]).all()


@pytest.fixture
def four_steps() -> list[pl.DataFrame]:
    graph = graphs(FOUR)
    found = nadi.graph.find_steps(graph)
    return [
        time_by_module(graph, nadi.graph.choose_window(graph, found, step)).table
        for step in ("all", "2", "3", "4")
    ]


def test_forward_backward_and_devices(pair: PairWriter) -> None:
    net = pair.op("nn.Module: Net_0", 0, 100, cat="python_function")
    block = pair.op("nn.Module: Block_0", 10, 60, parent=net, cat="python_function")
    pair.op("aten::mm", 20, 40, parent=block, **{"Sequence number": 5})
    launch(pair, 1, 30, 5)
    kernel(pair, 1, "gemm", 50, 110)
    pair.op("aten::add", 80, 10, parent=net, **{"Sequence number": 6})
    pair.op("AddBackward0", 200, 10, tid=2, **{"Sequence number": 6, "Fwd thread id": 1})
    pair.op("MmBackward0", 220, 40, tid=2, **{"Sequence number": 5, "Fwd thread id": 1})
    launch(pair, 2, 230, 5, tid=2)
    kernel(pair, 2, "gemm", 240, 300)
    pair.op("aten::rand", 400, 7)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    window = nadi.graph.choose_window(graph, [])
    found = time_by_module(graph, window)
    columns = ["module", "parent", "calls", "forward_host", "backward_host", "other_host",
               "forward_device", "backward_device", "device_operations"]  # fmt: skip
    us = 1000
    assert found.table.select(columns).rows() == [
        ("Net_0", -1, 1, 100 * us, 50 * us, 0, 60 * us, 60 * us, 2),
        ("Net_0.Block_0", 0, 1, 60 * us, 40 * us, 0, 60 * us, 60 * us, 2),
        (OUTSIDE, -1, 0, 0, 0, 7 * us, 0, 0, 0),
    ]
    assert found.is_recorded
    assert found.optimizer == ""


@pytest.mark.parametrize("seed", range(15))
def test_time_is_distributed_without_a_rest_where_operations_overlap(
    seed: int, tmp_path: Path
) -> None:
    """Clocks of different sources make operations end after what they started in."""
    rand = random.Random(seed)
    names = ["nn.Module: A_0", "nn.Module: A_1", "aten::mm", "MmBackward0", "Optimizer.step#SGD"]
    events, busy = [], set()
    for _ in range(rand.randint(2, 40)):
        name, tid = rand.choice(names), rand.randint(1, 2)
        start, duration = rand.randint(0, 50), rand.randint(1, 30)
        cat = "python_function" if name.startswith("nn.") else "cpu_op"
        args = {"Sequence number": rand.randint(0, 3)}
        events.append({"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": start,
                       "dur": duration, "args": args})  # fmt: skip
        busy |= {(tid, moment) for moment in range(start, start + duration)}
    events.append({**events[0], "cat": "cpu_op", "name": "aten::mm", "tid": 1, "ts": 90, "dur": 5})
    events.append({**events[-1], "tid": 2})  # no thread only waits
    busy |= {(tid, moment) for moment in range(90, 95) for tid in (1, 2)}
    file = tmp_path / "device.json"
    file.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    graph = nadi.build_graph(nadi.load_job(file))
    table = time_by_module(graph, nadi.graph.choose_window(graph, [])).table
    hosts = table.select(f"{phase}_host" for phase in PHASES)
    assert (hosts.to_numpy() >= 0).all()
    outer = hosts.filter(table["parent"] < 0)
    assert int(outer.to_numpy().sum()) == 1000 * len(busy)
