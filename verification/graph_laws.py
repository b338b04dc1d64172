"""The three laws of the event graph, on every trace at hand.

Usage: python verification/graph_laws.py [PATH,PATH... ...]

Each argument is a job: a folder of pairs, or device traces with commas between them. For
each is checked, by arithmetic of its own and not by Nadi's replay: that the times given
are those measured (identity); that every moment is the latest of what its edges ask for,
plus its delay, and that the binding edge asks for it (causality); and that shortening
edges, chosen at random, makes no moment later (monotony).
"""

from __future__ import annotations

import sys

import numpy as np
from _report import SHARED, Checks

import nadi

TRACES = SHARED / "traces"
DEFAULT = (
    *(
        str(TRACES / name)
        for name in (
            "cpu_mlp", "cpu_transformer4", "cpu_transformer_mid", "cpu_transformer_big",
            "cpu_ddp4", "gpu_resnet_pair", "gpu_simple_add_pair", "gpu_dlrm8",
        )
    ),
    *(
        str(TRACES / "gpu_hta" / f"{name}.json.gz")
        for name in (
            "alexnet", "cpu_only", "cuda_event_sync", "cuda_event_sync_multi_stream",
            "ns_resolution", "simple_add", "timeline_analysis", "triton",
        )
    ),
    ",".join(str(TRACES / "gpu_hta" / f"trace_filter_rank{rank}.json.gz") for rank in (0, 1)),
)  # fmt: skip
NUM_SHORTENED = 20
SEED = 1


def measured(graph: nadi.EventGraph) -> np.ndarray:
    """Give start and end of every operation as the tables have them, ns since the origin."""
    start = graph.gather("start").to_numpy() - graph.job.origin
    return np.stack([start, start + graph.gather("duration").to_numpy()], axis=1).ravel()


def causal(graph: nadi.EventGraph, replay: nadi.graph.Replay) -> tuple[int, int]:
    """Count the moments that are what their edges ask for, and all moments."""
    edges = graph.edges
    asked = replay.time[edges.src] + edges.weight
    latest = np.full(graph.num_vertices, np.iinfo(np.int64).min)
    np.maximum.at(latest, edges.dst, asked)
    entered = latest > np.iinfo(np.int64).min
    due = np.where(entered, latest, 0) + graph.delay
    bound = replay.bound_by
    binds = np.where(entered, (bound >= 0), bound < 0)
    known = np.flatnonzero(entered & (bound >= 0))
    binds[known] &= (asked[bound[known]] == latest[known]) & (edges.dst[bound[known]] == known)
    return int(((replay.time == due) & binds).sum()), graph.num_vertices


def monotonous(graph: nadi.EventGraph, generator: np.random.Generator) -> int:
    """Count the shortened edges that make no moment later."""
    count = 0
    for edge in generator.choice(graph.num_edges, NUM_SHORTENED):
        weight = graph.weight.copy()
        weight[edge] = generator.integers(0, weight[edge] + 1)
        count += int((nadi.graph.replay_graph(graph.with_weights(weight)).time <= graph.time).all())
    return count


def check(job: str, checks: Checks) -> None:
    graph = nadi.build_graph(nadi.load_job(*job.split(",")))
    name = "/".join(job.split(",")[0].rsplit("/", 2)[-2:])
    replay = nadi.graph.replay_graph(graph)
    ops = 2 * graph.num_ops
    checks.add_many(f"{name}, identity", int((replay.time[:ops] == measured(graph)).sum()), ops)
    checks.add_many(f"{name}, causality", *causal(graph, replay))
    generator = np.random.default_rng(SEED)
    checks.add_many(f"{name}, monotony", monotonous(graph, generator), NUM_SHORTENED)


def main() -> None:
    checks = Checks()
    for job in sys.argv[1:] or DEFAULT:
        check(job, checks)
    checks.finish()


if __name__ == "__main__":
    main()
