"""The laws of the event graph, on small jobs made at random and on a real recording.

The random jobs are written as the files that PyTorch would write and read back, so that
the laws hold for reading, linking and building together. Times are small numbers of one
unit: ties, operations of no duration and equal intervals are the rule, not the exception.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, note, settings
from hypothesis import strategies as st

import nadi
from nadi.critical_paths import PATH_KINDS
from nadi.graph import EdgeKind, EventGraph
from nadi.kernels.intervals import union_length
from nadi.link.nesting import nest
from nadi.schema import DEVICE_WORK
from tests.reference import intervals, paths

SETTINGS = settings(
    derandomize=True, deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)

EPOCH_NS = 1_700_000_000_000_000_001  # a float of microseconds could not tell it from ...000
MAIN, WORKER, GLOO = 1, 2, 7  # threads
HOST_NAMES = ("aten::mm", "aten::add", "ProfilerStep#1", "autograd::engine::evaluate")


@dataclass(frozen=True)
class Action:
    """One thing that a rank does: which, on which thread and stream, and how long."""

    what: str
    thread: int
    stream: int
    lengths: tuple[int, int, int]


@dataclass
class RankWriter:
    """The files of one rank, made action by action."""

    rank: int
    world_size: int
    unit: int
    events: list[dict] = field(default_factory=list)
    host_nodes: list[dict] = field(default_factory=list)
    clock: dict[int, int] = field(default_factory=lambda: {MAIN: 0, WORKER: 1})
    stacks: dict[int, list[dict]] = field(default_factory=lambda: {MAIN: [], WORKER: []})
    stream_end: Counter[int] = field(default_factory=Counter)

    def event(self, category: str, name: str, start: int, duration: int, **more: object) -> dict:
        made = {
            "ph": "X", "cat": category, "name": name, "pid": 100 + self.rank, "tid": MAIN,
            "ts": start * self.unit / 1000, "dur": duration * self.unit / 1000, "args": {},
        } | more  # fmt: skip
        self.events.append(made)
        return made

    def operator(self, name: str, start: int, duration: int, thread: int) -> dict:
        """Write an operation that stands in both files."""
        number = len(self.host_nodes) + 1
        self.host_nodes.append({
            "id": number, "name": name, "ctrl_deps": 0,
            "attrs": [{"name": "rf_id", "type": "uint64", "value": number}],
        })  # fmt: skip
        is_annotation = name.startswith(("Profiler", "gloo:"))
        return self.event(
            "user_annotation" if is_annotation else "cpu_op", name, start, duration,
            tid=thread, args={"Record function id": number},
        )  # fmt: skip

    def act(self, action: Action) -> None:
        getattr(self, action.what)(action.thread, action.stream, *action.lengths)

    def open(self, thread: int, stream: int, wait: int, name: int, _: int) -> None:
        self.clock[thread] += wait
        self.stacks[thread].append(self.operator(HOST_NAMES[name], self.clock[thread], 0, thread))

    def close(self, thread: int, stream: int, wait: int, _: int, then: int) -> None:
        self.clock[thread] += wait
        if self.stacks[thread]:
            opened = self.stacks[thread].pop()
            opened["dur"] = self.clock[thread] * self.unit / 1000 - opened["ts"]
        self.clock[thread] += then

    def overlap(self, thread: int, stream: int, back: int, name: int, on: int) -> None:
        """Write an operation that may begin inside another one and end after it."""
        start = max(self.clock[thread] - back, 0)
        self.operator(HOST_NAMES[name], start, back + on, thread)

    def call(self, name: str, thread: int, duration: int) -> dict:
        start = self.clock[thread]
        self.clock[thread] += duration
        correlation = len(self.events) + 1
        return self.event(
            "cuda_runtime", name, start, duration, tid=thread, args={"correlation": correlation}
        )

    def work(
        self, category: str, name: str, launch: dict, stream: int, start: int, duration: int
    ) -> dict:
        self.stream_end[stream] = max(self.stream_end[stream], start + duration)
        args = {**launch["args"], "device": 0, "stream": stream}
        return self.event(category, name, start, duration, tid=stream, args=args)

    def launch(self, thread: int, stream: int, call: int, latency: int, duration: int) -> None:
        start = self.clock[thread] + latency
        launch = self.call("cudaLaunchKernel", thread, call)
        self.work("kernel", "gemm", launch, stream, max(start, self.stream_end[stream]), duration)

    def launch_at_once(self, thread: int, stream: int, call: int, early: int, dur: int) -> None:
        """Launch work that waits neither for its stream nor for the end of the call."""
        start = max(self.clock[thread] + call - early, 0)
        launch = self.call("cudaLaunchKernel", thread, call)
        self.work("kernel", "relu", launch, stream, start, dur)

    def copy(self, thread: int, stream: int, latency: int, duration: int, after: int) -> None:
        """Copy to pageable memory: the call returns after the copy."""
        start = max(self.clock[thread] + latency, self.stream_end[stream])
        launch = self.call("cudaMemcpyAsync", thread, start + duration + after - self.clock[thread])
        name = "Memcpy DtoH (Device -> Pageable)"
        self.work("gpu_memcpy", name, launch, stream, start, duration)

    def synchronize(self, thread: int, stream: int, wait: int, after: int, whole: int) -> None:
        end = max([self.clock[thread] + wait, *self.stream_end.values()]) + after
        name = "cudaDeviceSynchronize" if whole % 2 else "cudaStreamSynchronize"
        call = self.call(name, thread, end - self.clock[thread])
        if not whole % 2:
            self.event("cuda_sync", "Stream Sync", 0, 0,
                       args={**call["args"], "stream": stream, "device": 0})  # fmt: skip

    def nccl(self, thread: int, stream: int, call: int, latency: int, duration: int) -> None:
        start = max(self.clock[thread] + latency, self.stream_end[stream])
        launch = self.call("cudaLaunchKernelExC", thread, call)
        made = self.work(
            "kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", launch, stream, start, duration
        )
        made["args"]["Process Group Name"] = "0"

    def gloo(self, thread: int, stream: int, call: int, latency: int, duration: int) -> None:
        start = self.clock[thread]
        self.operator("c10d::allreduce_", start, call, thread)
        self.clock[thread] += call
        self.operator("gloo:all_reduce", start + latency, duration, GLOO)

    def write(self, folder: Path) -> None:
        if not self.host_nodes:
            self.open(MAIN, 0, 0, 0, 0)
        for thread, stack in self.stacks.items():
            while stack:
                self.close(thread, 0, 1, 0, 0)
        device = {
            "schemaVersion": 1,
            "baseTimeNanoseconds": EPOCH_NS,
            "distributedInfo": {
                "rank": self.rank, "world_size": self.world_size,
                "pg_config": [{"pg_name": "0", "ranks": list(range(self.world_size))}],
            },
            "traceEvents": self.events,
        }  # fmt: skip
        host = {"schema": "1.1.1-chakra.0.0.4", "pid": 100 + self.rank, "nodes": self.host_nodes}
        (folder / f"device_{self.rank}.json").write_text(json.dumps(device))
        (folder / f"host_{self.rank}.json").write_text(json.dumps(host))


WHAT = (
    "open", "open", "close", "overlap", "launch", "launch_at_once", "copy", "synchronize",
    "nccl", "gloo",
)  # fmt: skip
lengths = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))


def actions(what: tuple[str, ...]) -> st.SearchStrategy[list[Action]]:
    action = st.builds(
        Action, st.sampled_from(what), st.sampled_from([MAIN, MAIN, WORKER]),
        st.sampled_from([7, 13]), lengths,
    )  # fmt: skip
    return st.lists(action, max_size=20)


def jobs(what=WHAT):
    """Draw a unit of time in ns, with waits too short and long enough to be seen, and ranks."""
    return st.tuples(
        st.sampled_from([1, 1_000, 20_000]), st.lists(actions(what), min_size=1, max_size=3)
    )


def load(description: tuple[int, list[list[Action]]]) -> nadi.Job:
    unit, ranks = description
    with tempfile.TemporaryDirectory() as folder:
        for rank, todo in enumerate(ranks):
            writer = RankWriter(rank, len(ranks), unit)
            for action in todo:
                writer.act(action)
            writer.write(Path(folder))
        return nadi.load_job(folder)
