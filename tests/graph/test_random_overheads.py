"""Typical overheads of random traces against a slow estimate that follows the rules in words."""

from __future__ import annotations

from collections import Counter
from random import Random
from statistics import median

import numpy as np
import pytest

from nadi.graph.overheads import (  # fmt: skip
    LAUNCH_CLASSES,
    MEASURED_WAITS,
    WAIT_CLASSES,
    Overheads,
    estimate_overheads,
)
from nadi.trace.categories import STAGED_COPY_BYTES
from nadi.trace.schema import DEPS, DEVICE_WORK, GROUPS, ISSUES, NODES
from nadi.trace.trace import Provenance, Trace
from tests.amounts import ALL, examples

TO_HOST, TO_DEVICE = "Memcpy DtoH (Device -> Pageable)", "Memcpy HtoD (Pageable -> Device)"
GLOO = "gloo:all_reduce"
SYNCS = {"cudaDeviceSynchronize": "device", "hipStreamSynchronize": "stream",
         "cudaEventSynchronize": "event"}  # fmt: skip
STEP_NS = 500  # so that many times lie on the borders of rules, which are whole microseconds


def random_trace(seed: int) -> Trace:
    """Draw operations of every kind, and dependencies between any of them; row 0 takes part."""
    rng = Random(seed)
    size = rng.choice((4, 12, 40, 120))
    rows: list[tuple[str, str, bool]] = [
        rng.choice((
            ("k", "kernel", False), ("k", "kernel", False), ("Memset", "memset", False),
            (TO_HOST, "memcpy", False), (TO_DEVICE, "memcpy", False), (GLOO, "annotation", True),
            (rng.choice(list(SYNCS)), "runtime", True), ("cudaLaunchKernel", "runtime", True),
            ("aten::mm", "operator", True),
        ))
        for _ in range(size)
    ]  # fmt: skip
    columns = {
        "id": np.arange(size), "kind": "INVALID", "name": [name for name, _, _ in rows],
        "category": [category for _, category, _ in rows],
        "is_cpu": [is_cpu for _, _, is_cpu in rows],
        "start": [rng.choice((-1, *range(0, 60 * STEP_NS, STEP_NS))) for _ in rows],
        "duration": [STEP_NS * rng.randrange(1, 30) for _ in rows],
        "bytes": [STAGED_COPY_BYTES + rng.randrange(2) for _ in rows],
        "comm_type": [rng.choice(("none", "none", "none", "all_reduce")) for _ in rows],
    }  # fmt: skip
    found: dict[tuple[int, int, str], bool] = {}
    for row, (_, category, is_cpu) in enumerate(rows):
        others = [other for other in range(size) if other != row]
        if not is_cpu or category == "annotation" or rng.random() < 0.1:
            found[rng.choice(others), row, "launch"] = False
        work = [other for other in others if not rows[other][2]]
        if not is_cpu and work:
            found[rng.choice(work), row, "stream"] = False
            for _ in range(rng.choice((0, 0, 1, 2))):
                found[rng.choice(work), row, "event"] = False
        for kind in ("sync", "thread"):
            for _ in range(rng.choice((0, 1, 2)) * is_cpu):
                found[rng.choice(others), row, kind] = rng.random() < 0.7
    launched = [(a, b) for a, b, kind in found if kind == "launch"]
    for caller, work in launched:
        if rng.random() < 0.2:  # a copy that its own call waits for
            found[work, caller, "sync"] = False
    src, dst, kind = zip(*found, strict=True)
    columns_of_deps = {
        "src": np.array(src), "dst": np.array(dst), "kind": list(kind),
        "inferred": list(found.values()),
    }  # fmt: skip
    deps = DEPS.build(len(found), columns_of_deps)
    return Trace(NODES.build(size, columns), deps, GROUPS.empty(), ISSUES.empty(),
                 Provenance("", ()))  # fmt: skip


class Slow:
    """The estimate, one dependency at a time."""

    def __init__(self, trace: Trace, within: tuple[int, int]) -> None:
        nodes = trace.nodes
        self.low, self.high = within
        self.start = nodes["start"].to_list()
        self.end = (nodes["start"] + nodes["duration"]).to_list()
        self.names = nodes["name"].cast(str).to_list()
        self.category = nodes["category"].cast(str).to_list()
        self.bytes = nodes["bytes"].to_list()
        self.is_comm = [kind != "none" for kind in nodes["comm_type"].cast(str).to_list()]
        self.on_device = [not is_cpu for is_cpu in nodes["is_cpu"].to_list()]
        self.deps = trace.deps.rows()

    def of(self, kind: str, *, all_times: bool = False) -> list[tuple[int, int]]:
        """Give the dependencies of a kind into what starts in the interval, or at any time."""
        return [
            (src, dst) for src, dst, k, _ in self.deps
            if k == kind and self.start[dst] >= 0
            and (all_times or self.low <= self.start[dst] < self.high)
        ]  # fmt: skip

    def launcher(self, row: int) -> int:
        callers = [src for src, dst in self.of("launch", all_times=True) if dst == row]
        return callers[-1] if callers else -1

    def ready(self, row: int) -> int:
        before = self.of("stream", all_times=True) + self.of("event", all_times=True)
        return max((self.end[src] for src, dst in before if dst == row), default=0)

    def launch_class(self, caller: int, work: int) -> str:
        if not self.on_device[work]:
            return "gloo" if self.names[work] == GLOO else "thread"
        if self.names[work] == TO_HOST:
            return "blocking copy"
        is_large = self.bytes[work] > STAGED_COPY_BYTES
        is_staged = self.names[work] == TO_DEVICE and is_large
        return "staged copy" if is_staged and self.start[work] < self.end[caller] else "device"

    def latencies(self) -> tuple[list[int], list[int]]:
        samples: dict[str, list[tuple[int, int, bool]]] = {name: [] for name in LAUNCH_CLASSES}
        for caller, work in self.of("launch"):
            if self.is_comm[work] and self.on_device[work]:
                continue
            idle = not self.on_device[work] or self.ready(work) <= self.start[caller]
            start = self.start[work]
            samples[self.launch_class(caller, work)].append(
                (start - self.end[caller], start - self.start[caller], idle)
            )
        ends, starts = [], []
        for name in LAUNCH_CLASSES:
            ends.append(self.typical([(a, idle) for a, _, idle in samples[name]], 3_000))
            starts.append(self.typical([(b, idle) for _, b, idle in samples[name]], 2**62))
        return ends, starts

    @staticmethod
    def typical(sample: list[tuple[int, bool]], most: int) -> int:
        idle = [time for time, is_idle in sample if is_idle and time >= 0]
        every = [time for time, _ in sample if time >= 0]
        if len(idle) >= 20:
            return int(median(idle))
        if idle:
            return int(min(np.percentile(idle, 25), most))
        return int(min(np.percentile(every, 25), 3_000)) if every else 0

    def turnarounds(self) -> list[list[int]]:
        gaps: dict[tuple[str, str], list[int]] = {}
        for before, after in self.of("stream"):
            caller, ended = self.launcher(after), self.end[before]
            gap = self.start[after] - ended
            if (
                caller >= 0 and self.end[caller] + 10_000 <= ended and 0 <= gap <= 5_000
                and self.ready(after) <= ended
            ):  # fmt: skip
                gaps.setdefault((self.category[before], self.category[after]), []).append(gap)
        every = [gap for some in gaps.values() for gap in some]
        usual = sum(every) // len(every) if every else 0
        return [
            [sum(some) // len(some) if (some := gaps.get((a, b))) else usual for b in DEVICE_WORK]
            for a in DEVICE_WORK
        ]

    def crossing(self, after_end: list[int], turnaround: list[list[int]]) -> int:
        gaps = []
        for held in {dst for _, dst in self.of("event")}:
            last = max([0, *(self.end[src] for src, dst in self.of("event") if dst == held)])
            allowed = 0
            for before, after in self.of("stream", all_times=True):
                if after == held:
                    pair = [DEVICE_WORK.index(self.category[row]) for row in (before, after)]
                    allowed = self.end[before] + turnaround[pair[0]][pair[1]]
            caller = self.launcher(held)
            if caller >= 0:
                latency = after_end[LAUNCH_CLASSES.index(self.launch_class(caller, held))]
                allowed = max(allowed, min(self.end[caller] + latency, self.start[held]))
            gap = self.start[held] - last
            if last >= allowed and 0 <= gap <= 5_000:
                gaps.append(gap)
        return int(median(gaps)) if gaps else 0

    def wait_class(self, work: int, call: int) -> str:
        if not self.on_device[work]:
            return "gloo" if self.names[work] == GLOO else "hand-over"
        if self.is_polled(work, call):
            return "hand-over"
        if self.names[call] in SYNCS:
            return SYNCS[self.names[call]]
        if self.launcher(work) != call:
            return "queue"
        return "staged copy" if self.end[work] > self.end[call] else "copy"

    def is_polled(self, work: int, call: int) -> bool:
        return self.on_device[work] and self.category[call] != "runtime"

    def waits(self) -> tuple[list[int], list[int]]:
        moments: dict[int, list[tuple[int, str]]] = {}
        for work, call in self.of("sync", all_times=True):
            own = self.launcher(work) == call or self.is_polled(work, call)
            own = own and self.end[work] > self.end[call]
            moment = self.start[work] if own else self.end[work]
            moments.setdefault(call, []).append((moment, self.wait_class(work, call)))
        idle: dict[str, list[int]] = {name: [] for name in WAIT_CLASSES}
        woken: dict[str, list[tuple[int, int]]] = {name: [] for name in WAIT_CLASSES}
        for call, found in moments.items():
            last = (
                max(0, *(moment for moment, _ in found)) if len(found) > 1 else max(0, found[0][0])
            )
            if not self.low <= self.start[call] < self.high:
                continue
            took = self.end[call] - self.start[call]
            for moment, name in found:
                if moment != last:
                    continue
                if last > self.start[call]:
                    woken[name].append((self.end[call] - last, took))
                else:
                    idle[name].append(took)
        calls = [int(median(idle[name])) if idle[name] else 0 for name in WAIT_CLASSES]
        returns = []
        for number, name in enumerate(WAIT_CLASSES):
            late = [late for late, took in woken[name] if took > calls[number]]
            returns.append(int(median(late)) if late else 0)
        returns[WAIT_CLASSES.index("gloo")] = self.wake_up(moments)
        for number in MEASURED_WAITS:
            returns[number] = 2**62
        return returns, calls

    def wake_up(self, moments: dict[int, list[tuple[int, str]]]) -> int:
        times = []
        for call, found in moments.items():
            if "gloo" in [name for _, name in found] and self.low <= self.start[call] < self.high:
                times.append(self.end[call] - max(0, *(m for m, _ in found), 0))
        ended: dict[int, list[int]] = {}
        for work, op, kind, waited in self.deps:
            if kind == "thread" and waited:
                ended.setdefault(op, []).append(work)
        for op, works in ended.items():
            last = max(0, *(self.end[work] for work in works), 0)
            lasting = [work for work in works if self.end[work] == last]
            # where several end last, the one that stands last in the table says whose they are
            if (
                lasting
                and self.names[lasting[-1]] == GLOO
                and self.low <= self.start[op] < self.high
            ):
                times.append(self.start[op] - last)
        if not times:
            return 0
        lower, upper = np.percentile(times, (25, 75))
        return int(upper + 1.5 * (upper - lower))


@pytest.mark.parametrize("within", [(0, 2**62), (5_000, 20_000)])
def test_overheads_of_random_traces(within: tuple[int, int]) -> None:
    met: Counter[str] = Counter()
    for seed in range(examples(100)):
        trace = random_trace(seed)
        slow = Slow(trace, within)
        found: Overheads = estimate_overheads(trace, within)
        after_end, after_start = slow.latencies()
        assert found.launch_after_end.tolist() == after_end, seed
        assert found.launch_after_start.tolist() == after_start, seed
        turnaround = slow.turnarounds()
        assert found.turnaround.tolist() == turnaround, seed
        assert found.crossing == slow.crossing(after_end, turnaround), seed
        returns, calls = slow.waits()
        assert found.wait_return.tolist() == returns, seed
        assert found.wait_call.tolist() == calls, seed
        met["crossing"] += found.crossing > 0
        met["turnaround"] += found.turnaround.max() > 0
        met += Counter(
            f"return {name}" for name, ns in zip(WAIT_CLASSES, returns, strict=True) if ns
        )
        met += Counter(
            f"launch {name}" for name, ns in zip(LAUNCH_CLASSES, after_start, strict=True) if ns
        )
    # random latencies have no two levels, as those of idle devices do: test_overheads has these
    launches = len(LAUNCH_CLASSES) - 1
    assert not ALL or len(met) == 2 + len(WAIT_CLASSES) + launches
