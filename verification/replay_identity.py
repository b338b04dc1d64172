"""Replaying an unchanged job gives back every measured time to the nanosecond.

Usage: python verification/replay_identity.py [FOLDER_OR_FILE...]

Each folder holds the pairs of one job; a device trace may stand alone. Checked for each:
every vertex's replayed time against the time that the device file gives (read here once
more, digit by digit, with Python's json and decimal modules), the length of every step,
and that the critical path has the length of what it is asked about, kind by kind.
"""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path

import numpy as np
from _report import Checks, arguments

import nadi

DEFAULT = (
    "traces/cpu_mlp",
    "traces/cpu_transformer4",
    "traces/cpu_transformer_mid",
    "traces/cpu_transformer_big",
    "traces/cpu_ddp4",
    "traces/gpu_resnet_pair",
    "traces/gpu_simple_add_pair",
    "traces/gpu_dlrm8",
    *(
        f"traces/gpu_hta/{name}.json.gz"
        for name in (
            "alexnet",
            "cpu_only",
            "cuda_event_sync",
            "cuda_event_sync_multi_stream",
            "ns_resolution",
            "simple_add",
            "timeline_analysis",
            "trace_filter_rank0",
            "triton",
        )
    ),
)


def recorded_times(path: str) -> tuple[np.ndarray, np.ndarray]:
    """Read start and end of every event of a Kineto file, in ns since the epoch; -1: none."""
    stored = Path(path).read_bytes()
    content = gzip.decompress(stored) if stored[:2] == b"\x1f\x8b" else stored
    file = json.loads(content, parse_float=Decimal)
    base = file.get("baseTimeNanoseconds", 0)
    times = [
        (int(event["ts"] * 1000) + base, int((event["ts"] + event["dur"]) * 1000) + base)
        if event.get("ph") == "X"
        else (-1, -1)
        for event in file["traceEvents"]
    ]
    start, end = np.array(times, dtype=np.int64).T
    return start, end


def check(folder: Path, checks: Checks) -> None:
    run = nadi.run(folder)
    graph, replayed = run.graph, nadi.graph.replay_graph(run.graph).time + run.job.origin
    for number, trace in enumerate(run.job.traces):
        start, end = recorded_times(trace.provenance.sources[-1].path)
        ops = np.flatnonzero(graph.op_trace == number)
        event = trace.nodes["event"].to_numpy()[graph.op_row[ops]]
        equal = (replayed[2 * ops] == start[event]).sum() + (
            replayed[2 * ops + 1] == end[event]
        ).sum()
        checks.add_many(f"{folder.name} rank {trace.rank}, vertices", int(equal), 2 * ops.size)
    for step in run.steps:
        one = nadi.run(folder, step=step.number) if len(run.steps) <= 3 else run
        measured, path = one.measured_ns, one.path
        lengths = {one.replayed_ns, path.length, sum(path.by_kind().values())}
        checks.add(f"{folder.name} {one.window.name}", lengths == {measured}, f"{measured} ns")
        if one is run:
            break


def main() -> None:
    checks = Checks()
    for folder in arguments(*DEFAULT):
        check(folder, checks)
    checks.finish()


if __name__ == "__main__":
    main()
