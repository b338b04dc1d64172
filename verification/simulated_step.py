"""Exported jobs, played as a simulator plays them, against the steps that were measured.

Each recording is written for ASTRA-sim, read again by a strict reader of its own (protobuf
package, ids ascending, every dependency there, no circle, members of groups alike), and played
with ASTRA-sim's slots and the measured time of each transfer. With nothing changed the
measured length must come out, but for what a slot each allows: the bounds below. Two rows more
show that the check can fail: without the nodes' waits for communication, and with host time
counted twice, as nested operations written with their whole duration have it.

    python verification/simulated_step.py [FOLDER ...]

Figures of the last run stand in docs/simulators.md.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import polars as pl
from _report import SHARED, Checks

import nadi

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.reference.feeder import COLL, FeederNode, read_job, replay

# per cent; cpu_ddp4's gradients travel two at a time
BOUNDS = {"cpu_ddp4": 2.0, "gpu_dlrm8": 0.2, "cuda_event_sync": 0.1, "triton": 0.05}
BOUND = 0.01
TRACES = SHARED / "traces"
DEFAULTS = [
    *(TRACES / name for name in ("cpu_mlp", "cpu_transformer4", "cpu_ddp4", "gpu_resnet_pair",
                                 "gpu_dlrm8")),
    *(TRACES / "gpu_hta" / f"{name}.json.gz" for name in (
        "alexnet", "simple_add", "cuda_event_sync", "cuda_event_sync_multi_stream",
        "ns_resolution", "triton", "cpu_only", "timeline_analysis")),
]  # fmt: skip


def without_communication(ranks: list[list[FeederNode]]) -> list[list[FeederNode]]:
    """Let nothing wait for collectives."""
    changed = []
    for nodes in ranks:
        comm = {node.id for node in nodes if node.type == COLL}
        changed.append([
            replace(node, data_deps=[other for other in node.data_deps if other not in comm])
            for node in nodes
        ])  # fmt: skip
    return changed


def nested_twice(job: nadi.Job) -> float:
    """Give the whole time of host operations over the time that threads were at work."""
    nodes = [trace.nodes.filter(pl.col("exclusive") >= 0) for trace in job.traces]
    return sum(n["duration"].sum() for n in nodes) / sum(n["exclusive"].sum() for n in nodes)


def main() -> None:
    checks = Checks()
    lost = 0
    for path in [Path(argument) for argument in sys.argv[1:]] or DEFAULTS:
        name = path.name.removesuffix(".json.gz")
        job = nadi.load_job(path)
        graph = nadi.build_graph(job)
        measured = int(graph.time[: 2 * graph.num_ops].max())
        with tempfile.TemporaryDirectory() as folder:
            nadi.simulation.write_for_astra_sim(job, folder)
            size = sum(file.stat().st_size for file in Path(folder).iterdir())
            ranks, groups = read_job(Path(folder))
        error = 100 * (replay(ranks, groups).makespan / measured - 1)
        deaf = 100 * (replay(without_communication(ranks), groups).makespan / measured - 1)
        lost += abs(deaf) > 1
        checks.add(
            name, abs(error) <= BOUNDS.get(name, BOUND),
            f"{sum(map(len, ranks))} nodes, {size} bytes, measured {measured / 1e6:.3f} ms, "
            f"played {error:+.3f} %, without waits for communication {deaf:+.1f} %, whole for own "
            f"time of host operations x{nested_twice(job):.1f}",
        )  # fmt: skip
    if len(sys.argv) == 1:
        checks.add("without waits the length differs somewhere", lost > 0)
    checks.finish()


main()
