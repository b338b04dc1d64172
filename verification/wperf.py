"""Compare segments, waits and knots with wPerf's, on the cases of golden/wperf.

Knots have no goldens: they are compared with a search that knows nothing of components, over the
waits of the goldens.
"""

from __future__ import annotations

import gzip
import json
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from _report import Checks, arguments

import nadi
from nadi.files.switches import INTERRUPTS, SwitchEvents

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.reference.wait_cascade import plain_knots

UNKNOWN = -99  # what wPerf gives as the target of a wait that has not ended


def timelines_of(case: dict[str, Any]) -> nadi.bottlenecks.Timelines:
    """Follow the threads of a case."""
    fields = np.array(case["events"], dtype=np.int64)
    kind, time, before, after, cause, state = (fields[:, column] for column in (0, 1, 3, 4, 5, 6))
    events = SwitchEvents(kind, time, before, after, cause, state == 0)
    return nadi.bottlenecks.switch_timelines(events, case["tids"])


def numbers_of(case: dict[str, Any], timelines: nadi.bottlenecks.Timelines) -> list[int]:
    """Give wPerf's number of each actor: of a thread its id, of an interrupt its code."""
    codes = {name: code for code, name in reversed(INTERRUPTS.items())}
    threads: list[int] = case["tids"]
    others = [codes[actor.name] for actor in timelines.actors[len(threads) :]]
    return [*threads, *others]


def weights_of(graph: nadi.bottlenecks.WaitGraph) -> dict[tuple[int, int], int]:
    """Give the waits by waiter and target."""
    columns = (graph.waiter.tolist(), graph.target.tolist(), graph.weight.tolist())
    return {(a, b): weight for a, b, weight in zip(*columns, strict=True)}


def check(case: dict[str, Any], checks: Checks) -> None:
    """Compare one case."""
    name, timelines = case["name"], timelines_of(case)
    graph = nadi.bottlenecks.wait_graph(timelines)
    number = numbers_of(case, timelines)
    s = timelines.segments
    found = {thread: [] for thread in case["tids"]}
    for actor, kind, start, end, target in zip(
        *(column.tolist() for column in (s.actor, s.kind, s.start, s.end, s.target)), strict=True
    ):
        waits = number[target] if target >= 0 else UNKNOWN if kind == 2 else 0
        found[number[actor]].append([kind, start, end, waits])
    expected = {int(t): [g for g in each if g[1] < g[2]] for t, each in case["segments"].items()}
    same = sum(a == b for t in expected for a, b in zip(expected[t], found[t], strict=False))
    checks.add_many(f"{name}: segments", same, max(sum(map(len, expected.values())), s.actor.size))
    edges = weights_of(graph)
    waits = {f"{number[a]}->{number[b]}": round(w / 1e9, 6) for (a, b), w in edges.items()}
    same = sum(waits.get(pair) == w for pair, w in case["waitfor"].items())
    checks.add_many(f"{name}: waits", same, max(len(waits), len(case["waitfor"])))
    direct = dict.fromkeys(case["tids"], 0)
    for a, w in zip(graph.waiter.tolist(), graph.direct.tolist(), strict=True):
        direct[number[a]] += w
    rows = {int(row[0]): row for row in case["breakdown"]["rows"]}
    same = sum(
        abs(sum(map(float, rows[t][3:9])) - ns / 1e9) < 5e-6 for t, ns in direct.items()
    )  # wPerf rounds each of six figures
    checks.add_many(f"{name}: wait time of threads", same, len(direct))
    checks.add(f"{name}: knots", set(graph.knots) == plain_knots(edges, timelines.length_ns))


def check_random_knots(checks: Checks) -> None:
    """Compare knots on random graphs of waits, too."""
    random = np.random.default_rng(7)
    same, count = 0, 300
    for _ in range(count):
        pairs = [*combinations(range(6), 2)]
        edges = {
            (pair if random.random() < 0.5 else pair[::-1]): int(random.integers(1, 500))
            for pair in pairs * 2
            if random.random() < 0.4
        }
        found = nadi.bottlenecks.find_knots(edges, 1000)
        same += set(found) == plain_knots(edges, 1000)
    checks.add_many("random graphs: knots", same, count)


def main() -> None:
    checks = Checks()
    for path in arguments("golden/wperf/cases.json.gz"):
        for case in json.loads(gzip.decompress(Path(path).read_bytes())):
            check(case, checks)
    if len(sys.argv) == 1:
        check_random_knots(checks)
    checks.finish()


if __name__ == "__main__":
    main()
