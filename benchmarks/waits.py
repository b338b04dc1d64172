"""Who waits for whom in a recording of a million events, and in a million switches of threads.

A recording is repeated in time until it has as many events as asked for (event_graph.py). Asked is
under 1 s for an analysis after reading, on 2 cores.

Usage: python benchmarks/waits.py [MILLIONS]
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np
from event_graph import RECORDING, repeated

import nadi
from nadi.bottlenecks import find_waits, switch_timelines, wait_graph
from nadi.files.switches import SwitchEvents
from nadi.graph.windows import choose_window, find_steps


def random_switches(count: int) -> SwitchEvents:
    """Give switches of 64 threads on 8 CPUs, each woken by another."""
    random = np.random.default_rng(1)
    kind = np.tile([0, 1, 0], count // 3 + 1)[:count]
    thread = np.repeat(random.integers(1, 65, count // 3 + 1), 3)[:count]
    other = random.integers(1, 65, count)
    before = np.select([np.arange(count) % 3 == 0], [thread], np.where(kind == 1, other, 0))
    after = np.where(np.arange(count) % 3 == 0, 0, thread)
    none = np.zeros(count, dtype=np.int64)
    return SwitchEvents(kind, np.arange(count) * 1000, before, after, none, none == 1)


def main() -> None:
    millions = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    job = nadi.load_job(RECORDING)
    trace = repeated(job.traces[0], max(1, round(millions * 1e6 / job.traces[0].nodes.height)))
    graph = nadi.build_graph(nadi.recordings.link_job([trace]))
    window = choose_window(graph, find_steps(graph))
    find_waits(nadi.build_graph(job), choose_window(nadi.build_graph(job), []))  # compile
    began = time.process_time()
    found = find_waits(graph, window)
    seconds = time.process_time() - began
    print(f"recording: {trace.nodes.height} events, {len(found.bottlenecks)} bottlenecks replayed: "
          f"{seconds:.2f} s, {trace.nodes.height / seconds / 1e6:.1f} M events/s")  # fmt: skip
    events = random_switches(int(millions * 1e6))
    began = time.process_time()
    waits = wait_graph(switch_timelines(events))
    seconds = time.process_time() - began
    print(f"switches: {events.kind.size} events, {waits.waiter.size} pairs: {seconds:.2f} s")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"peak memory {peak:.1f} GB")


if __name__ == "__main__":
    main()
