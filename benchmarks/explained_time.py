"""How much of the measured time dependencies explain, trace by trace.

Every trace is replayed from operation durations, host gaps and typical overheads, with
all unexplained delays removed. Asked are 1 % of the measured time (0.2 ms on alexnet and
simple_add), and late starts of at most 0.1 % of device operations. Then the same without
the edges of a kind, which must show; then with overheads estimated on the first half of a
trace and tested on the second.

Usage: python benchmarks/explained_time.py [FOLDER_OR_FILE...]
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from _measure import SHARED

import nadi

TRACES = SHARED / "traces"
HTA = TRACES / "gpu_hta"
SINGLE = [
    TRACES / "gpu_resnet_pair",
    *(HTA / f"{name}.json.gz" for name in (
        "ns_resolution", "alexnet", "simple_add", "cuda_event_sync", "cuda_event_sync_multi_stream",
    )),
    *(TRACES / "gpu_dlrm8" / f"device_{rank}.json.gz" for rank in range(8)),
]  # fmt: skip
JOINT = [TRACES / "gpu_dlrm8", TRACES / "cpu_ddp4"]
SAMPLED = [[HTA / "timeline_analysis.json.gz"], sorted(HTA.glob("trace_filter_rank*.json.gz"))]
REMOVED = -(2**60)  # a weight that no edge has: as if the edge were not there


def name_of(path: Path) -> str:
    """Give the last two parts of a path, without suffixes."""
    return "/".join(path.parts[-2:]).removesuffix(".json.gz")


def without(graph: nadi.EventGraph, kind: nadi.graph.EdgeKind) -> nadi.EventGraph:
    """Give the graph without the edges of a kind."""
    return graph.with_weights(np.where(graph.edge_kind == kind, REMOVED, graph.weight))


def without_other_ranks(graph: nadi.EventGraph) -> nadi.EventGraph:
    """Give the graph with each rank's collectives ending a transfer after its own start."""
    from_hub = graph.in_src >= 2 * graph.num_ops
    return replace(graph, in_src=np.where(from_hub, 2 * graph.edge_op, graph.in_src))


def show(name: str, found: nadi.graph.Explained, largest: int = 5) -> None:
    """Print one line, and the largest delays."""
    part = 100 * found.num_late / max(found.num_device_operations, 1)
    error = found.explained_ns - found.measured_ns
    print(f"{name:44s} {found.measured_ns / 1e6:12.3f} ms {100 * found.error:+8.3f} %"
          f" {error / 1e3:+10.1f} us; late {found.num_late} of {found.num_device_operations}"
          f" = {part:.2f} %")  # fmt: skip
    for row in found.largest(largest).iter_rows(named=True):
        print(f"    {row['delay'] / 1e3:10.1f} us at the {row['moment']} of {row['name'][:60]}"
              f" (rank {row['rank']}, row {row['node']})")  # fmt: skip


def main() -> None:
    given = [Path(argument) for argument in sys.argv[1:]]
    print("measured, and explained less measured time:")
    for path in given or [*SINGLE, *JOINT]:
        show(name_of(path), nadi.graph.explain_time(nadi.build_graph(nadi.load_job(path))))
    if given:
        return
    print("\nwithout the edges of a kind:")
    alone = nadi.build_graph(nadi.load_job(JOINT[0] / "device_3.json.gz"))
    error = 100 * nadi.graph.explain_time(without(alone, nadi.graph.EdgeKind.SYNC)).error
    print(f"gpu_dlrm8 rank 3, alone, without waits for its device: {error:+.1f} %")
    job = nadi.build_graph(nadi.load_job(JOINT[0]))
    found = nadi.graph.explain_time(without_other_ranks(job)).ranks
    _, measured, explained = found.row(by_predicate=pl.col("rank") == 1)
    error = 100 * (explained - measured) / measured
    print(f"gpu_dlrm8 rank 1, of eight, without waits for other ranks: {error:+.1f} %")
    print("\noverheads from the first half, tested on the second:")
    for path in [*SINGLE, *JOINT]:
        job = nadi.load_job(path)
        middle = [_middle(trace) for trace in job.traces]
        typical = [
            nadi.graph.estimate_overheads(trace, (0, end))
            for trace, end in zip(job.traces, middle, strict=True)
        ]
        show(name_of(path), nadi.graph.explain_time(nadi.build_graph(job, typical),
                                              since=max(middle) - job.origin), 0)  # fmt: skip
    print("\nsampled recordings:")
    for paths in SAMPLED:
        for trace in nadi.load_job(*paths).traces:
            said = trace.issues.row(by_predicate=pl.col("code") == "link.sampled", named=True)
            name = name_of(Path(trace.provenance.sources[-1].path))
            print(f"{name}: {said['count']} {said['detail']}")


def _middle(trace: nadi.Trace) -> int:
    start = trace.column("start")
    start = start[start >= 0]
    return int(start.min() + start.max()) // 2


if __name__ == "__main__":
    main()
