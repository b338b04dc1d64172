"""What ranks and streams do, and totals of operations, against plain programs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nadi
from nadi.graph.operation_totals import collective_totals, operation_totals
from nadi.graph.time_parts import rank_activity, stream_activity
from tests.conftest import PairWriter

PARTS = ("computing", "transferring", "waiting", "copying")
ASKING = ("c10d::", "record_param_comms", "gloo:", "nccl", "_c10d_functional::wait_tensor")


def length_of_each(spans: dict[str, list[tuple[int, int]]], begin: int, end: int) -> dict[str, int]:
    """Divide a time range by the first of PARTS that covers each moment."""
    moments: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for part, found in spans.items():
        for a, b in found:
            a, b = max(a, begin), min(b, end)
            if b > a:
                moments[a].append((part, 1))
                moments[b].append((part, -1))
    is_open = dict.fromkeys(PARTS, 0)
    sums, last = dict.fromkeys((*PARTS, "idle"), 0), begin
    for time in [*sorted(moments), end]:
        part = next((part for part in PARTS if is_open[part]), "idle")
        sums[part] += time - last
        last = time
        for changed, by in moments.get(time, []):
            is_open[changed] += by
    return sums


def spans_of(run: nadi.bottlenecks.Run, place: int) -> dict[str, list[tuple[int, int]]]:
    """Say what each operation of a rank is, with plain loops."""
    graph, trace = run.graph, run.job.traces[place]
    nodes = trace.nodes.to_dicts()
    hubs = {}
    for edge, vertex in enumerate(graph.in_src.tolist()):
        if vertex >= 2 * graph.num_ops:  # out of a collective: these wait in it
            hubs[int(graph.edge_op[edge])] = int(graph.time[vertex])
    has_device = any(node["category"] in ("kernel", "memcpy", "memset") for node in nodes)
    asks = rows_that_ask(run.graph, place, nodes)
    called = {
        dst: nodes[src]["start"] - run.job.origin
        for src, dst, kind in trace.deps.select("src", "dst", "kind").iter_rows()
        if kind == "launch"
    }
    found: dict[str, list[tuple[int, int]]] = {part: [] for part in PARTS}
    on_threads: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for op in range(graph.num_ops):
        if graph.op_trace[op] != place:
            continue
        node = nodes[graph.op_row[op]]
        a, b = int(graph.time[2 * op]), int(graph.time[2 * op + 1])
        if str(node["kind"]).startswith("COMM"):
            entered = hubs.get(op, a)
            if not has_device:
                a = min(a, called.get(graph.op_row[op], a))
            found["waiting"].append((a, b))
            found["transferring"].append((max(a, entered), b))
        elif node["category"] in ("memcpy", "memset"):
            found["copying"].append((a, b))
        elif node["category"] == "kernel":
            found["computing"].append((a, b))
        elif node["category"] == "operator" and not has_device:
            on_threads[node["thread"]].append((a, -b, graph.op_row[op]))
        if graph.op_row[op] in asks and not has_device:
            found["waiting"].append((a, b))
    for of_thread in on_threads.values():
        found["computing"] += [(a, b) for a, b, row in innermost(of_thread) if row not in asks]
    return found


def rows_that_ask(graph: nadi.EventGraph, place: int, nodes: list[dict[str, Any]]) -> set[int]:
    """Give the nodes of communication, of its calls, and in these."""
    found = set()
    for op in np.flatnonzero(graph.op_trace == place).tolist():
        around = op
        while around >= 0:
            node = nodes[graph.op_row[around]]
            if str(node["kind"]).startswith("COMM") or node["name"].startswith(ASKING):
                found.add(graph.op_row[op])
            around = graph.op_parent[around]
    return found


def innermost(operators: list[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """Give the intervals in which each operator of a thread is the innermost, with its row."""
    is_open: list[tuple[int, int]] = []
    time = 0
    for start, minus_end, row in [*sorted(operators), (2**62, 0, -1)]:
        while is_open and is_open[-1][0] <= start:
            end, ended = is_open.pop()
            yield time, end, ended
            time = max(time, end)
        if is_open:
            yield time, start, is_open[-1][1]
        time = start
        is_open.append((-minus_end, row))


def check(run: nadi.bottlenecks.Run) -> None:
    begin, end = run.window.start(run.graph.time), run.window.end(run.graph.time)
    found = rank_activity(run.graph, run.window)
    exposed = {one.rank: one.exposed for one in run.communication}
    for place, row in enumerate(found.iter_rows(named=True)):
        expected = length_of_each(spans_of(run, place), begin, end)
        assert {part: row[part] for part in expected} == expected
        assert sum(expected.values()) == end - begin
        assert row["transferring"] + row["waiting"] == exposed[row["rank"]]
    streams = stream_activity(run.graph, run.window)
    assert (streams["busy"] + streams["idle"] == end - begin).all()
    assert (streams["communicating"] <= streams["busy"]).all()


def test_each_moment_of_the_demo_counts_once(demo_run: nadi.bottlenecks.Run) -> None:
    check(demo_run)


def test_each_moment_of_a_rank_with_a_device_counts_once(pair: PairWriter) -> None:
    pair.event("ProfilerStep#1", 0, 100, "user_annotation")
    pair.event("aten::mm", 1, 20)
    on_stream: dict[str, Any] = {"tid": 7, "stream": 7, "device": 0}
    pair.event("gemm", 10, 30, "kernel", **on_stream)
    pair.event("ncclDevKernel_AllReduce_Sum", 30, 40, "kernel", tid=9, stream=9, device=0)
    pair.event("Memcpy HtoD", 65, 10, "gpu_memcpy", **on_stream)
    run = nadi.run(pair.write()[1])
    check(run)
    (row,) = rank_activity(run.graph, run.window).to_dicts()
    assert [row[part] for part in (*PARTS, "idle")] == [30_000, 30_000, 0, 5_000, 35_000]


@pytest.mark.parametrize("folder", ["gpu_dlrm8", "gpu_resnet_pair"])
def test_each_moment_of_a_recording_counts_once(shared_traces: Path, folder: str) -> None:
    check(nadi.run(shared_traces / folder))


def test_totals_are_sums(demo_run: nadi.bottlenecks.Run) -> None:
    graph, window = demo_run.graph, demo_run.window
    begin, end = window.start(graph.time), window.end(graph.time)
    expected: dict[str, list[int]] = defaultdict(list)
    for trace in demo_run.job.traces:
        for node in trace.nodes.iter_rows(named=True):
            start = node["start"] - demo_run.job.origin
            if node["category"] == "operator" and begin <= start < end and node["start"] >= 0:
                expected[node["name"]].append(node["exclusive"])
    for row in operation_totals(graph, window).iter_rows(named=True):
        times = expected.pop(row["name"])
        assert (row["count"], row["time"]) == (len(times), sum(times))
    assert not expected
    found = collective_totals(graph, window)
    met = {
        int(graph.destinations[edge])
        for edge, vertex in enumerate(graph.destinations.tolist())
        if vertex >= 2 * graph.num_ops and begin <= graph.time[vertex] <= end
    }
    assert found["count"].sum() == len(met) > demo_run.stragglers.collectives.height > 0
    assert (found["waiting"] >= 0).all()
    assert (found["fraction"] == -1).all()  # no system, no bound
