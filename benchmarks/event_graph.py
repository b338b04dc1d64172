"""The event graph of a job of a million events: built, its critical path, and a change replayed.

A recording is repeated in time, in memory, with ids and correlations shifted, until the job
has as many events as asked for. Asked are, on 2 cores, graph and critical path of 1 M events
under 1.5 s, a recompute after a change at 10 M edges/s, and under 500 bytes an event; and
all of it linear up to 10 M events.

CPU time is given as the program's own and the system's apart: the latter is mostly the first touch
of memory. What that costs for a GB is measured too: a tenth of a second where the system has memory
at hand, more than a second each time in a virtual machine that gives it back to its host.

Usage: python benchmarks/event_graph.py [MILLIONS...]
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from _measure import SHARED

import nadi

RECORDING = SHARED / "traces/gpu_resnet_pair"
IDS = ("id", "correlation", "event", "external_id", "rf_id", "sequence")
ROWS = ("parent",)


def repeated(trace: nadi.Trace, times: int) -> nadi.Trace:
    """Give a trace in which everything happens several times, one after the other."""
    nodes = trace.nodes
    known = nodes.filter(pl.col("start") >= 0)
    period = int((known["start"] + known["duration"]).max() - known["start"].min()) + 1_000  # type: ignore[operator]
    shifts = {
        name: int(nodes[name].max() or 0) + 1  # type: ignore[call-overload]
        for name in IDS if name in nodes.columns
    } | dict.fromkeys(ROWS, nodes.height) | {"start": period}  # fmt: skip
    parts = [
        nodes.with_columns(
            pl.when(pl.col(name) >= 0).then(pl.col(name) + number * shift)
            .otherwise(pl.col(name)).cast(nodes.schema[name])
            for name, shift in shifts.items()
        )
        for number in range(times)
    ]  # fmt: skip
    deps = pl.concat([
        trace.deps.with_columns(
            (pl.col(name) + number * nodes.height).cast(trace.deps.schema[name])
            for name in ("src", "dst")
        )
        for number in range(times)
    ])  # fmt: skip
    return replace(trace, nodes=pl.concat(parts), deps=deps)


@dataclass(frozen=True)
class Spent:
    """What some work took: seconds, page faults."""

    wall: float
    user: float
    system: float
    faults: int


def timed(work: Callable[[], object], runs: int = 3) -> tuple[object, Spent]:
    """Give what some work gives, and what the run took that needed least CPU time."""
    found, spent = None, []
    for _ in range(runs):
        wall, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        found = work()
        wall, after = time.perf_counter() - wall, resource.getrusage(resource.RUSAGE_SELF)
        spent.append(Spent(
            wall, after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime,
            after.ru_minflt - before.ru_minflt,
        ))  # fmt: skip
    return found, least(*spent)


def least(*spent: Spent) -> Spent:
    """Give what the run took that needed least CPU time; its wall is the least of all."""
    best = min(spent, key=lambda one: one.user + one.system)
    return replace(best, wall=min(one.wall for one in spent))


def first_touch() -> float:
    """Give the seconds of CPU time that the system takes for a GB of memory not touched before."""
    _, spent = timed(lambda: [np.ones(12_500_000) for _ in range(10)], runs=1)
    return spent.system


def memory(name: str) -> int:
    """Give a figure of this process's memory, such as VmRSS, in bytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) * 1024


def measure(millions: float) -> dict[str, Any]:
    """Make a job of so many events and measure, in this process."""
    touch = first_touch()
    original = nadi.load_job(RECORDING)
    answer(original)  # compiled kernels
    recorded = original.traces[0]
    times = round(millions * 1e6 / recorded.nodes.height)
    job = replace(original, traces=(repeated(recorded, times),))
    events = job.num_nodes
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the highest memory so far is forgotten
    replay = nadi.graph.replay_graph(nadi.build_graph(job))
    graph_peak = memory("VmHWM") - before
    del replay
    built, first = timed(lambda: answer(job), runs=1)
    peak = memory("VmHWM") - before
    graph, path = built  # type: ignore[misc]
    assert path.length == graph.time.max()
    _, again = timed(lambda: answer(job))
    # of a copy, as the times of a graph are kept once they are asked for
    _, replayed = timed(lambda: nadi.graph.replay_graph(replace(graph)))
    change = nadi.whatif.parse_change("scale kind=kernel 0.5")
    _, changed = timed(lambda: nadi.graph.replay_graph(nadi.whatif.apply_change(graph, change)))
    return {
        "events": events, "edges": graph.num_edges, "touch": touch,
        "answer": asdict(least(first, again)),
        "rates": [
            graph.num_edges / seconds / 1e6 for one in (replayed, changed)
            for seconds in (one.wall, one.user + one.system)
        ],
        "graph_bytes": graph_peak / events, "bytes": peak / events,
        "segments": path.segments.height / events,
    }  # fmt: skip


def answer(job: nadi.Job) -> tuple[nadi.EventGraph, nadi.graph.CriticalPath]:
    """Build the graph and find the critical path of the whole job."""
    graph = nadi.build_graph(job)
    return graph, nadi.critical_path(
        nadi.graph.replay_graph(graph), nadi.graph.choose_window(graph, [])
    )


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(float(sys.argv[2]))))
        return
    for millions in sys.argv[1:] or ["1", "2", "5", "10"]:
        done = subprocess.run(
            [sys.executable, __file__, "--one", millions], check=True, stdout=subprocess.PIPE
        )
        found = json.loads(done.stdout)
        spent, rates = Spent(**found["answer"]), found["rates"]
        print(
            f"{found['events'] / 1e6:5.2f} M events, {found['edges'] / 1e6:5.2f} M edges: graph and"
            f" critical path {spent.wall:.2f} s ({spent.user:.2f} + {spent.system:.2f} s of CPU,"
            f" {spent.faults / found['events'] * 1e6:,.0f} page faults per M events; a GB touched"
            f" for the first time takes {found['touch']:.2f} s here), replay"
            f" {rates[0]:.1f} M edges/s ({rates[1]:.1f}), with the change before it {rates[2]:.1f}"
            f" ({rates[3]:.1f}); bytes an event at peak: {found['graph_bytes']:.0f} for the graph"
            f" and its replay, {found['bytes']:.0f} with the path's table of"
            f" {found['segments']:.1f} rows an event",
            flush=True,
        )


if __name__ == "__main__":
    main()
